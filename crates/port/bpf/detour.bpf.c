/* Frames of one interface take a way over others, and come back to where they were: what its host sends leaves by the first of
 * them, and what comes in by the second; what comes in by these goes on as if it had never been away. A mark tells who has been
 * there. All in the kernel's own packets: checksums, tags and super-frames go on as they came.
 */

#include "stream.h"

#include <linux/pkt_cls.h>

#define BEEN_THERE 0x534a4452 /* "SJDR" */

/* crates/port/src/bridge/detour.rs has the same order. */
const volatile struct {
	__u32 to;
	__u32 flags;
} asked = {};

/* At both ends of the interface. */
SEC("tc")
int leave(struct __sk_buff *skb)
{
	if (skb->mark == BEEN_THERE) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	return bpf_redirect(asked.to, 0);
}

/* Where they come back. */
SEC("tc")
int come_back(struct __sk_buff *skb)
{
	skb->mark = BEEN_THERE;
	return bpf_redirect(asked.to, asked.flags);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
