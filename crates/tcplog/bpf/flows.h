/* Look up the flow of a packet, create a flow, and decide whether it is wanted. */
#ifndef SOJOURN_TCPLOG_FLOWS_H
#define SOJOURN_TCPLOG_FLOWS_H

#define FAMILY_IPV4 2
#define FAMILY_IPV6 10

static __always_inline struct flow *flow_at(__u64 handle, __u32 *slot)
{
	struct flow *flow;

	*slot = (__u32)handle - 1;
	flow = bpf_map_lookup_elem(&flows, slot);
	/* The generation differs where user space has freed the slot, or where the handle is a listener's. */
	return flow && (__u32)flow->generation == handle >> 32 ? flow : NULL;
}

/* Set the addresses and ports. The packet's IP version is the family: IPv4 over an IPv6 socket is IPv4. */
static __always_inline void name_ends(struct flow *flow, struct __sk_buff *skb, struct bpf_sock *sk)
{
	__u8 *version = (void *)(long)skb->data;
	__u32 *local = (__u32 *)flow->local, *remote = (__u32 *)flow->remote;

	flow->local_port = sk->src_port;
	flow->remote_port = bpf_ntohs(sk->dst_port);
	if ((void *)(version + 1) <= (void *)(long)skb->data_end && *version >> 4 == 4) {
		flow->family = FAMILY_IPV4;
		local[0] = sk->src_ip4;
		remote[0] = sk->dst_ip4;
		return;
	}
	flow->family = FAMILY_IPV6;
	local[0] = sk->src_ip6[0];
	local[1] = sk->src_ip6[1];
	local[2] = sk->src_ip6[2];
	local[3] = sk->src_ip6[3];
	remote[0] = sk->dst_ip6[0];
	remote[1] = sk->dst_ip6[1];
	remote[2] = sk->dst_ip6[2];
	remote[3] = sk->dst_ip6[3];
}

static __always_inline void name_algorithm(char *name, struct tcp_sock *tp)
{
	const struct tcp_congestion_ops *ops = tp->inet_conn.icsk_ca_ops;

	if (!ops || bpf_probe_read_kernel(name, NAME_BYTES, ops->name))
		name[0] = 0;
	name[NAME_BYTES - 1] = 0;
}

/* Take a free slot and assign it to the socket. Return its handle, or 0 where no slot is free. */
static __noinline __u64 make_flow(struct __sk_buff *skb, struct bpf_sock *sk, struct place *place, __u64 old)
{
	struct tcp_sock *tp;
	struct flow *flow;
	__u32 slot;
	__u64 handle;

	if (!place)
		return 0;
	slot = *(volatile __u32 *)&handed_out;
	if (slot < flow_room)
		slot = __sync_fetch_and_add(&handed_out, 1);
	if (slot >= flow_room && bpf_map_pop_elem(&free_slots, &slot))
		return 0;
	flow = bpf_map_lookup_elem(&flows, &slot);
	if (!flow)
		return 0;
	name_ends(flow, skb, sk);
	flow->cookie = bpf_get_socket_cookie(skb);
	flow->cgroup = bpf_sk_cgroup_id(sk);
	flow->process = place->process;
	__builtin_memcpy(flow->command, place->command, NAME_BYTES);
	tp = bpf_skc_to_tcp_sock(sk);
	if (tp) {
		name_algorithm(flow->algorithm, tp);
		if (bpf_core_field_exists(struct net, net_cookie))
			flow->netns = tp->SOCK.__sk_common.skc_net.net->net_cookie;
	}
	handle = flow->generation << 32 | (slot + 1);
	if (__sync_val_compare_and_swap(&place->handle, old, handle) != old) {
		/* Another CPU has created the socket's flow meanwhile. */
		flow->cookie = 0;
		bpf_map_push_elem(&free_slots, &slot, 0);
		return place->handle;
	}
	flow->first_ns = time_now();
	return handle;
}

/* Return the flow of a socket, or NULL. */
static __always_inline struct flow *flow_of_socket(void *sk, __u32 *slot)
{
	struct place *place = bpf_sk_storage_get(&places, sk, 0, 0);
	__u64 handle = place ? place->handle : 0;

	return handle ? flow_at(handle, slot) : NULL;
}

