/* The maps and variables that the programs share with each other and with user space. */
#ifndef SOJOURN_TCPLOG_MAPS_H
#define SOJOURN_TCPLOG_MAPS_H

#define PASS 1 /* lets the packet pass */

#define SOCKET_STREAM 1
#define SOCKET_RAW 3
#define TCP_STATE_CLOSE 7
#define TCP_STATE_LISTEN 10

/* Stored with a socket: the process that created it, and its flow. A listener's children inherit both; state_set()
 * clears the inherited handle. */
struct place {
	__u64 handle; /* generation of the slot << 32 | slot + 1; 0: none yet */
	__u32 process;
	__u32 reserved;
	char command[NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct place);
} places SEC(".maps");

/* The table of flows; user space sets its size. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} flows SEC(".maps");

/* Slots that user space has freed. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(__u32));
} free_slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct totals);
} all_totals SEC(".maps");

/* One ring for each CPU, one after the other; user space sets the number of slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slot);
} rings SEC(".maps");

/* The read position of each CPU's ring. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reader);
} readers SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

/* The programs do not use it. User space sets an element as a barrier: the kernel then waits for running programs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct inner);
} fence SEC(".maps");

struct prefix4 {
	__u32 length;
	__u8 address[4];
};

struct prefix6 {
	__u32 length;
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix4);
	__type(value, __u8);
} prefixes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix6);
	__type(value, __u8);
} prefixes6 SEC(".maps");

/* User space writes the options that no program reads, then switches `which`: all options change at once. */
struct control {
	struct options asked[2];
	__u32 which;
	__u32 reserved;
};

struct control control SEC(".data.control");

/* The size of the flow table. */
const volatile __u32 flow_room SEC(".rodata.room") = 1;

/* The number of slots in each CPU's ring: a power of 2. */
const volatile __u32 ring_slots SEC(".rodata.slots") = 1;

/* One bit for each requested field of a sample's state, in the order of enum field; all ones: all fields. Set before
 * the programs are loaded. */
const volatile __u64 wanted[WANTED_WORDS] SEC(".rodata.wanted") = { ~0ULL, ~0ULL };

/* The PID namespace of user space, in which process IDs are reported; set before the programs are loaded. */
struct numbering {
	__u64 device;
	__u64 inode;
	__u32 is_first; /* the initial namespace: the kernel's own process IDs are right */
	__u32 can_ask;  /* whether cgroup programs may ask for IDs in another namespace (Linux 6.10) */
};

const volatile struct numbering numbering SEC(".rodata.numbering") = { .is_first = 1 };

/* The number of slots that have been assigned at least once. */
__u32 handed_out SEC(".data.handed_out") = 0;

static __always_inline const struct options *current_options(void)
{
	return &control.asked[*(volatile __u32 *)&control.which & 1];
}

static __always_inline struct totals *totals_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&all_totals, &zero);
}

/* CLOCK_TAI, or CLOCK_MONOTONIC where there is no helper for it (before 6.1). */
static __always_inline __u64 time_now(void)
{
	if (HAS_TAI)
		return bpf_ktime_get_tai_ns();
	return bpf_ktime_get_ns();
}

#endif
