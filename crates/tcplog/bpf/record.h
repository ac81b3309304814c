/* Write records into the ring of this CPU. */
#ifndef SOJOURN_TCPLOG_RECORD_H
#define SOJOURN_TCPLOG_RECORD_H

#define NO_PACKET (~0ULL)

/* A packet at its entry into the programs. */
struct seen {
	__u64 packet; /* its number in its direction of the flow */
	__u32 segments;
	__u32 slot;
};

#define TRIES 8 /* a try fails only if another program has taken the slot meanwhile */

/* Take the next slot of this CPU's ring; NULL: the ring is full. Programs interrupt each other, so the position is
 * atomic. */
static __always_inline struct slot *take_slot(struct totals *totals, __u64 *position)
{
	__u32 cpu = bpf_get_smp_processor_id(), index;
	struct reader *reader = bpf_map_lookup_elem(&readers, &cpu);

	if (!reader)
		return NULL;
	for (int i = 0; i < TRIES; i++) {
		*position = *(volatile __u64 *)&totals->position;
		if (is_full(*position, *(volatile __u64 *)&reader->position, ring_slots))
			return NULL;
		if (__sync_val_compare_and_swap(&totals->position, *position, *position + 1) != *position)
			continue;
		index = cpu * ring_slots + ((__u32)*position & (ring_slots - 1));
		return bpf_map_lookup_elem(&rings, &index);
	}
	return NULL;
}

/* Publish a record and all that was written before. A locked instruction would wait for the record's cache lines, which
 * this CPU has not received yet; so a plain store is used where stores stay in order, and an atomic exchange elsewhere. */
