/* Forwards frames from one interface to another, for a bridge that needs to see none, and counts them. One program is
 * attached to ingress, the other to egress of the other interface: a frame that is counted only at ingress is lost,
 * because it exceeds that interface's MTU. That interface counts its own drops. One skb may stand for several frames
 * (GSO); each is counted. */

#include "stream.h"

#include <linux/pkt_cls.h>

/* In the same order as in crates/port/src/bridge/straight.rs. */
const volatile struct {
	__u32 from;
	__u32 to;
} asked = {};

/* In the same order as in crates/port/src/bridge/straight.rs. */
struct counted {
	__u64 frames;
	__u64 super_frames;
	__u64 own; /* skbs that this host itself sends there */
	__u64 joined; /* frames in super-frames */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counted);
} frames SEC(".maps");

#define IPV4 0x0800
#define TCP 6

/* The segments of a super-frame whose sender has not counted them, as a virtual machine does not (SKB_GSO_DODGY): of TCP or
 * UDP over IPv4, or over IPv6 without extension headers. */
static __always_inline __u32 uncounted(struct __sk_buff *skb)
{
	__u32 transport = sizeof(struct ethernet) + 40, headers, size = skb->gso_size;
	__u8 protocol = 0, length = 0;

	if (skb->protocol == bpf_htons(IPV4)) {
		bpf_skb_load_bytes(skb, sizeof(struct ethernet), &length, 1);
		bpf_skb_load_bytes(skb, sizeof(struct ethernet) + 9, &protocol, 1);
		transport = sizeof(struct ethernet) + 4 * (length & 15);
	} else {
		bpf_skb_load_bytes(skb, sizeof(struct ethernet) + 6, &protocol, 1);
	}
	headers = transport + 8;
	if (protocol == TCP) {
		bpf_skb_load_bytes(skb, transport + 12, &length, 1);
		headers = transport + 4 * (length >> 4);
	}
	return size && skb->len > headers ? (skb->len - headers + size - 1) / size : 1;
}

static __always_inline void count(struct __sk_buff *skb)
{
	__u32 zero = 0, segments = skb->gso_segs;
	struct counted *counted = bpf_map_lookup_elem(&frames, &zero);

	if (!counted)
		return;
	if (!segments)
		segments = skb->gso_size ? uncounted(skb) : 1;
	__sync_fetch_and_add(&counted->frames, segments);
	if (segments > 1) {
		__sync_fetch_and_add(&counted->super_frames, 1);
		__sync_fetch_and_add(&counted->joined, segments);
	}
}

/* Attached to ingress. */
SEC("tc")
int pass_on(struct __sk_buff *skb)
{
	__u32 longest = 0;

	count(skb);
	/* Checks each segment of a super-frame. The MTU does not include a tag that is in the frame. */
	if (skb->gso_size ? bpf_check_mtu(skb, asked.to, &longest, 0, BPF_MTU_CHK_SEGS) > 0
			  : bpf_check_mtu(skb, asked.to, &longest, -(int)sizeof(struct tag), 0) > 0)
		return TC_ACT_SHOT;
	return bpf_redirect(asked.to, 0);
}

/* Attached to egress: counts what this host itself sends there apart. */
SEC("tc")
int passed_on(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct counted *counted;

	if (skb->ingress_ifindex == asked.from) {
		count(skb);
		return TC_ACT_UNSPEC;
	}
	counted = bpf_map_lookup_elem(&frames, &zero);
	if (counted)
		__sync_fetch_and_add(&counted->own, 1);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
