/* Read a control block into a sample. A field that this kernel lacks, or that was not requested, becomes 0;
 * `presence.h` reports which ones the kernel lacks. */
#ifndef SOJOURN_TCPLOG_STATE_H
#define SOJOURN_TCPLOG_STATE_H

#define CONN inet_conn
#define SOCK inet_conn.icsk_inet.sk

/* These macros use `tp` and `state` of the calling function. A test for a field costs time at every packet, so the
 * programs are compiled twice: once with tests only for fields that some kernel since 5.15 is known to lack, and once
 * (FALLBACK) with a test for each field. The loader uses the latter where the former does not load. */
#define EXISTING(from) (bpf_core_field_exists(tp->from) ? tp->from : 0)
#ifdef FALLBACK
#define FIELD_OF(from) EXISTING(from)
#define BITS(from) (bpf_core_field_exists(tp->from) ? BPF_CORE_READ_BITFIELD(tp, from) : 0)
#else
#define FIELD_OF(from) tp->from
#define BITS(from) BPF_CORE_READ_BITFIELD(tp, from)
#endif
/* `shown` is struct bpf_tcp_sock, where the program may use it: such loads need no exception handling and are faster. */
#define FROM struct state *state, struct tcp_sock *tp, struct bpf_tcp_sock *shown
#define FLAG_IF(bit, condition) ((condition) ? (bit) : 0)
#define FLAG_OF(bit, value) ((__u32)((value) & 1) * (bit)) /* a single bit: no branch */

/* The requested fields. NULL: all fields, loaded without a test. Otherwise the bits of these words, which are constants
 * to the verifier: it removes the branches that are never taken, and only the store of 0 remains for a field that is
 * not requested. */
struct asked_fields {
	__u64 low;
	__u64 high;
};
#define BIT_OF(name) (FIELD_##name < 64 ? asked->low : asked->high) & (1ULL << (FIELD_##name & 63))
#define IS_ASKED(name) (!asked || (BIT_OF(name)))

/* One macro for each way of reading a field (fields.h). */
#define READ_PLAIN(from) FIELD_OF(from)
#define READ_SHOWN(from) READ_SHOWN_AS(from, from)
#define READ_SHOWN_AS(from, name) (shown ? shown->name : FIELD_OF(from))
#define READ_EXISTING(from) EXISTING(from)
#define READ_BITS(from) BITS(from)
#define TAKE_PLAIN(to, ...) TAKE_AS(to, READ_PLAIN(__VA_ARGS__))
#define TAKE_SHOWN(to, ...) TAKE_AS(to, READ_SHOWN(__VA_ARGS__))
#define TAKE_SHOWN_AS(to, ...) TAKE_AS(to, READ_SHOWN_AS(__VA_ARGS__))
#define TAKE_EXISTING(to, ...) TAKE_AS(to, READ_EXISTING(__VA_ARGS__))
#define TAKE_BITS(to, ...) TAKE_AS(to, READ_BITS(__VA_ARGS__))
#define TAKE_MADE(to, from)
#define TAKE_AS(to, value) \
	if (IS_ASKED(to)) \
		state->to = value; \
	else \
		state->to = 0;
#define TAKE(type, name, how, ...) TAKE_##how(name, __VA_ARGS__)

typedef __u64 __attribute__((may_alias)) word;

static __always_inline void take_fields(FROM, const struct asked_fields *asked)
{
	((word *)(state + 1))[-1] = 0; /* clears the reserved bytes, which end this word; the fields in it are set below */
	STATE_FIELDS(TAKE, TAKE)
}

/* Compute the receive window that is advertised now. */
static __always_inline void make_window(struct state *state, struct tcp_sock *tp)
{
	__s32 left = tp->rcv_wup + tp->rcv_wnd - state->rcv_nxt;

	state->rcv_wnd = left > 0 ? left : 0;
}

/* Add the running time of the current limit of the sender (tcp_get_info_chrono_stats). */
static __always_inline void add_running_time(struct state *state, struct tcp_sock *tp)
{
	__u32 running = (__u32)bpf_jiffies64() - FIELD_OF(chrono_start);

	if (state->chrono == 1)
		state->chrono_busy_jiffies += running;
	else if (state->chrono == 2)
		state->chrono_rwnd_jiffies += running;
	else if (state->chrono == 3)
		state->chrono_sndbuf_jiffies += running;
}

