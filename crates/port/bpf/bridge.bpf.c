/* Redirects all frames of an interface to an AF_XDP socket, each preceded by the time of its arrival, for a bridge in
 * user space. No frame reaches the stack; a frame of a queue without a socket is lost and counted. Frames that the
 * bridge need not see may be redirected to its other port. The metadata before a frame is struct arrival, which the
 * kernel copies with the frame. It also holds a VLAN tag that the device or a neighbour's stack keeps outside the
 * frame. Only the driver knows that tag, so the program that reads it is bound to its device. Where the driver does not
 * support metadata, the frame has none. */

#include "stream.h"

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#define ARRIVAL_MARK 0x534F4A42 /* "SOJB" */
#define MOST_WANTED 16
#define OLD_SERVICE_TAG 0x9100
#define IPV4 0x0800
#define IPV6 0x86DD

/* In the same order as in crates/port/src/bridge/xdp.rs. */
struct arrival {
	__u32 mark;
	__be16 tag_type; /* 0: no tag outside the frame */
	__be16 tag_control;
	__u64 at; /* ns, CLOCK_MONOTONIC: never stepped */
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* The EtherTypes that the bridge must see; `wanted` is their number. */
const volatile struct {
	__u32 wanted;
	__u16 ethertypes[MOST_WANTED];
} asked = {};

/* The other port. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} other SEC(".maps");

/* Whether frames that are not wanted are redirected to the other port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} redirects SEC(".maps");

/* The number of frames redirected to the other port. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} redirected SEC(".maps");

/* The number of frames lost because their queue has no socket. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} unheard SEC(".maps");

/* Linux 6.8. Weak: without it the other program can still be loaded. */
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *protocol, __u16 *control) __ksym __weak;

static __always_inline __u32 folded(__u32 sum)
{
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (sum & 0xFFFF) + (sum >> 16);
}

/* Whether the checksum of a transport header differs from the sum of its pseudo-header, `sum`: then it is complete. */
static __always_inline int is_finished(void *header, void *end, __u8 protocol, __u16 length, __u32 sum)
{
	__be16 *field = header + (protocol == IPPROTO_TCP ? 16 : 6);

	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP)
		return protocol != IPPROTO_SCTP;
	if ((void *)(field + 1) > end)
		return 0;
	return *field != folded(sum + bpf_htons(protocol) + bpf_htons(length));
}

static __always_inline int is_whole4(void *at, void *end)
{
	struct iphdr *ip = at;
	__be16 *word = at + 12;
	__u32 sum = 0;

	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl != 5)
		return 0;
	if (ip->frag_off & bpf_htons(0x3FFF))
		return 1;
	for (int i = 0; i < 4; i++)
		sum += word[i];
	return is_finished(ip + 1, end, ip->protocol, bpf_ntohs(ip->tot_len) - 20, sum);
}

static __always_inline int is_whole6(void *at, void *end)
{
	struct ipv6hdr *ip = at;
	__be16 *word = at + 8;
	__u32 sum = 0;

	if ((void *)(ip + 1) > end || ip->version != 6)
		return 0;
	if (ip->nexthdr != IPPROTO_TCP && ip->nexthdr != IPPROTO_UDP)
		return ip->nexthdr == IPPROTO_ICMPV6;
	for (int i = 0; i < 16; i++)
		sum += word[i];
	return is_finished(ip + 1, end, ip->nexthdr, bpf_ntohs(ip->payload_len), sum);
}

static __always_inline int is_tag(__be16 type)
{
	return type == bpf_htons(CUSTOMER_TAG) || type == bpf_htons(SERVICE_TAG) || type == bpf_htons(OLD_SERVICE_TAG);
}

/* Whether a frame can be redirected as it is: the bridge need not see it, and its checksum is complete. */
static __always_inline int goes_on(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct tag *tag = (void *)(ethernet + 1);
	__be16 type;

	if ((void *)tag > end)
		return 0;
	type = ethernet->ethertype;
	for (int i = 0; i < 2 && is_tag(type); i++) {
		if ((void *)(tag + 1) > end)
			return 0;
		type = tag->ethertype;
		tag++;
	}
	if (is_tag(type))
		return 0;
	for (__u32 i = 0; i < MOST_WANTED && i < asked.wanted; i++)
		if (type == bpf_htons(asked.ethertypes[i]))
			return 0;
	if (type == bpf_htons(IPV4))
		return is_whole4(tag, end);
	if (type == bpf_htons(IPV6))
		return is_whole6(tag, end);
	return 1;
}

static __always_inline int hand_over(struct xdp_md *ctx, __u64 now, __be16 tag_type, __u16 tag_control)
{
	struct arrival *arrival;
	__u32 zero = 0;
	__u64 *redirect = bpf_map_lookup_elem(&redirects, &zero);
	__u64 *count = bpf_map_lookup_elem(&redirected, &zero);
	int verdict;

	if (redirect && count && *redirect && !tag_type && goes_on(ctx)) {
		__sync_fetch_and_add(count, 1);
		return bpf_redirect_map(&other, 0, XDP_DROP);
	}
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*arrival)) == 0) {
		arrival = (void *)(long)ctx->data_meta;
		if ((void *)(arrival + 1) <= (void *)(long)ctx->data) {
			arrival->mark = ARRIVAL_MARK;
			arrival->tag_type = tag_type;
			arrival->tag_control = bpf_htons(tag_control);
			arrival->at = now;
		}
	}
	verdict = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);
	if (verdict != XDP_REDIRECT) {
		count = bpf_map_lookup_elem(&unheard, &zero);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	return verdict;
}

SEC("xdp")
int bridge(struct xdp_md *ctx)
{
	return hand_over(ctx, bpf_ktime_get_ns(), 0, 0);
}

SEC("xdp")
int bridge_tags(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__be16 tag_type = 0;
	__u16 tag_control = 0;

	if (bpf_xdp_metadata_rx_vlan_tag(ctx, &tag_type, &tag_control) < 0)
		tag_type = 0;
	return hand_over(ctx, now, tag_type, tag_control);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
