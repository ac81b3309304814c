/* Makes records in the ring of this CPU. */
#ifndef SOJOURN_TCPLOG_RECORD_H
#define SOJOURN_TCPLOG_RECORD_H

#define NO_PACKET (~0ULL)

/* A packet as it was met. */
struct seen {
	__u64 packet; /* its number in the flow */
	__u32 segments;
	__u32 slot;
};

static __always_inline void *room(__u64 bytes)
{
	__u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &cpu);

	return ring ? bpf_ringbuf_reserve(ring, bytes, 0) : NULL;
}

static __always_inline void name_sample(struct sample *sample, __u8 point, __u16 detail, __u32 slot, __u64 number,
					__u64 cookie)
{
	sample->kind = KIND_SAMPLE;
	sample->point = point;
	sample->detail = detail;
	sample->slot = slot;
	sample->number = number;
	sample->cookie = cookie;
}

/* The private state of the congestion control, with every n-th sample of the flow. */
static __noinline int log_private(struct bpf_sock *sk, __u32 slot, __u64 number, __u64 now)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, &slot);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct totals *totals = totals_here();
	struct private_state *private;

	if (!flow || !tp || !totals)
		return 0;
	private = room(sizeof(*private));
	if (!private) {
		__sync_fetch_and_add(&totals->number, 1);
		__sync_fetch_and_add(&totals->privates_full, 1);
		return 0;
	}
	private->kind = KIND_PRIVATE;
	__builtin_memset(private->reserved, 0, sizeof(private->reserved));
	private->slot = slot;
	private->number = __sync_fetch_and_add(&totals->number, 1);
	private->time_ns = now;
	private->cookie = flow->cookie;
	private->sample = number;
	name_algorithm(private->algorithm, tp);
	if (bpf_probe_read_kernel(private->bytes, PRIVATE_BYTES, tp->inet_conn.icsk_ca_priv))
		__builtin_memset(private->bytes, 0, PRIVATE_BYTES);
	__builtin_memcpy(flow->algorithm, private->algorithm, NAME_BYTES);
	bpf_ringbuf_submit(private, BPF_RB_NO_WAKEUP);
	__sync_fetch_and_add(&totals->privates, 1);
	return 0;
}

/* What the chosen fields say now. */
static __always_inline __u64 digest_of(struct tcp_sock *tp, __u64 changes)
{
	struct watched watched;

	take_watched(&watched, tp);
	return digest(&watched, changes);
}

/* Logs a packet that is wanted and due; returns what becomes of it. */
static __always_inline __u32 log_packet(struct __sk_buff *skb, struct bpf_sock *sk, const struct options *asked,
					struct flow *flow, struct totals *totals, __u32 way, struct seen *seen)
{
	struct bpf_tcp_sock *shown = bpf_tcp_sock(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct sample *sample;
	__u64 now, number, changes = 0;

	if (!tp || !shown)
		return FATE_UNPARSED;
	if (asked->changes) {
		changes = digest_of(tp, asked->changes);
		if (changes == flow->changes)
			return FATE_UNCHANGED;
	}
	now = time_now();
	if (is_early(now, flow->logged_ns, asked->min_interval_ns))
		return FATE_EARLY;
	sample = room(sizeof(*sample));
	if (!sample) {
		__sync_fetch_and_add(&totals->number, 1);
		return FATE_FULL;
	}
	if (!take_packet(sample, skb)) {
		bpf_ringbuf_discard(sample, BPF_RB_NO_WAKEUP);
		return FATE_UNPARSED;
	}
	number = __sync_fetch_and_add(&totals->number, 1);
	name_sample(sample, way, 0, seen->slot, number, flow->cookie);
	sample->time_ns = now;
	sample->packet = seen->packet;
	sample->segments = seen->segments;
	take_shown_state(&sample->state, tp, shown);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	flow->last_ns = now;
	flow->logged_ns = now;
	flow->changes = changes;
	if (asked->private_every && __sync_fetch_and_add(&flow->samples, 1) % asked->private_every == 0)
		log_private(sk, seen->slot, number, now);
	return FATE_LOGGED;
}

#endif