/* Create the flow of a packet, if nobody has meanwhile. Where `*flow` stays NULL, the return value is the packet's
 * disposition. */
static __always_inline __u32 new_flow(struct __sk_buff *skb, struct bpf_sock *sk, __u32 *slot, struct flow **flow)
{
	struct place *place = bpf_sk_storage_get(&places, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	__u64 handle;

	if (!place)
		return DISPOSITION_NO_ROOM;
	handle = place->handle;
	if (handle) {
		*flow = flow_at(handle, slot);
		if (*flow)
			return DISPOSITION_LOGGED;
	}
	/* No event would end a flow of a closed socket, so none is created. */
	if (sk->state == TCP_STATE_CLOSE)
		return DISPOSITION_LATE;
	handle = make_flow(skb, sk, place, handle);
	if (!handle)
		return DISPOSITION_NO_ROOM;
	*flow = flow_at(handle, slot);
	return DISPOSITION_LATE;
}

/* Whether an address is in one of the requested prefixes. */
static __always_inline bool is_in_prefixes(__u16 family, const __u8 *address)
{
	struct prefix4 key4 = { .length = 32 };
	struct prefix6 key6 = { .length = 128 };

	if (family == FAMILY_IPV4) {
		__builtin_memcpy(key4.address, address, sizeof(key4.address));
		return bpf_map_lookup_elem(&prefixes4, &key4);
	}
	__builtin_memcpy(key6.address, address, sizeof(key6.address));
	return bpf_map_lookup_elem(&prefixes6, &key6);
}

static __always_inline bool is_algorithm(const char *asked, struct bpf_sock *sk, struct flow *flow)
{
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);

	if (tp)
		name_algorithm(flow->algorithm, tp);
	for (int i = 0; i < NAME_BYTES; i++) {
		if (asked[i] != flow->algorithm[i])
			return false;
		if (!asked[i])
			break;
	}
	return true;
}

/* Whether this flow matches all filters of the options. */
static __always_inline bool is_wanted(const struct options *asked, struct bpf_sock *sk, struct flow *flow)
{
	if (!ports_match(asked->port, asked->ports, flow->local_port, flow->remote_port))
		return false;
	if (!flow_is_chosen(flow->cookie, asked->one_in_flows))
		return false;
	if ((asked->netns && asked->netns != flow->netns) || (asked->process && asked->process != flow->process))
		return false;
	if (asked->cgroup && bpf_sk_ancestor_cgroup_id(sk, asked->cgroup_level) != asked->cgroup)
		return false;
	if (asked->prefixes && !is_in_prefixes(flow->family, flow->local) && !is_in_prefixes(flow->family, flow->remote))
		return false;
	return !asked->algorithm[0] || is_algorithm(asked->algorithm, sk, flow);
}

/* Store in the flow whether it is wanted; valid for this generation of the options. */
static __noinline int judge(struct bpf_sock *sk, __u32 slot)
{
	const struct options *asked = current_options();
	struct flow *flow = bpf_map_lookup_elem(&flows, &slot);
	struct place *place = bpf_sk_storage_get(&places, sk, 0, 0);

	if (!flow)
		return 0;
	if (place && place->process != flow->process) {
		/* User space has found the owner of a socket that existed before the programs. */
		flow->process = place->process;
		__builtin_memcpy(flow->command, place->command, NAME_BYTES);
	}
	flow->verdict = asked->generation << 1 | is_wanted(asked, sk, flow);
	return 0;
}

/* Store the time of a flow's last packet, once a jiffy and from the coarse clock, which costs less. */
static __always_inline void touch(struct counts *counts, const struct options *asked)
{
	__u64 jiffies = bpf_jiffies64(), now;

	if (jiffies == counts->jiffies)
		return;
	counts->jiffies = jiffies;
	now = bpf_ktime_get_coarse_ns() + asked->offset_ns;
	if (now > counts->last_ns)
		counts->last_ns = now;
}

#endif
