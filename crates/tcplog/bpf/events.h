/* Programs for events that are not packets: a process creates a socket, TCP changes its state, a flow ends. */
#ifndef SOJOURN_TCPLOG_EVENTS_H
#define SOJOURN_TCPLOG_EVENTS_H

/* Log a sample of a socket's state at an event of TCP. */
static __always_inline void log_event(void *sk, __u8 point, __u16 detail, __u32 seq, __u32 payload)
{
	const struct options *asked = current_options();
	struct sample *sample;
	struct totals *totals;
	struct tcp_sock *tp;
	struct slot *taken;
	struct flow *flow;
	__u64 position = 0, number, now;
	__u32 slot;

	if (!asked->enabled || !(asked->points & (1U << point)))
		return;
	flow = flow_of_socket(sk, &slot);
	totals = totals_here();
	if (!flow || !totals || !(flow->verdict & 1))
		return;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return;
	taken = take_slot(totals, &position);
	if (!taken) {
		__sync_fetch_and_add(&totals->number, 1);
		__sync_fetch_and_add(&totals->events_full, 1);
		return;
	}
	sample = &taken->sample;
	number = __sync_fetch_and_add(&totals->number, 1);
	__sync_fetch_and_add(&totals->events, 1);
	now = time_now();
	name_sample(sample, point, detail, slot, number, flow->cookie);
	sample->time_ns = now;
	sample->packet = NO_PACKET;
	sample->seq = seq;
	sample->ack = 0;
	sample->tcp_flags = 0;
	sample->window = 0;
	sample->packet_bytes = 0;
	sample->payload_bytes = payload;
	sample->segments = 0;
	sample->ip_id = 0;
	*(__u64 *)&sample->tos = 0; /* clears the reserved bytes after it too */
	take_state(&sample->state, tp);
	hand_over(taken, position);
}

/* The process ID of the current process in user space's PID namespace; 0: unknown. */
static __always_inline __u32 process_here(void)
{
	struct bpf_pidns_info info;

	if (numbering.is_first)
		return bpf_get_current_pid_tgid() >> 32;
	if (!numbering.can_ask ||
	    bpf_get_ns_current_pid_tgid(numbering.device, numbering.inode, &info, sizeof(info)))
		return 0;
	return info.tgid;
}

/* Store the process that creates a TCP socket. */
SEC("cgroup/sock_create")
int made(struct bpf_sock *sk)
{
	struct place *place;

	if (sk->type != SOCKET_STREAM || sk->protocol != PROTOCOL_TCP)
		return PASS;
	place = bpf_sk_storage_get(&places, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!place)
		return PASS;
	place->process = process_here();
	bpf_get_current_comm(place->command, sizeof(place->command));
	return PASS;
}

SEC("tp_btf/inet_sock_set_state")
int state_set(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	int old = ctx[1], new = ctx[2];
	struct place *place;
	struct flow *flow;
	__u32 slot;

	if (sk->sk_protocol != PROTOCOL_TCP)
		return 0;
	log_event(sk, POINT_STATE, (old & 255) << 8 | (new & 255), 0, 0);
	if (new == TCP_STATE_CLOSE) {
		flow = flow_of_socket(sk, &slot);
		if (flow)
			flow->ended_ns = time_now();
	}
	if (old == TCP_STATE_CLOSE || old == TCP_STATE_LISTEN) {
		/* The socket is reused, or it is a listener's child: the stored flow has ended, or is the listener's. */
		place = bpf_sk_storage_get(&places, sk, 0, 0);
		if (place)
			place->handle = 0;
	}
	return 0;
}

SEC("tp_btf/tcp_destroy_sock")
int destroyed(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct tcp_sock *tp;
	struct flow *flow;
	__u32 slot;

	log_event(sk, POINT_DESTROY, 0, 0, 0);
	flow = flow_of_socket(sk, &slot);
	if (!flow)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp)
		name_algorithm(flow->algorithm, tp);
	flow->ended_ns = time_now();
	return 0;
}

SEC("tp_btf/tcp_retransmit_skb")
int retransmitted(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct sk_buff *skb = (void *)ctx[1];
	struct tcp_skb_cb control = {};

	bpf_probe_read_kernel(&control, sizeof(control), skb->cb);
	log_event(sk, POINT_RETRANSMIT, 0, control.seq, control.end_seq - control.seq);
	return 0;
}

SEC("tp_btf/tcp_cong_state_set")
int recovery_set(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (tp)
		log_event(sk, POINT_RECOVERY, BITS(CONN.icsk_ca_state) << 8 | (ctx[1] & 255), 0, 0);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int reset_sent(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];

	/* A reset may be sent without a socket. */
	if (sk)
		log_event(sk, POINT_RESET_OUT, 0, 0, 0);
	return 0;
}

SEC("tp_btf/tcp_receive_reset")
int reset_received(__u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];

	log_event(sk, POINT_RESET_IN, 0, 0, 0);
	return 0;
}

/* Request a callback for every RTT sample of a connection, and log each. */
SEC("sockops")
int rtt_taken(struct bpf_sock_ops *ops)
{
	struct bpf_sock *sk = ops->sk;

	if (ops->op == BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB || ops->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		bpf_sock_ops_cb_flags_set(ops, ops->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_RTT_CB_FLAG);
	else if (ops->op == BPF_SOCK_OPS_RTT_CB && sk)
		log_event(sk, POINT_RTT, 0, 0, 0);
	return PASS;
}

#endif