static __always_inline void hand_over(struct slot *slot, __u64 position)
{
#ifdef STORES_IN_ORDER
	asm volatile("" : : : "memory");
	*(volatile __u64 *)&slot->commit = position + 1;
#else
	__sync_lock_test_and_set(&slot->commit, position + 1);
#endif
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

/* Log the private state of the congestion control. */
static __noinline int log_private(struct bpf_sock *sk, __u32 slot, __u64 number, __u64 now)
{
	struct flow *flow = bpf_map_lookup_elem(&flows, &slot);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	struct totals *totals = totals_here();
	struct private_state *private;
	__u64 position = 0, private_number;
	struct slot *taken;

	if (!flow || !tp || !totals)
		return 0;
	taken = take_slot(totals, &position);
	if (!taken) {
		__sync_fetch_and_add(&totals->number, 1);
		__sync_fetch_and_add(&totals->privates_full, 1);
		return 0;
	}
	private_number = __sync_fetch_and_add(&totals->number, 1);
	__sync_fetch_and_add(&totals->privates, 1);
	private = &taken->private;
	private->kind = KIND_PRIVATE;
	__builtin_memset(private->reserved, 0, sizeof(private->reserved));
	private->slot = slot;
	private->number = private_number;
	private->time_ns = now;
	private->cookie = flow->cookie;
	private->sample = number;
	name_algorithm(private->algorithm, tp);
	if (bpf_probe_read_kernel(private->bytes, PRIVATE_BYTES, tp->inet_conn.icsk_ca_priv))
		__builtin_memset(private->bytes, 0, PRIVATE_BYTES);
	__builtin_memcpy(flow->algorithm, private->algorithm, NAME_BYTES);
	hand_over(taken, position);
	return 0;
}

/* The digest of the chosen fields now. */
static __always_inline __u64 digest_of(struct tcp_sock *tp, __u64 changes)
{
	struct watched watched;

	take_watched(&watched, tp);
	return digest(&watched, changes);
}

/* The time of this packet and of the flow's last logged one, to undo the latter's update. */
struct turn {
	__u64 now;
	__u64 last;
};

/* Undo take_turn() where the packet was not logged, so that the next packet is logged instead. */
static __always_inline void give_back(const struct options *asked, struct flow *flow, const struct turn *turn)
{
	if (asked->min_interval_ns)
		__sync_val_compare_and_swap(&flow->logged_ns, turn->now, turn->last);
	if (asked->changes)
		flow->changes = 0;
}

/* Whether a packet is due by minimum interval and by changes; else its disposition. Two CPUs may process packets of the
 * flow at once: only one of them succeeds. */
static __always_inline __u32 take_turn(const struct options *asked, struct flow *flow, struct tcp_sock *tp, struct turn *turn)
{
	__u64 changes = 0;

	if (asked->changes) {
		changes = digest_of(tp, asked->changes);
		if (changes == flow->changes)
			return DISPOSITION_UNCHANGED;
	}
	if (asked->min_interval_ns) {
		turn->last = flow->logged_ns;
		if (is_early(turn->now, turn->last, asked->min_interval_ns) ||
		    __sync_val_compare_and_swap(&flow->logged_ns, turn->last, turn->now) != turn->last)
			return DISPOSITION_EARLY;
	}
	/* Exchanged last: an early packet must not consume the change. */
	if (asked->changes && __sync_lock_test_and_set(&flow->changes, changes) == changes) {
		if (asked->min_interval_ns)
			__sync_val_compare_and_swap(&flow->logged_ns, turn->now, turn->last);
		return DISPOSITION_UNCHANGED;
	}
	return DISPOSITION_LOGGED;
}

/* Count the disposition of a packet of a flow; return how many packets had it before. */
static __always_inline __u64 count_disposition(struct counts *counts, __u32 disposition, const struct seen *seen)
{
	if (seen->segments > 1)
		__sync_fetch_and_add(&counts->segments_of_dispositions[disposition], seen->segments - 1);
	return __sync_fetch_and_add(&counts->dispositions[disposition], 1);
}

/* Log and count a packet if it is due. Otherwise return its disposition, which the caller counts. */
static __always_inline __u32 log_packet(struct __sk_buff *skb, struct bpf_sock *sk, const struct options *asked,
					struct flow *flow, struct counts *counts, struct totals *totals, __u32 way,
					const struct seen *seen)
{
	struct bpf_tcp_sock *shown = bpf_tcp_sock(sk);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	__u64 position = 0, number, logged;
	struct headers headers = {};
	struct sample *sample;
	struct slot *taken;
	struct turn turn = {};
	__u32 disposition;

	if (!tp || !shown || !read_headers(&headers, skb))
		return DISPOSITION_UNPARSED;
	turn.now = time_now();
	disposition = take_turn(asked, flow, tp, &turn);
	if (disposition != DISPOSITION_LOGGED)
		return disposition;
	taken = take_slot(totals, &position);
	number = __sync_fetch_and_add(&totals->number, 1);
	if (!taken) {
		give_back(asked, flow, &turn);
		return DISPOSITION_FULL;
	}
	logged = count_disposition(counts, DISPOSITION_LOGGED, seen);
	counts->last_ns = turn.now;
	sample = &taken->sample;
	name_sample(sample, way, 0, seen->slot, number, flow->cookie);
	sample->time_ns = turn.now;
	sample->packet = seen->packet;
	sample->seq = headers.seq;
	sample->ack = headers.ack;
	sample->tcp_flags = headers.tcp_flags;
	sample->window = headers.window;
	sample->packet_bytes = headers.packet_bytes;
	sample->payload_bytes = headers.payload_bytes;
	sample->segments = seen->segments;
	sample->ip_id = headers.ip_id;
	*(__u64 *)&sample->tos = 0; /* clears the reserved bytes after it too */
	sample->tos = headers.tos;
	take_shown_state(&sample->state, tp, shown);
	hand_over(taken, position);
	if (asked->private_every && is_multiple(logged, 1, asked->private_every))
		log_private(sk, seen->slot, number, turn.now);
	return DISPOSITION_LOGGED;
}

#endif
