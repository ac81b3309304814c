/* Counts the data frames of streams where they arrive, flow by flow, and drops them; all other frames pass, so that what
 * synchronises clocks and ends streams still reaches a socket.
 *
 * Only flows are counted that were entered with their keys; their answers are counted by who answered. What has another key
 * or flow is unexpected.
 *
 * A flow arrives by one queue of the device, whose frames the kernel hands over one after the other: so plain additions count
 * right. The CRC of a header is not computed; the parity of those that the kernel makes is.
 */

#include "stream.h"

#define FLOWS 64        /* each with room for one who answers beside it */
#define WINDOW_WORDS 64 /* numbers of which it is known whether they have come: 64 of them in each */
#define SUB_BITS 6      /* each octave of a histogram has 64 steps */
#define OCTAVES 34      /* above the first 64 ns: up to 2^40 ns */
#define STEPS ((OCTAVES + 1) << SUB_BITS)

const volatile __u16 ethertype = 0;

struct flow_key {
	__u64 key;
	__u32 flow;
	__u32 node;
};

/* Read by crates/live/src/counter.rs, which has the same order. */
struct flow {
	__u64 frames;
	__u64 bytes;
	__u64 first; /* numbers seen for the first time */
	__u64 duplicated;
	__u64 reordered;
	__u64 beyond; /* older than the window: seen before or not, nobody knows */
	__u64 damaged; /* with a wrong parity: in no other count, nor in frames */
	__u64 least;
	__u64 greatest;
	__u64 first_at; /* ns, CLOCK_TAI */
	__u64 last_at;
	__s64 delay_least;
	__s64 delay_greatest;
	__s64 delay_sum;
	__u64 delay_negative;
	__u64 delay[STEPS];
	__u64 inter_arrival[STEPS];
	__u64 window[WINDOW_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2 * FLOWS);
	__type(key, struct flow_key);
	__type(value, struct flow);
} flows SEC(".maps");

/* Answers of which nothing has come: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} blank SEC(".maps");

struct other {
	__u64 foreign;  /* of the EtherType, and no stream header */
	__u64 unlisted; /* of a node too many */
	__u64 keyless;  /* of a key or a flow that was not entered */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct other);
} others SEC(".maps");

static __always_inline struct flow *flow_of(struct stream_header *header, struct other *other)
{
	struct flow_key key = {
		.key = header->key,
		.flow = bpf_ntohs(header->flow),
		.node = header->kind == KIND_ANSWER ? header->node : 0,
	};
	struct flow *flow = bpf_map_lookup_elem(&flows, &key);
	__u32 zero = 0, node = key.node;
	void *nothing;

	if (flow)
		return flow;
	key.node = 0;
	nothing = bpf_map_lookup_elem(&blank, &zero);
	if (!nothing || !node || !bpf_map_lookup_elem(&flows, &key)) {
		other->keyless++;
		return NULL;
	}
	key.node = node;
	bpf_map_update_elem(&flows, &key, nothing, BPF_NOEXIST);
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		other->unlisted++;
	return flow;
}

/* The step of a histogram that a value falls into. */
static __always_inline __u64 step_of(__u64 value)
{
	__u64 octave = 0;
	__u64 rest = value >> SUB_BITS;

	if (rest >> 16) {
		octave += 16;
		rest >>= 16;
	}
	if (rest >> 16) {
		octave += 16;
		rest >>= 16;
	}
	if (rest >> 8) {
		octave += 8;
		rest >>= 8;
	}
	if (rest >> 4) {
		octave += 4;
		rest >>= 4;
	}
	if (rest >> 2) {
		octave += 2;
		rest >>= 2;
	}
	if (rest >> 1) {
		octave += 1;
		rest >>= 1;
	}
	if (rest)
		octave += 1;
	if (octave > OCTAVES)
		return STEPS - 1;
	if (octave == 0)
		return value;
	return (octave << SUB_BITS) + ((value >> (octave - 1)) & ((1 << SUB_BITS) - 1));
}

static __always_inline void add(__u64 *histogram, __u64 value)
{
	__u64 step = step_of(value);

	/* The bound is to be seen on the very register that is the index. */
	barrier_var(step);
	if (step < STEPS)
		histogram[step]++;
}

/* Notes a number in the window and counts what it is. */
static __always_inline void number(struct flow *flow, __u64 seq)
{
	__u64 word = seq >> 6, newest = flow->greatest >> 6, bit = 1ULL << (seq & 63);

	if (flow->frames == 0) {
		flow->least = flow->greatest = seq;
	} else if (seq > flow->greatest) {
		for (__u32 i = 1; i <= WINDOW_WORDS; i++) {
			if (newest + i > word)
				break;
			flow->window[(newest + i) & (WINDOW_WORDS - 1)] = 0;
		}
		flow->greatest = seq;
	} else if (newest - word >= WINDOW_WORDS) {
		flow->beyond++;
		return;
	} else if (flow->window[word & (WINDOW_WORDS - 1)] & bit) {
		flow->duplicated++;
		return;
	} else {
		flow->reordered++;
		if (seq < flow->least)
			flow->least = seq;
	}
	flow->window[word & (WINDOW_WORDS - 1)] |= bit;
	flow->first++;
}

static __always_inline void time(struct flow *flow, __s64 sent, __u64 now)
{
	__s64 delay = (__s64)now - sent;

	if (flow->frames == 0) {
		flow->first_at = now;
		flow->delay_least = flow->delay_greatest = delay;
	} else {
		add(flow->inter_arrival, now > flow->last_at ? now - flow->last_at : 0);
		if (delay < flow->delay_least)
			flow->delay_least = delay;
		if (delay > flow->delay_greatest)
			flow->delay_greatest = delay;
	}
	flow->last_at = now;
	flow->delay_sum += delay;
	if (delay < 0)
		flow->delay_negative++;
	else
		add(flow->delay, delay);
}

SEC("xdp")
int count(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_tai_ns();
	struct stream_header *header = user_data(ctx, ethertype);
	__u32 zero = 0;
	struct other *other;
	struct flow *flow;

	if (!header)
		return XDP_PASS;
	other = bpf_map_lookup_elem(&others, &zero);
	if (!other)
		return XDP_PASS;
	if ((void *)(header + 1) > (void *)(long)ctx->data_end || header->magic != bpf_htonl(STREAM_MAGIC)) {
		other->foreign++;
		return XDP_DROP;
	}
	if (header->kind != KIND_DATA && header->kind != KIND_ANSWER && header->kind != KIND_LIVE)
		return XDP_PASS;
	flow = flow_of(header, other);
	if (!flow)
		return XDP_DROP;
	if (header->kind == KIND_LIVE && header->check != bpf_htonl(parity(header))) {
		flow->damaged++;
		return XDP_DROP;
	}
	number(flow, seq_of(header));
	time(flow, bpf_be64_to_cpu(header->sent), now);
	flow->frames++;
	flow->bytes += (long)ctx->data_end - (long)ctx->data;
	return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
