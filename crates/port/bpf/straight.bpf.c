/* Frames that nobody wants to see go from one interface to another: a bridge within the kernel, with an account of its own. One
 * program hangs where frames come in, another where they leave by the other interface: what came in and got no further is lost,
 * for it is too long for that interface. What that interface drops, it counts itself. A frame here may stand for several (GSO):
 * each is counted.
 */

#include "stream.h"

#include <linux/pkt_cls.h>

/* crates/port/src/bridge/straight.rs has the same order. */
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

/* Where frames come in. */
SEC("tc")
int pass_on(struct __sk_buff *skb)
{
	__u32 longest = 0;

	count(skb);
	/* Of a super-frame each segment is looked at. A tag that stands in the frame is not of its length. */
	if (skb->gso_segs ? bpf_check_mtu(skb, asked.to, &longest, 0, BPF_MTU_CHK_SEGS) > 0
			  : bpf_check_mtu(skb, asked.to, &longest, -(int)sizeof(struct tag), 0) > 0)
		return TC_ACT_SHOT;
	return bpf_redirect(asked.to, 0);
}

/* Where they leave: what this host sends there itself came in nowhere. */
SEC("tc")
int passed_on(struct __sk_buff *skb)
{
	if (skb->ingress_ifindex == asked.from)
		count(skb);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
