/* A tap: timestamps each frame that passes an interface and copies it, up to the snapshot length, into a ring buffer;
 * the frame itself is unchanged. `tap_in` runs at ingress, before bridging and routing; `tap_out` at egress, before the
 * queueing discipline. Frames do not wake the reader, which polls often enough. */

#include <linux/bpf.h>
#include <linux/types.h>

#include <linux/pkt_cls.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* In the same order as in crates/capture/src/bpf/mod.rs. */
const volatile struct {
	__u32 snap;
} asked = {};

/* Parsed by crates/capture/src/bpf/record.rs. */
struct passed {
	__u64 at; /* ns, CLOCK_TAI */
	__u32 length;
	__u32 kept;
	__be16 tag_kind;
	__u16 tag_control;
	__u16 sum_from;
	__u16 sum_at; /* offset from sum_from */
	__u32 flags;
	__u32 rest;
	__u8 frame[];
};

enum {
	SENT = 1,
	SUPER = 2,    /* a super-frame: stands for several frames */
	TAGGED = 4,   /* the kernel keeps its VLAN tag in metadata */
	UNSUMMED = 8, /* its checksum is left to the interface (CHECKSUM_PARTIAL) */
};

/* The counts of one CPU, on a cache line of their own. tc programs of one CPU do not interrupt each other. */
struct count {
	__u64 is_open; /* set by the reader */
	__u64 accepted;
	__u64 dropped; /* the ring was full, or the frame unreadable */
	__u64 full; /* how often the ring became full */
	__u64 is_full;
	__u64 rest[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set by the loader to the highest CPU number plus one */
	__type(key, __u32);
	__type(value, struct count);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* set by the loader to the requested size */
} frames SEC(".maps");

/* The fields of the kernel's own structure that are used; the loader relocates them. */
struct sk_buff {
	__u8 ip_summed : 2;
	__u16 csum_start;
	__u16 csum_offset;
	unsigned char *head;
	unsigned char *data;
} __attribute__((preserve_access_index));

#define SUM_IS_PARTIAL 3

extern void *bpf_cast_to_kern_ctx(void *ctx) __ksym;

static __always_inline void describe(struct __sk_buff *skb, struct passed *passed, __u64 at, __u64 kept, __u32 flags)
{
	struct sk_buff *inner = bpf_cast_to_kern_ctx(skb);

	passed->at = at;
	passed->length = skb->len;
	passed->kept = kept;
	passed->tag_kind = 0;
	passed->tag_control = 0;
	passed->sum_from = 0;
	passed->sum_at = 0;
	passed->rest = 0;
	if (skb->gso_size)
		flags |= SUPER;
	if (skb->vlan_present) {
		flags |= TAGGED;
		passed->tag_kind = skb->vlan_proto;
		passed->tag_control = skb->vlan_tci;
	}
	if (BPF_CORE_READ_BITFIELD(inner, ip_summed) == SUM_IS_PARTIAL) {
		flags |= UNSUMMED;
		passed->sum_from = inner->csum_start - (__u16)(inner->data - inner->head);
		passed->sum_at = inner->csum_offset;
	}
	passed->flags = flags;
}

/* The result for a frame. */
enum {
	COPIED,
	NO_ROOM,
	UNREADABLE,
};

/* Records have a few fixed sizes, because the verifier requires a constant size. */
#define COPY(ROOM)                                                                                       \
	do {                                                                                             \
		struct passed *passed = bpf_ringbuf_reserve(&frames, sizeof(*passed) + (ROOM), 0);        \
                                                                                                         \
		if (!passed)                                                                             \
			return NO_ROOM;                                                                  \
		describe(skb, passed, at, kept, flags);                                                  \
		/* The verifier must see the bounds on the register that is passed as the length. */      \
		barrier_var(kept);                                                                       \
		if (kept == 0 || kept > (ROOM) || bpf_skb_load_bytes(skb, 0, passed->frame, kept)) {     \
			bpf_ringbuf_discard(passed, BPF_RB_NO_WAKEUP);                                   \
			return UNREADABLE;                                                               \
		}                                                                                        \
		bpf_ringbuf_submit(passed, BPF_RB_NO_WAKEUP);                                            \
		return COPIED;                                                                           \
	} while (0)

#define MOST 65664 /* a multiple of 64: the longest IP packet with its link header fits */

static __always_inline int copy(struct __sk_buff *skb, __u64 at, __u32 flags)
{
	__u64 kept = skb->len; /* 64 bits wide, so that its checked bounds hold for the length register */

	if (kept > asked.snap)
		kept = asked.snap;
	if (kept > MOST)
		kept = MOST;
	if (kept <= 64)
		COPY(64);
	if (kept <= 128)
		COPY(128);
	if (kept <= 256)
		COPY(256);
	if (kept <= 640)
		COPY(640);
	if (kept <= 1536)
		COPY(1536);
	if (kept <= 9216)
		COPY(9216);
	COPY(MOST);
}

static __always_inline int tap(struct __sk_buff *skb, __u32 flags)
{
	__u64 at = bpf_ktime_get_tai_ns();
	__u32 cpu = bpf_get_smp_processor_id();
	struct count *count = bpf_map_lookup_elem(&counts, &cpu);
	int became;

	if (!count || !count->is_open)
		return TC_ACT_UNSPEC;
	count->accepted++;
	became = copy(skb, at, flags);
	if (became != COPIED)
		count->dropped++;
	if (became == NO_ROOM && !count->is_full)
		count->full++;
	count->is_full = became == NO_ROOM;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int tap_in(struct __sk_buff *skb)
{
	return tap(skb, 0);
}

SEC("tc")
int tap_out(struct __sk_buff *skb)
{
	return tap(skb, SENT);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
