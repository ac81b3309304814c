/* Log TCP's own state at every packet: samples go into a ring for each CPU, and each packet is counted in exactly one
 * disposition.
 *
 * The programs see packets between IP and TCP (cgroup_skb); on ingress that is before TCP processes them. Other samples
 * are taken after TCP has acted, at tracepoints and at the RTT callback. Every packet program lets all packets pass.
 */

#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>

#include "layout.h"

#include "decide.h"
#include "kernel.h"
#include "maps.h"
#include "packet.h"
#include "state.h"

#include "flows.h"
#include "record.h"

#include "events.h"
#include "idle.h"
#include "presence.h"

static __always_inline __u32 segments_of(struct __sk_buff *skb)
{
	__u32 segments = skb->gso_segs, size;

	if (segments)
		return segments;
	/* The stack has not counted the segments yet, if there are several (SKB_GSO_DODGY). */
	size = skb->gso_size;
	return size ? (skb->len + size - 1) / size : 1;
}

/* Count a packet at the entry. On ingress, in softirq, no other counter runs on this CPU: a plain addition suffices. On
 * egress a process may be interrupted, so additions are atomic. */
static __always_inline void count_seen(struct totals *totals, __u32 way, __u32 segments)
{
	if (way == POINT_IN) {
		totals->seen[POINT_IN]++;
		totals->segments[POINT_IN] += segments - 1;
		return;
	}
	__sync_fetch_and_add(&totals->seen[POINT_OUT], 1);
	if (segments > 1)
		__sync_fetch_and_add(&totals->segments[POINT_OUT], segments - 1);
}

/* Count a packet without a flow. */
static __always_inline int without_flow(struct totals *totals, __u32 way, __u32 disposition, __u32 segments)
{
	__sync_fetch_and_add(&totals->dispositions[way][disposition], 1);
	if (segments > 1)
		__sync_fetch_and_add(&totals->segments_of_dispositions[way][disposition], segments - 1);
	return PASS;
}

/* Count a packet of a flow at the entry and assign its number. */
static __always_inline void count_in_flow(struct counts *counts, struct seen *seen)
{
	seen->packet = __sync_fetch_and_add(&counts->seen, 1);
	if (seen->segments > 1)
		__sync_fetch_and_add(&counts->segments, seen->segments - 1);
}

/* Whether a packet of this flow is sampled; otherwise its disposition. */
static __always_inline __u32 decided(const struct options *asked, struct flow *flow, struct counts *counts, __u32 way,
				     struct seen *seen)
{
	__u64 first;

	if (!(flow->verdict & 1) || !(asked->points & (1U << way)))
		return DISPOSITION_FILTERED;
	if (asked->by_segment) {
		first = __sync_fetch_and_add(&counts->ticks, seen->segments);
		return is_multiple(first, seen->segments, asked->ppl) ? DISPOSITION_LOGGED : DISPOSITION_DECIMATED;
	}
	return is_multiple(seen->packet, 1, asked->ppl) ? DISPOSITION_LOGGED : DISPOSITION_DECIMATED;
}

static __always_inline int on_packet(struct __sk_buff *skb, __u32 way)
{
	const struct options *asked = current_options();
	struct bpf_sock *sk = skb->sk, *full = NULL;
	struct totals *totals;
	struct flow *flow = NULL;
	struct counts *counts;
	struct seen seen;
	__u32 disposition;

	if (!asked->enabled)
		return PASS;
	/* Only a full socket of TCP has a flow, so one that has a flow is not asked what it is. */
	if (sk) {
		flow = flow_of_socket(sk, &seen.slot);
		if (!flow)
			full = bpf_sk_fullsock(sk);
	}
	if (!flow && (!full || full->protocol != PROTOCOL_TCP)) {
		if ((full && full->type != SOCKET_RAW) || !is_tcp(skb))
			return PASS;
	}
	totals = totals_here();
	if (!totals)
		return PASS;
	seen.segments = segments_of(skb);
	count_seen(totals, way, seen.segments);
	if (!flow) {
		if (!full)
			return without_flow(totals, way, sk ? DISPOSITION_NO_STATE : DISPOSITION_NO_SOCKET, seen.segments);
		if (full->type != SOCKET_STREAM)
			return without_flow(totals, way, DISPOSITION_CONTROL, seen.segments);
		if (full->state == TCP_STATE_LISTEN)
			return without_flow(totals, way, DISPOSITION_NO_STATE, seen.segments);
		disposition = new_flow(skb, full, &seen.slot, &flow);
		if (!flow)
			return without_flow(totals, way, disposition, seen.segments);
	} else if (sk->state == TCP_STATE_LISTEN) {
		/* Its flow did not end, because these programs were detached when it was disconnected. */
		return without_flow(totals, way, DISPOSITION_NO_STATE, seen.segments);
	}
	counts = &flow->directions[way];
	count_in_flow(counts, &seen);
	if (flow->verdict >> 1 != asked->generation)
		judge(sk, seen.slot);
	disposition = decided(asked, flow, counts, way, &seen);
	if (disposition == DISPOSITION_LOGGED)
		disposition = log_packet(skb, sk, asked, flow, counts, totals, way, &seen);
	if (disposition == DISPOSITION_LOGGED)
		return PASS;
	touch(counts, asked);
	/* Checked here, in the same register: Linux before 5.16 forgets the 32-bit bounds of a value that was on the
	 * stack. */
	asm volatile("" : "+r"(disposition));
	if (disposition >= DISPOSITIONS_OF_FLOW)
		return PASS;
	count_disposition(counts, disposition, &seen);
	return PASS;
}

SEC("cgroup_skb/ingress")
int packet_in(struct __sk_buff *skb)
{
	return on_packet(skb, POINT_IN);
}

SEC("cgroup_skb/egress")
int packet_out(struct __sk_buff *skb)
{
	return on_packet(skb, POINT_OUT);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