static __always_inline void make_flags(FROM)
{
	/* include/net/tcp.h: TCP_ECN_OK, _QUEUE_CWR, _DEMAND_CWR, _SEEN, since 6.18 also TCP_ECN_MODE_ACCECN; TCP_NAGLE_OFF,
	 * TCP_NAGLE_CORK. */
	__u32 ecn = shown ? shown->ecn_flags : FIELD_OF(ecn_flags), nagle = BITS(nonagle), flags;

	flags = FLAG_OF(FLAG_TIMESTAMPS, BITS(rx_opt.tstamp_ok));
	flags |= FLAG_IF(FLAG_SACK, BITS(rx_opt.sack_ok));
	flags |= FLAG_OF(FLAG_WINDOW_SCALING, BITS(rx_opt.wscale_ok));
	flags |= FLAG_OF(FLAG_DSACK, BITS(rx_opt.dsack));
	flags |= FLAG_OF(FLAG_ECN, ecn | ecn >> 4);
	flags |= FLAG_OF(FLAG_ECN_QUEUE_CWR, ecn >> 1);
	flags |= FLAG_OF(FLAG_ECN_DEMAND_CWR, ecn >> 2);
	flags |= FLAG_OF(FLAG_ECN_SEEN, ecn >> 3);
	flags |= FLAG_OF(FLAG_NAGLE_OFF, nagle);
	flags |= FLAG_OF(FLAG_CORK, nagle >> 1);
	flags |= FLAG_OF(FLAG_CWND_LIMITED, BITS(is_cwnd_limited));
	flags |= FLAG_OF(FLAG_APP_LIMITED, BITS(rate_app_limited));
	flags |= FLAG_OF(FLAG_FRTO, BITS(frto));
	flags |= FLAG_OF(FLAG_SYN_DATA, BITS(syn_data));
	flags |= FLAG_OF(FLAG_FASTOPEN, BITS(syn_fastopen));
	flags |= FLAG_OF(FLAG_REPAIR, BITS(repair));
	flags |= FLAG_IF(FLAG_OUT_OF_ORDER, FIELD_OF(out_of_order_queue.rb_node));
	flags |= FLAG_IF(FLAG_UNDO, FIELD_OF(undo_marker));
	flags |= FLAG_IF(FLAG_TLP, FIELD_OF(tlp_high_seq));
	flags |= FLAG_IF(FLAG_IN_USE, FIELD_OF(SOCK.sk_lock.owned));
	state->flags = flags;
}

static __always_inline void take_asked(FROM, const struct asked_fields *asked)
{
	take_fields(state, tp, shown, asked);
	if (IS_ASKED(rcv_wnd))
		make_window(state, tp);
	else
		state->rcv_wnd = 0;
	if (IS_ASKED(chrono_busy_jiffies) || IS_ASKED(chrono_rwnd_jiffies) || IS_ASKED(chrono_sndbuf_jiffies))
		add_running_time(state, tp);
	if (IS_ASKED(flags))
		make_flags(state, tp, shown);
	else
		state->flags = 0;
}

static __always_inline void take_all(FROM)
{
	struct asked_fields asked = { .low = wanted[0], .high = wanted[1] };

	if ((asked.low & asked.high) == ~0ULL)
		take_asked(state, tp, shown, NULL);
	else
		take_asked(state, tp, shown, &asked);
}

/* Not inlined, so that they have enough registers. */
static __noinline int take_state(struct state *state, struct tcp_sock *tp)
{
	if (state && tp)
		take_all(state, tp, NULL);
	return 0;
}

static __noinline int take_shown_state(FROM)
{
	if (state && tp && shown)
		take_all(state, tp, shown);
	return 0;
}

/* Read the fields of enum change, in its order. */
static __always_inline void take_watched(struct watched *watched, struct tcp_sock *tp)
{
	watched->fields[0] = tp->snd_cwnd;
	watched->fields[1] = tp->snd_ssthresh;
	watched->fields[2] = BITS(CONN.icsk_ca_state);
	watched->fields[3] = tp->SOCK.__sk_common.skc_state;
	watched->fields[4] = bpf_core_field_exists(tp->rack.rtt_us) ? tp->rack.rtt_us : tp->srtt_us;
	watched->fields[5] = tp->CONN.icsk_rto;
	watched->fields[6] = tp->snd_wnd;
	watched->fields[7] = tp->rcv_wnd;
	watched->fields[8] = tp->total_retrans;
	watched->fields[9] = tp->mss_cache;
	watched->fields[10] = tp->SOCK.sk_pacing_rate;
}

#endif
