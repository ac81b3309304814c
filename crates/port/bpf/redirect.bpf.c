/* Redirects the frames of one EtherType to an AF_XDP socket, each preceded by the time of its arrival; passes all
 * others. The time is in the frame's metadata, struct arrival, which the kernel copies with the frame. Where the driver
 * does not support metadata, the frame has none. */

#include "stream.h"

#define ARRIVAL_MARK 0x534F4A4152524956ULL /* "SOJARRIV" */

struct arrival {
	__u64 mark;
	__u64 at; /* ns, CLOCK_TAI */
};

const volatile __u16 ethertype = 0;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int redirect(struct xdp_md *ctx)
{
	__u64 now = bpf_ktime_get_tai_ns();
	struct arrival *arrival;

	if (!user_data(ctx, ethertype))
		return XDP_PASS;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*arrival)) == 0) {
		arrival = (void *)(long)ctx->data_meta;
		if ((void *)(arrival + 1) <= (void *)(long)ctx->data) {
			arrival->mark = ARRIVAL_MARK;
			arrival->at = now;
		}
	}
	return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
