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

/* A packet's turn among those of its flow that are logged: by an interval, and by changes of chosen fields. */
struct turn {
	__u64 now;
	__u64 last;
};

/* Gives a turn back whose packet was not logged, so that the next one has it. */
static __always_inline void give_back(const struct options *asked, struct flow *flow, const struct turn *turn)
{
	if (asked->min_interval_ns)
		__sync_val_compare_and_swap(&flow->logged_ns, turn->now, turn->last);
	if (asked->changes)
		flow->changes = 0;
}

/* Whether it is a packet's turn; else what becomes of it. Two CPUs may meet the flow at once: only one may have the turn. */
static __always_inline __u32 take_turn(const struct options *asked, struct flow *flow, struct tcp_sock *tp, struct turn *turn)
{
	__u64 changes = 0;

	if (asked->changes) {
		changes = digest_of(tp, asked->changes);
		if (changes == flow->changes)
			return FATE_UNCHANGED;
	}
	if (asked->min_interval_ns) {
		turn->last = flow->logged_ns;
		if (is_early(turn->now, turn->last, asked->min_interval_ns) ||
		    __sync_val_compare_and_swap(&flow->logged_ns, turn->last, turn->now) != turn->last)
			return FATE_EARLY;
	}
	/* Exchanged last: a packet that is early has not told its change. */
	if (asked->changes && __sync_lock_test_and_set(&flow->changes, changes) == changes) {
		if (asked->min_interval_ns)
			__sync_val_compare_and_swap(&flow->logged_ns, turn->now, turn->last);
		return FATE_UNCHANGED;
	}
	return FATE_LOGGED;
}

/* Logs a packet that is wanted and due; returns what becomes of it. */
static __always_inline __u32 log_packet(struct __sk_buff *skb, struct bpf_sock *sk, const struct options *asked,
					struct flow *flow, struct totals *totals, __u32 way, struct seen *seen)
{
	struct bpf_tcp_sock *shown = bpf_tcp_sock(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct turn turn = { .now = time_now() };
	struct sample *sample;
	__u64 number;
	__u32 fate;

	if (!tp || !shown)
		return FATE_UNPARSED;
	fate = take_turn(asked, flow, tp, &turn);
	if (fate != FATE_LOGGED)
		return fate;
	sample = room(sizeof(*sample));
	if (!sample) {
		__sync_fetch_and_add(&totals->number, 1);
		give_back(asked, flow, &turn);
		return FATE_FULL;
	}
	if (!take_packet(sample, skb)) {
		bpf_ringbuf_discard(sample, BPF_RB_NO_WAKEUP);
		give_back(asked, flow, &turn);
		return FATE_UNPARSED;
	}
	number = __sync_fetch_and_add(&totals->number, 1);
	name_sample(sample, way, 0, seen->slot, number, flow->cookie);
	sample->time_ns = turn.now;
	sample->packet = seen->packet;
	sample->segments = seen->segments;
	take_shown_state(&sample->state, tp, shown);
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	flow->last_ns = turn.now;
	if (asked->private_every && __sync_fetch_and_add(&flow->samples, 1) % asked->private_every == 0)
		log_private(sk, seen->slot, number, turn.now);
	return FATE_LOGGED;
}

#endif
