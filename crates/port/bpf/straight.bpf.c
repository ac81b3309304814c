/* Forwards frames from one interface to another, for a bridge that needs to see none, and counts them. One program is
 * attached to ingress, the other to egress of the other interface: a frame that is counted only at ingress is lost,
 * because it exceeds that interface's MTU. That interface counts its own drops. One skb may stand for several frames
 * (GSO); each is counted. */

#include "stream.h"

#include <linux/pkt_cls.h>

/* In the same order as in crates/port/src/bridge/straight.rs. */
const volatile struct {
	__u32 from;
	__u32 to;
} asked = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} frames SEC(".maps");

static __always_inline void count(struct __sk_buff *skb)
{
	__u32 zero = 0;
	__u64 *counted = bpf_map_lookup_elem(&frames, &zero);

	if (counted)
		__sync_fetch_and_add(counted, skb->gso_segs ? skb->gso_segs : 1);
}

/* Attached to ingress. */
SEC("tc")
int pass_on(struct __sk_buff *skb)
{
	__u32 longest = 0;

	count(skb);
	/* Checks each segment of a super-frame. The MTU does not include a tag that is in the frame. */
	if (skb->gso_segs ? bpf_check_mtu(skb, asked.to, &longest, 0, BPF_MTU_CHK_SEGS) > 0
			  : bpf_check_mtu(skb, asked.to, &longest, -(int)sizeof(struct tag), 0) > 0)
		return TC_ACT_SHOT;
	return bpf_redirect(asked.to, 0);
}

/* Attached to egress: does not count what this host itself sends there. */
SEC("tc")
int passed_on(struct __sk_buff *skb)
{
	if (skb->ingress_ifindex == asked.from)
		count(skb);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
