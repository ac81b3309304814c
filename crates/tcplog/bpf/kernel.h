/* The members of kernel structures that the programs read, and no others. The loader relocates each access to the
 * member's offset in the running kernel (CO-RE), and reports whether the kernel has it.
 */
#ifndef SOJOURN_TCPLOG_KERNEL_H
#define SOJOURN_TCPLOG_KERNEL_H

/* The helper that reads CLOCK_TAI. The build machine's headers may be older than the running kernel (Ubuntu 22.04 has
 * those of 5.15), so the helper is declared here. The loader ignores the suffix after "___".
 */
enum bpf_func_id___sojourn {
	BPF_FUNC_ktime_get_tai_ns___sojourn = 208,
};
#define HAS_TAI bpf_core_enum_value_exists(enum bpf_func_id___sojourn, BPF_FUNC_ktime_get_tai_ns___sojourn)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct net {
	__u64 net_cookie;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct sock_common {
	possible_net_t skc_net;
	volatile unsigned char skc_state;
	struct {
		__s64 counter;
	} skc_cookie;
};

typedef struct {
	int owned;
} socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	int sk_rcvbuf;
	int sk_sndbuf;
	int sk_wmem_queued;
	unsigned long sk_pacing_rate;
	__u16 sk_type;
	__u16 sk_protocol;
	socket_lock_t sk_lock;
	struct {
		struct {
			int counter;
		} rmem_alloc;
	} sk_backlog;
};

struct inet_sock {
	struct sock sk;
};

struct tcp_congestion_ops {
	char name[16];
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	__u32 icsk_rto;
	const struct tcp_congestion_ops *icsk_ca_ops;
	__u8 icsk_ca_state : 5;
	__u8 icsk_retransmits;
	__u8 icsk_backoff;
	__u8 icsk_probes_out;
	__u64 icsk_ca_priv[13];
};

struct minmax_sample {
	__u32 t;
	__u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct rb_node;

struct rb_root {
	struct rb_node *rb_node;
};

struct tcp_options_received {
	__u16 tstamp_ok : 1, dsack : 1, wscale_ok : 1, sack_ok : 3, snd_wscale : 4, rcv_wscale : 4;
	__u8 num_sacks;
};

struct tcp_rack {
	__u32 rtt_us;
};

/* The lines of fields.h declare those fields of a sample that are members of struct tcp_sock. */
#define OWN_MEMBER(type, name, how, member) type member;
#define NO_MEMBER(...)

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	STATE_FIELDS(OWN_MEMBER, NO_MEMBER)
	/* Further members that are read. */
	__u32 rcv_wup;
	struct minmax rtt_min;
	struct tcp_rack rack;
	struct {
		__u32 rtt_us;
	} rcv_rtt_est;
	struct {
		__u32 space;
	} rcvq_space;
	__u32 chrono_start;
	__u32 chrono_stat[3];
	__u32 undo_marker;
	__u32 tlp_high_seq;
	struct rb_root out_of_order_queue;
	__u8 ecn_flags;
	__u8 nonagle : 4;
	__u8 rate_app_limited : 1;
	__u8 is_cwnd_limited : 1;
	__u8 frto : 1;
	__u8 syn_data : 1;
	__u8 syn_fastopen : 1;
	__u8 repair : 1;
	struct tcp_options_received rx_opt;
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
};

struct sk_buff {
	char cb[48];
};

#pragma clang attribute pop

#endif
