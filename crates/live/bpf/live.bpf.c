/* Process frames that the kernel generates (BPF_PROG_RUN with live frames): each waits for its departure time, gets the
 * next sequence number and the current time, and is redirected to a device. Only one run at a time.
 */

#include "stream.h"

#define MOST_TURNS (1 << 22) /* iterations of waiting: at least a tenth of a second */

#define HEAD_WORDS 7 /* of 8 bytes; 4 more bytes follow */

/* The frames' parameters, in memory that the process writes, so that the program stays loaded from one stream to the next.
 * crates/live/src/sender.rs has the same order.
 */
struct asked {
	/* The first 60 bytes of each frame. The kernel reuses the memory of a received frame unchanged, and a receiver
	 * that removed a VLAN tag has moved its bytes. */
	__u64 head[HEAD_WORDS];
	__u32 head_end;
	__u32 header_at;
};

struct asked asked SEC(".data.asked") = {};

/* The device: the kernel finds it in a map by an index, and by its number only after a search. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} devices SEC(".maps");

/* Written and read by the process that starts the runs; crates/live/src/sender.rs has the same order. */
struct sender {
	__u64 next;        /* sequence number of the next frame */
	__u64 first;       /* sequence number of the first frame of this run at a constant rate */
	__u64 first_at;    /* its departure time, ns CLOCK_TAI; 0: immediately */
	__u64 last_at;
	__u64 interval_ps; /* inter-departure time; 0: maximum rate */
	__u64 until;       /* no frame is made at or after this time; the process cannot interrupt a run, which occupies the CPU */
};

struct sender sender SEC(".data.sender") = {};

/* Not 0: make no more frames. In a map of its own, because it is written while the other is in use. */
volatile __u64 stop SEC(".data.stop") = 0;

/* One iteration of waiting; ends at the departure time. */
static long wait(__u32 turn, __u64 *due)
{
	(void)turn;
	return bpf_ktime_get_tai_ns() >= *due;
}

SEC("xdp")
int live(struct xdp_md *ctx)
{
	__u32 at = asked.header_at, *head_end;
	__u64 *head = (void *)(long)ctx->data;
	struct stream_header *header;
	__u64 now, due;

	if (at > 18)
		return XDP_ABORTED;
	if (stop)
		return XDP_DROP;
	now = bpf_ktime_get_tai_ns();
	if (now >= sender.until)
		return XDP_DROP;
	due = now;
	/* A 64-bit division is slow: not at maximum rate. */
	if (sender.interval_ps && sender.first_at) {
		due = sender.first_at + (sender.next - sender.first) * sender.interval_ps / 1000;
		if (now < due) {
			bpf_loop(MOST_TURNS, wait, &due, 0);
			now = bpf_ktime_get_tai_ns();
			if (now >= sender.until) /* reached while this frame waited */
				return XDP_DROP;
		}
		if (now < due || due < sender.first_at)
			due = now;
	}
	if (!sender.first_at)
		sender.first_at = now;

	header = (void *)head + at;
	head_end = (void *)(head + HEAD_WORDS);
	if ((void *)(head_end + 1) > (void *)(long)ctx->data_end || (void *)(header + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	for (__u32 word = 0; word < HEAD_WORDS; word++)
		head[word] = asked.head[word];
	*head_end = asked.head_end;
	header->seq_high = bpf_htons(sender.next >> 32);
	header->seq_low = bpf_htonl(sender.next);
	header->intended = bpf_cpu_to_be64(due);
	header->sent = bpf_cpu_to_be64(now);
	header->check = bpf_htonl(parity(header));
	sender.last_at = now;
	sender.next++;
	return bpf_redirect_map(&devices, 0, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
