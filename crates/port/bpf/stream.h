/* The frame formats that the programs of this folder parse: Ethernet, one VLAN tag, the stream header
 * (crates/wire/src/stream.rs). */

#ifndef SOJOURN_STREAM_H
#define SOJOURN_STREAM_H

#include <linux/bpf.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define CUSTOMER_TAG 0x8100
#define SERVICE_TAG 0x88A8

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 ethertype;
} __attribute__((packed));

struct tag {
	__be16 control;
	__be16 ethertype;
} __attribute__((packed));

struct stream_header {
	__be32 magic;
	__u8 kind;
	__u8 node;
	__be16 flow;
	__be64 key;
	__be16 seq_high;
	__be32 seq_low;
	__be64 intended;
	__be64 sent;
	__be32 check;
} __attribute__((packed, aligned(2))); /* after an Ethernet header it is at an even offset */

#define STREAM_MAGIC 0x534F4A33 /* "SOJ3" */

enum stream_kind {
	KIND_DATA = 1,
	KIND_ANSWER = 2,
	KIND_LIVE = 7,
};

static __always_inline __u64 seq_of(struct stream_header *header)
{
	return (__u64)bpf_ntohs(header->seq_high) << 32 | bpf_ntohl(header->seq_low);
}

/* The checksum of a header of the kind KIND_LIVE: the exclusive or of its words. */
static __always_inline __u32 parity(struct stream_header *header)
{
	__u64 words = bpf_be64_to_cpu(header->key) ^ seq_of(header) ^ bpf_be64_to_cpu(header->intended) ^
		      bpf_be64_to_cpu(header->sent);

	return (__u32)(words >> 32) ^ (__u32)words ^
	       ((__u32)header->kind << 24 | (__u32)header->node << 16 | bpf_ntohs(header->flow));
}

/* The payload of a frame of this EtherType, with or without a tag; NULL for any other. */
static __always_inline void *user_data(struct xdp_md *ctx, __u16 ethertype)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = (void *)(long)ctx->data;
	struct tag *tag = (void *)(ethernet + 1);

	if ((void *)tag > end)
		return NULL;
	if (ethernet->ethertype == bpf_htons(ethertype))
		return tag;
	if (ethernet->ethertype != bpf_htons(CUSTOMER_TAG) && ethernet->ethertype != bpf_htons(SERVICE_TAG))
		return NULL;
	if ((void *)(tag + 1) > end || tag->ethertype != bpf_htons(ethertype))
		return NULL;
	return tag + 1;
}

#endif
