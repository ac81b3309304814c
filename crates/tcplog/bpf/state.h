/* Reads a control block into a sample. A field that this kernel lacks becomes 0; `presence.h` tells which those are. */
#ifndef SOJOURN_TCPLOG_STATE_H
#define SOJOURN_TCPLOG_STATE_H

#define CONN inet_conn
#define SOCK inet_conn.icsk_inet.sk

/* These expect `tp` and `state` where they are used. Each test for a field costs at every packet, so the programs are compiled
 * twice: once with tests only for what some kernel since 5.15 is known to lack, and once, CAREFUL, with a test for each, for
 * the loader to fall back on. */
#define EXISTING(from) (bpf_core_field_exists(tp->from) ? tp->from : 0)
#ifdef CAREFUL
#define FIELD_OF(from) EXISTING(from)
#define BITS(from) (bpf_core_field_exists(tp->from) ? BPF_CORE_READ_BITFIELD(tp, from) : 0)
#else
#define FIELD_OF(from) tp->from
#define BITS(from) BPF_CORE_READ_BITFIELD(tp, from)
#endif
#define TAKE(to, from) state->to = FIELD_OF(from)
#define TAKE_EXISTING(to, from) state->to = EXISTING(from)
/* `shown` is what the kernel shows of a control block without its types (bpf_tcp_sock), where the program may have it: quicker,
 * because such loads need no guard. */
#define FROM struct state *state, struct tcp_sock *tp, struct bpf_tcp_sock *shown
#define TAKE_SHOWN(to, from) state->to = shown ? shown->from : FIELD_OF(from)
#define FLAG_IF(bit, condition) ((condition) ? (bit) : 0)
#define FLAG_OF(bit, value) ((__u32)((value) & 1) * (bit)) /* a bit by itself: no branch */

static __always_inline void take_windows(FROM)
{
	__s32 left;

	TAKE_SHOWN(snd_cwnd, snd_cwnd);
	TAKE_SHOWN(snd_ssthresh, snd_ssthresh);
	TAKE(snd_cwnd_cnt, snd_cwnd_cnt);
	TAKE(prior_cwnd, prior_cwnd);
	TAKE_SHOWN(mss_cache, mss_cache);
	TAKE(advmss, advmss);
	TAKE(snd_wnd, snd_wnd);
	TAKE(rcv_ssthresh, rcv_ssthresh);
	TAKE_SHOWN(snd_una, snd_una);
	TAKE_SHOWN(snd_nxt, snd_nxt);
	TAKE(write_seq, write_seq);
	TAKE_SHOWN(rcv_nxt, rcv_nxt);
	TAKE(copied_seq, copied_seq);
	left = tp->rcv_wup + tp->rcv_wnd - state->rcv_nxt;
	state->rcv_wnd = left > 0 ? left : 0;
}

static __always_inline void take_buffers(struct state *state, struct tcp_sock *tp)
{
	TAKE(sndbuf, SOCK.sk_sndbuf);
	TAKE(wmem_queued, SOCK.sk_wmem_queued);
	TAKE(rcvbuf, SOCK.sk_rcvbuf);
	TAKE(rmem_alloc, SOCK.sk_backlog.rmem_alloc.counter);
	TAKE(pacing_rate, SOCK.sk_pacing_rate);
	TAKE(rcv_space, rcvq_space.space);
}

static __always_inline void take_recovery(FROM)
{
	TAKE_SHOWN(packets_out, packets_out);
	TAKE_SHOWN(sacked_out, sacked_out);
	TAKE_SHOWN(lost_out, lost_out);
	TAKE_SHOWN(retrans_out, retrans_out);
	TAKE_SHOWN(total_retrans, total_retrans);
	TAKE(lost, lost);
	TAKE(reordering, reordering);
	TAKE(reord_seen, reord_seen);
	TAKE_SHOWN(dsack_dups, dsack_dups);
	TAKE_EXISTING(rcv_ooopack, rcv_ooopack);
	TAKE_EXISTING(total_rto, total_rto);
	TAKE(backoff, CONN.icsk_backoff);
	state->retransmits = shown ? shown->icsk_retransmits : FIELD_OF(CONN.icsk_retransmits);
	TAKE(probes_out, CONN.icsk_probes_out);
	TAKE(num_sacks, rx_opt.num_sacks);
	state->ca_state = BITS(CONN.icsk_ca_state);
}

static __always_inline void take_round_trips(FROM)
{
	TAKE_SHOWN(srtt_us8, srtt_us);
	TAKE(mdev_us4, mdev_us);
	TAKE(rttvar_us4, rttvar_us);
	state->rtt_min_us = shown ? shown->rtt_min : FIELD_OF(rtt_min.s[0].v);
	TAKE(rtt_last_us, rack.rtt_us);
	TAKE(rcv_rtt_us8, rcv_rtt_est.rtt_us);
	TAKE(rto_jiffies, CONN.icsk_rto);
}

/* What limited the sender for how long, the running part too (tcp_get_info_chrono_stats). */
static __always_inline void take_chrono(struct state *state, struct tcp_sock *tp)
{
	__u32 running;

	TAKE(chrono_start_jiffies, chrono_start);
	TAKE(chrono_jiffies[0], chrono_stat[0]);
	TAKE(chrono_jiffies[1], chrono_stat[1]);
	TAKE(chrono_jiffies[2], chrono_stat[2]);
	/* It stands before what is reserved, which is to be 0 too. */
	*(__u64 *)&state->chrono = 0;
	state->chrono = BITS(chrono_type);
	running = (__u32)bpf_jiffies64() - state->chrono_start_jiffies;
	if (state->chrono == 1)
		state->chrono_jiffies[0] += running;
	else if (state->chrono == 2)
		state->chrono_jiffies[1] += running;
	else if (state->chrono == 3)
		state->chrono_jiffies[2] += running;
}

static __always_inline void take_rates(FROM)
{
	TAKE_SHOWN(delivered, delivered);
	TAKE_SHOWN(delivered_ce, delivered_ce);
	TAKE_EXISTING(received_ce, received_ce);
	TAKE_SHOWN(rate_delivered, rate_delivered);
	TAKE_SHOWN(rate_interval_us, rate_interval_us);
	take_chrono(state, tp);
}

static __always_inline void take_counters(FROM)
{
	TAKE(bytes_sent, bytes_sent);
	TAKE_SHOWN(bytes_acked, bytes_acked);
	TAKE_SHOWN(bytes_received, bytes_received);
	TAKE(bytes_retrans, bytes_retrans);
	TAKE_SHOWN(segs_in, segs_in);
	TAKE_SHOWN(segs_out, segs_out);
	TAKE_SHOWN(data_segs_in, data_segs_in);
	TAKE_SHOWN(data_segs_out, data_segs_out);
}

static __always_inline void take_flags(FROM)
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
	state->snd_wscale = BITS(rx_opt.snd_wscale);
	state->rcv_wscale = BITS(rx_opt.rcv_wscale);
}

static __always_inline void take_all(FROM)
{
	take_counters(state, tp, shown);
	take_windows(state, tp, shown);
	take_buffers(state, tp);
	take_recovery(state, tp, shown);
	take_round_trips(state, tp, shown);
	take_rates(state, tp, shown);
	take_flags(state, tp, shown);
	state->state = tp->SOCK.__sk_common.skc_state;
}

/* Functions by themselves, so that they have registers enough. */
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

/* What the chosen fields of enum change are, in its order; the others stay 0. */
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
