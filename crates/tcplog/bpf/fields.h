/* The fields of a sample's state, one line for each. Everything else is generated from these lines: `struct state` here
 * and `State` in Rust (build.rs runs the preprocessor over rust.h), the members of the kernel's `struct tcp_sock`
 * (kernel.h), how a field is read (state.h), and whether this kernel has it (presence.h). A column of
 * `crates/record/src/tables/tcp.rs` names its source field.
 *
 * A line holds type, name, how the field is read, and its path in `struct tcp_sock`. TCP: the field is a member of that
 * structure, of the same type, and this line declares it. PATH: any other field; kernel.h declares the structures on
 * its path. How a field is read:
 *
 *   PLAIN     loaded directly
 *   SHOWN     from struct bpf_tcp_sock where the program may use it, else directly
 *   SHOWN_AS  the same, where struct bpf_tcp_sock has another name for it (the last argument)
 *   EXISTING  directly, if the kernel has it: some kernel since 5.15 lacks it
 *   BITS      as a bit field
 *   MADE      computed by code of its own in state.h
 *
 * A field that this kernel lacks is 0 in a sample. Larger types come first, so that the compiler adds no padding; a
 * hole is a compile error.
 */
#ifndef SOJOURN_TCPLOG_FIELDS_H
#define SOJOURN_TCPLOG_FIELDS_H

#define STATE_FIELDS(TCP, PATH) \
	TCP(__u64, bytes_sent, PLAIN, bytes_sent) \
	TCP(__u64, bytes_acked, SHOWN, bytes_acked) \
	TCP(__u64, bytes_received, SHOWN, bytes_received) \
	TCP(__u64, bytes_retrans, PLAIN, bytes_retrans) \
	PATH(__u64, pacing_rate, PLAIN, SOCK.sk_pacing_rate) /* bytes/s */ \
	PATH(__u32, flags, MADE, ecn_flags) /* enum flag */ \
	TCP(__u32, snd_cwnd, SHOWN, snd_cwnd) /* segments */ \
	TCP(__u32, snd_ssthresh, SHOWN, snd_ssthresh) /* segments; 0x7fffffff: infinite */ \
	TCP(__u32, snd_cwnd_cnt, PLAIN, snd_cwnd_cnt) \
	TCP(__u32, prior_cwnd, PLAIN, prior_cwnd) \
	TCP(__u32, mss_cache, SHOWN, mss_cache) \
	TCP(__u32, snd_wnd, PLAIN, snd_wnd) \
	TCP(__u32, rcv_wnd, MADE, rcv_wnd) /* advertised now: max(rcv_wup + rcv_wnd - rcv_nxt, 0) */ \
	TCP(__u32, rcv_ssthresh, PLAIN, rcv_ssthresh) \
	TCP(__u32, snd_una, SHOWN, snd_una) \
	TCP(__u32, snd_nxt, SHOWN, snd_nxt) \
	TCP(__u32, write_seq, PLAIN, write_seq) \
	TCP(__u32, rcv_nxt, SHOWN, rcv_nxt) \
	TCP(__u32, copied_seq, PLAIN, copied_seq) \
	PATH(__u32, sndbuf, PLAIN, SOCK.sk_sndbuf) \
	PATH(__u32, wmem_queued, PLAIN, SOCK.sk_wmem_queued) \
	PATH(__u32, rcvbuf, PLAIN, SOCK.sk_rcvbuf) \
	PATH(__u32, rmem_alloc, PLAIN, SOCK.sk_backlog.rmem_alloc.counter) \
	TCP(__u32, packets_out, SHOWN, packets_out) \
	TCP(__u32, sacked_out, SHOWN, sacked_out) \
	TCP(__u32, lost_out, SHOWN, lost_out) \
	TCP(__u32, retrans_out, SHOWN, retrans_out) \
	TCP(__u32, total_retrans, SHOWN, total_retrans) \
	TCP(__u32, lost, PLAIN, lost) \
	TCP(__u32, delivered, SHOWN, delivered) \
	TCP(__u32, delivered_ce, SHOWN, delivered_ce) \
	TCP(__u32, received_ce, EXISTING, received_ce) \
	TCP(__u32, rate_delivered, SHOWN, rate_delivered) \
	TCP(__u32, rate_interval_us, SHOWN, rate_interval_us) \
	TCP(__u32, srtt_us8, SHOWN, srtt_us) /* eighths of µs */ \
	TCP(__u32, mdev_us4, PLAIN, mdev_us) /* quarters of µs */ \
	TCP(__u32, rttvar_us4, PLAIN, rttvar_us) \
	PATH(__u32, rtt_min_us, SHOWN_AS, rtt_min.s[0].v, rtt_min) \
	PATH(__u32, rtt_last_us, PLAIN, rack.rtt_us) \
	PATH(__u32, rcv_rtt_us8, PLAIN, rcv_rtt_est.rtt_us) \
	PATH(__u32, rcv_space, PLAIN, rcvq_space.space) \
	PATH(__u32, rto_jiffies, PLAIN, CONN.icsk_rto) \
	PATH(__u32, chrono_busy_jiffies, PLAIN, chrono_stat[0]) \
	PATH(__u32, chrono_rwnd_jiffies, PLAIN, chrono_stat[1]) \
	PATH(__u32, chrono_sndbuf_jiffies, PLAIN, chrono_stat[2]) \
	TCP(__u32, segs_in, SHOWN, segs_in) \
	TCP(__u32, segs_out, SHOWN, segs_out) \
	TCP(__u32, data_segs_in, SHOWN, data_segs_in) \
	TCP(__u32, data_segs_out, SHOWN, data_segs_out) \
	TCP(__u32, reordering, PLAIN, reordering) \
	TCP(__u32, reord_seen, PLAIN, reord_seen) \
	TCP(__u32, dsack_dups, SHOWN, dsack_dups) \
	TCP(__u32, rcv_ooopack, EXISTING, rcv_ooopack) \
	TCP(__u16, advmss, PLAIN, advmss) \
	TCP(__u16, total_rto, EXISTING, total_rto) \
	PATH(__u8, state, PLAIN, SOCK.__sk_common.skc_state) /* TCP_ESTABLISHED = 1, … */ \
	PATH(__u8, ca_state, BITS, CONN.icsk_ca_state) \
	PATH(__u8, snd_wscale, BITS, rx_opt.snd_wscale) \
	PATH(__u8, rcv_wscale, BITS, rx_opt.rcv_wscale) \
	PATH(__u8, backoff, PLAIN, CONN.icsk_backoff) \
	PATH(__u8, retransmits, SHOWN_AS, CONN.icsk_retransmits, icsk_retransmits) \
	PATH(__u8, probes_out, PLAIN, CONN.icsk_probes_out) \
	PATH(__u8, num_sacks, PLAIN, rx_opt.num_sacks) \
	TCP(__u8, chrono, BITS, chrono_type) /* 0 idle, 1 busy, 2 limited by the receive window, 3 by the send buffer */

/* The size of the padding that fills the last word of the structure; 0 in a sample. */
#define RESERVED(FIELD_SIZE) (8 - (8 STATE_FIELDS(FIELD_SIZE, FIELD_SIZE)) % 8) % 8

#endif
