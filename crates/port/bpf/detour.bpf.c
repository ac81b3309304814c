/* Detours the frames of one interface over two others: its egress frames leave by the first, its ingress frames by the
 * second. Frames received on either continue where they left off. A mark identifies frames that have been over the
 * detour. All programs work on skbs: checksums, tags and super-frames are unchanged. */

#include "stream.h"

#include <linux/pkt_cls.h>

#define BEEN_THERE 0x534a4452 /* "SJDR" */

/* In the same order as in crates/port/src/bridge/detour.rs. */
const volatile struct {
	__u32 to;
	__u32 flags;
} asked = {};

/* Attached to egress and ingress of the interface. */
SEC("tc")
int leave(struct __sk_buff *skb)
{
	if (skb->mark == BEEN_THERE) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	return bpf_redirect(asked.to, 0);
}

/* Attached to ingress of the two others, where frames return. */
SEC("tc")
int come_back(struct __sk_buff *skb)
{
	skb->mark = BEEN_THERE;
	return bpf_redirect(asked.to, asked.flags);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
