/* Parse the headers of a packet for a sample: IPv4 with options, IPv6 with extension headers, TCP. */
#ifndef SOJOURN_TCPLOG_PACKET_H
#define SOJOURN_TCPLOG_PACKET_H

#define PROTOCOL_TCP 6
#define EXTENSIONS 6 /* the most IPv6 extension headers that are followed */
#define FURTHEST 512 /* the largest offset of the TCP header */

struct ipv4 {
	__u8 version_length;
	__u8 tos;
	__be16 length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 check;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_class_label;
	__be16 length;
	__u8 next;
	__u8 hops;
	__be32 source[4];
	__be32 destination[4];
};

struct tcp {
	__be16 source;
	__be16 destination;
	__be32 seq;
	__be32 ack;
	__be16 length_flags;
	__be16 window;
	__be16 check;
	__be16 urgent;
};

/* The offset of the TCP header after IPv6 extension headers; 0: not TCP, or the headers cannot be followed. */
static __noinline __u32 behind_extensions(struct __sk_buff *skb, __u32 next)
{
	__u32 at = sizeof(struct ipv6);
	__u8 extension[2];

	for (int i = 0; i < EXTENSIONS; i++) {
		if (next == PROTOCOL_TCP)
			return at;
		if (at > FURTHEST - 2 || bpf_skb_load_bytes(skb, at, extension, sizeof(extension)))
			return 0;
		switch (next) {
		case 0:  /* hop by hop */
		case 43: /* routing */
		case 60: /* destination */
			at += (extension[1] + 1) * 8;
			break;
		case 51: /* authentication */
			at += (extension[1] + 2) * 4;
			break;
		default: /* fragments too: packets here are reassembled */
			return 0;
		}
		next = extension[0];
	}
	return 0;
}

/* The header fields that a sample holds. */
struct headers {
	__u32 seq;
	__u32 ack;
	__u16 tcp_flags;
	__u16 window;
	__u32 packet_bytes;
	__u32 payload_bytes;
	__u16 ip_id;
	__u8 tos;
};

/* The offset of the TCP header; 0: there is none. */
static __always_inline __u32 find_tcp(struct __sk_buff *skb, struct headers *headers)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv4 *ip = data;
	struct ipv6 *ip6 = data;

	if ((void *)(ip + 1) > end)
		return 0;
	if (ip->version_length >> 4 == 4) {
		headers->tos = ip->tos;
		headers->ip_id = bpf_ntohs(ip->id);
		if (ip->protocol != PROTOCOL_TCP || ip->fragment & bpf_htons(0x1fff))
			return 0;
		return (ip->version_length & 15) * 4;
	}
	if (ip->version_length >> 4 != 6 || (void *)(ip6 + 1) > end)
		return 0;
	headers->tos = bpf_ntohl(ip6->version_class_label) >> 20;
	headers->ip_id = 0;
	return ip6->next == PROTOCOL_TCP ? sizeof(*ip6) : behind_extensions(skb, ip6->next);
}

/* Parse the headers; return false where they cannot be followed. */
static __always_inline bool read_headers(struct headers *headers, struct __sk_buff *skb)
{
	__u32 at = find_tcp(skb, headers), length;
	void *data = (void *)(long)skb->data;
	struct tcp *tcp;

	if (!at || at > FURTHEST)
		return false;
	tcp = data + at;
	if ((void *)(tcp + 1) > (void *)(long)skb->data_end)
		return false;
	headers->seq = bpf_ntohl(tcp->seq);
	headers->ack = bpf_ntohl(tcp->ack);
	headers->tcp_flags = bpf_ntohs(tcp->length_flags) & 0xfff;
	headers->window = bpf_ntohs(tcp->window);
	headers->packet_bytes = skb->len;
	length = at + (bpf_ntohs(tcp->length_flags) >> 12) * 4;
	headers->payload_bytes = skb->len > length ? skb->len - length : 0;
	return true;
}

/* Whether the packet is TCP, whatever socket it has. */
static __noinline bool is_tcp(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ipv4 *ip = data;
	struct ipv6 *ip6 = data;

	if ((void *)(ip + 1) > end)
		return false;
	if (ip->version_length >> 4 == 4)
		return ip->protocol == PROTOCOL_TCP;
	return (void *)(ip6 + 1) <= end && ip6->next == PROTOCOL_TCP;
}

#endif
