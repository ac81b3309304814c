/* Which fields of a sample this kernel has: by the very relocations that the programs were loaded with. */
#ifndef SOJOURN_TCPLOG_PRESENCE_H
#define SOJOURN_TCPLOG_PRESENCE_H

/* Every field of struct state, in its order, with where it comes from. */
#define STATE_FIELDS(FIELD) \
	FIELD(bytes_sent, bytes_sent) \
	FIELD(bytes_acked, bytes_acked) \
	FIELD(bytes_received, bytes_received) \
	FIELD(bytes_retrans, bytes_retrans) \
	FIELD(pacing_rate, SOCK.sk_pacing_rate) \
	FIELD(flags, ecn_flags) \
	FIELD(snd_cwnd, snd_cwnd) \
	FIELD(snd_ssthresh, snd_ssthresh) \
	FIELD(snd_cwnd_cnt, snd_cwnd_cnt) \
	FIELD(prior_cwnd, prior_cwnd) \
	FIELD(mss_cache, mss_cache) \
	FIELD(snd_wnd, snd_wnd) \
	FIELD(rcv_wnd, rcv_wnd) \
	FIELD(rcv_ssthresh, rcv_ssthresh) \
	FIELD(snd_una, snd_una) \
	FIELD(snd_nxt, snd_nxt) \
	FIELD(write_seq, write_seq) \
	FIELD(rcv_nxt, rcv_nxt) \
	FIELD(copied_seq, copied_seq) \
	FIELD(sndbuf, SOCK.sk_sndbuf) \
	FIELD(wmem_queued, SOCK.sk_wmem_queued) \
	FIELD(rcvbuf, SOCK.sk_rcvbuf) \
	FIELD(rmem_alloc, SOCK.sk_backlog.rmem_alloc.counter) \
	FIELD(packets_out, packets_out) \
	FIELD(sacked_out, sacked_out) \
	FIELD(lost_out, lost_out) \
	FIELD(retrans_out, retrans_out) \
	FIELD(total_retrans, total_retrans) \
	FIELD(lost, lost) \
	FIELD(delivered, delivered) \
	FIELD(delivered_ce, delivered_ce) \
	FIELD(received_ce, received_ce) \
	FIELD(rate_delivered, rate_delivered) \
	FIELD(rate_interval_us, rate_interval_us) \
	FIELD(srtt_us8, srtt_us) \
	FIELD(mdev_us4, mdev_us) \
	FIELD(rttvar_us4, rttvar_us) \
	FIELD(rtt_min_us, rtt_min.s[0].v) \
	FIELD(rtt_last_us, rack.rtt_us) \
	FIELD(rcv_rtt_us8, rcv_rtt_est.rtt_us) \
	FIELD(rcv_space, rcvq_space.space) \
	FIELD(rto_jiffies, CONN.icsk_rto) \
	FIELD(chrono_start_jiffies, chrono_start) \
	FIELD(chrono_jiffies, chrono_stat) \
	FIELD(segs_in, segs_in) \
	FIELD(segs_out, segs_out) \
	FIELD(data_segs_in, data_segs_in) \
	FIELD(data_segs_out, data_segs_out) \
	FIELD(reordering, reordering) \
	FIELD(reord_seen, reord_seen) \
	FIELD(dsack_dups, dsack_dups) \
	FIELD(rcv_ooopack, rcv_ooopack) \
	FIELD(advmss, advmss) \
	FIELD(total_rto, total_rto) \
	FIELD(state, SOCK.__sk_common.skc_state) \
	FIELD(ca_state, CONN.icsk_ca_state) \
	FIELD(snd_wscale, rx_opt.snd_wscale) \
	FIELD(rcv_wscale, rx_opt.rcv_wscale) \
	FIELD(backoff, CONN.icsk_backoff) \
	FIELD(retransmits, CONN.icsk_retransmits) \
	FIELD(probes_out, CONN.icsk_probes_out) \
	FIELD(num_sacks, rx_opt.num_sacks) \
	FIELD(chrono, chrono_type)

#define NUMBERED(field, from) FIELD_##field,

/* The place of a field's bit. */
enum field {
	STATE_FIELDS(NUMBERED)
	FIELDS
};

/* What user space wants to know of this kernel. */
struct facts {
	__u64 offset_ns; /* from CLOCK_MONOTONIC to the clock of the samples */
	__u32 has_tai;
	__u32 types; /* of no use but that the object then has the types of what only goes through rings */
	__u8 present[FIELDS];
};

struct facts facts SEC(".data.facts");

#define LOOKED_FOR(field, from) facts.present[FIELD_##field] = bpf_core_field_exists(((struct tcp_sock *)0)->from);

/* Run by user space. */
SEC("syscall")
int find_facts(void *ctx)
{
	(void)ctx;
	STATE_FIELDS(LOOKED_FOR)
	facts.has_tai = bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_ktime_get_tai_ns);
	/* Two looks at one clock are apart too. */
	facts.offset_ns = facts.has_tai ? time_now() - bpf_ktime_get_ns() : 0;
	facts.types = bpf_core_type_id_local(struct sample) + bpf_core_type_id_local(struct private_state) +
		      bpf_core_type_id_local(enum field);
	return 0;
}

#endif
