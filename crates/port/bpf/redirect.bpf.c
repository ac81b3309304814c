/* Frames of one EtherType go to an AF_XDP socket, each with the time of its arrival before its first byte; all others pass.
 *
 * The time stands in the frame's metadata, which the kernel copies along with the frame: struct arrival. Where the driver has
 * no metadata, the frame goes without it.
 */

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
