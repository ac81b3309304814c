/* The decisions of decide.h as functions for user space. */

#include <linux/types.h>

#include "decide.h"

__u32 sojourn_is_multiple(__u64 first, __u32 count, __u32 ppl)
{
	return is_multiple(first, count, ppl);
}

__u32 sojourn_flow_is_chosen(__u64 cookie, __u32 n)
{
	return flow_is_chosen(cookie, n);
}

__u32 sojourn_is_early(__u64 now, __u64 last, __u64 interval)
{
	return is_early(now, last, interval);
}

__u32 sojourn_is_full(__u64 position, __u64 read, __u32 slots)
{
	return is_full(position, read, slots);
}

__u32 sojourn_ports_match(const __u16 *ports, __u32 count, __u16 local, __u16 remote)
{
	return ports_match(ports, count, local, remote);
}

__u64 sojourn_digest(const struct watched *watched, __u64 changes)
{
	return digest(watched, changes);
}
