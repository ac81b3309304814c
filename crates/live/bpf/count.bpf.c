/* Count and drop the data frames of streams at the receiver, flow by flow. All other frames pass, so that frames for
 * clock synchronisation and for ending a stream still reach a socket.
 *
 * Only registered flows are counted; replies are counted by responder. A frame with another key or flow is unexpected.
 *
 * Most frames belong to a registered flow, so these have a place in an array, by the low bits of the flow; flows whose
 * place is occupied, and replies, are searched in a hash table.
 *
 * All frames of a flow arrive in one RX queue, which the kernel processes sequentially, so plain additions are correct.
 * The CRC of a header is not verified; the parity of headers made in the kernel is.
 */

#include "stream.h"

#define FLOWS 64        /* a power of 2; the map has twice as many entries, for one responder each */
#define WINDOW_WORDS 64 /* bit map of the latest sequence numbers, 64 in each word */
#define SUB_BITS 6      /* each octave of a histogram has 64 steps */
#define OCTAVES 34      /* above the first 64 ns: up to 2^40 ns */
#define STEPS ((OCTAVES + 1) << SUB_BITS)

const volatile __u16 ethertype = 0;

struct flow_key {
	__u64 key;
	__u32 flow;
	__u32 node;
};

/* crates/live/src/counter.rs reads it and has the same order. */
struct flow {
	__u64 frames;
	__u64 bytes;
	__u64 first; /* sequence numbers seen for the first time */
	__u64 duplicated;
	__u64 reordered;
	__u64 beyond; /* older than the window: duplicate or not is unknown */
	__u64 damaged; /* with wrong parity; in no other counter, nor in frames */
	__u64 least;
	__u64 greatest;
	__u64 first_at; /* ns, CLOCK_TAI */
	__u64 last_at;
	__s64 delay_least;
	__s64 delay_greatest;
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

/* The flow whose counts are at the same index of `counts`. crates/live/src/counter.rs has the same order. */
struct owner {
	__u64 key;
	__u64 flow; /* plus 1; 0: none */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct owner);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FLOWS);
	__type(key, __u32);
	__type(value, struct flow);
} counts SEC(".maps");

/* A zeroed entry for a new responder: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} blank SEC(".maps");

struct other {
	__u64 foreign;  /* with the EtherType, but no stream header */
	__u64 unlisted; /* of a responder without room in the map */
	__u64 keyless;  /* with a key or flow that is not registered */
};

struct other other SEC(".data.other") = {};

/* The flow of a frame that is no responder's, if it has a place in the array. */
static __always_inline struct flow *flow_at(struct stream_header *header)
{
	__u64 flow = bpf_ntohs(header->flow);
	__u32 index = flow & (FLOWS - 1);
	struct owner *owner = bpf_map_lookup_elem(&owners, &index);

	if (!owner || owner->flow != flow + 1 || owner->key != header->key)
		return NULL;
	return bpf_map_lookup_elem(&counts, &index);
}

/* Search the flow of any frame. */
static __always_inline struct flow *flow_of(struct stream_header *header)
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
		other.keyless++;
		return NULL;
	}
	key.node = node;
	bpf_map_update_elem(&flows, &key, nothing, BPF_NOEXIST);
	flow = bpf_map_lookup_elem(&flows, &key);
	if (!flow)
		other.unlisted++;
	return flow;
}

/* Return the histogram step of a value. */
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

	/* The verifier must see the bound on the register that is the index. */
	barrier_var(step);
	if (step < STEPS)
		histogram[step]++;
}

/* Record a sequence number in the window, and count it as new, reordered, duplicate or beyond the window. */
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
	struct flow *flow;

	if (!header)
		return XDP_PASS;
	if ((void *)(header + 1) > (void *)(long)ctx->data_end || header->magic != bpf_htonl(STREAM_MAGIC)) {
		other.foreign++;
		return XDP_DROP;
	}
	if (header->kind != KIND_DATA && header->kind != KIND_ANSWER && header->kind != KIND_LIVE)
		return XDP_PASS;
	flow = header->kind == KIND_ANSWER && header->node ? NULL : flow_at(header);
	if (!flow)
		flow = flow_of(header);
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
