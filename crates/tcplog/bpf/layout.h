/* The data that the programs in the kernel and user space exchange: events, flows, counters, options.
 *
 * `src/layout.rs` mirrors it; a test compares the two by the type information in the compiled object. Sizes are
 * explicit; the compiler pads nothing. Numbers are in host byte order unless stated otherwise.
 */
#ifndef SOJOURN_TCPLOG_LAYOUT_H
#define SOJOURN_TCPLOG_LAYOUT_H

#include "fields.h"

/* Where a sample was taken. The first two are taken at a packet before TCP processes it, the others after TCP has
 * acted. */
enum point {
	POINT_IN = 0,         /* a received packet, before tcp_rcv; another CPU may be using the socket */
	POINT_OUT = 1,        /* a packet to send, before TCP counts it (tcp_event_new_data_sent) */
	POINT_RTT = 2,        /* after a new RTT sample (BPF_SOCK_OPS_RTT_CB) */
	POINT_RETRANSMIT = 3, /* a segment was retransmitted */
	POINT_STATE = 4,      /* the connection changed state; detail: old << 8 | new */
	POINT_RECOVERY = 5,   /* congestion control changed state (tcp_cong_state_set); detail: old << 8 | new */
	POINT_RESET_OUT = 6,  /* this host sent a reset */
	POINT_RESET_IN = 7,   /* the peer sent a reset */
	POINT_DESTROY = 8,    /* the socket is destroyed */
};

/* The kind of an event in a ring: its first byte. */
enum kind {
	KIND_SAMPLE = 1,
	KIND_PRIVATE = 2,
};

/* The disposition of a packet that was seen: exactly one of these. */
enum disposition {
	DISPOSITION_LOGGED = 0,
	DISPOSITION_DECIMATED = 1,  /* not selected by sampling 1 in N */
	DISPOSITION_UNCHANGED = 2,  /* only changes are logged, and nothing changed */
	DISPOSITION_EARLY = 3,      /* within the minimum interval */
	DISPOSITION_FILTERED = 4,   /* its flow or its direction is not wanted */
	DISPOSITION_FULL = 5,       /* skipped: the ring is full */
	DISPOSITION_UNPARSED = 6,   /* skipped: its headers cannot be parsed */
	/* The rest belong to packets without a flow, counted in the totals only. */
	DISPOSITION_NO_SOCKET = 7,  /* skipped: it has no socket */
	DISPOSITION_NO_STATE = 8,   /* skipped: of a listener or a request, which have no control block */
	DISPOSITION_CONTROL = 9,    /* skipped: of the kernel's control socket or a raw socket */
	DISPOSITION_NO_ROOM = 10,   /* skipped: the flow table is full */
	DISPOSITION_LATE = 11,      /* skipped: its socket is closed; its flow, if any, is counted already */
	DISPOSITIONS = 12,
	DISPOSITIONS_OF_FLOW = 7,
};

#define NUMBERED(type, name, ...) FIELD_##name,

/* The bit number of each field. */
enum field {
	STATE_FIELDS(NUMBERED, NUMBERED)
	FIELDS
};

#define WANTED_WORDS 2
_Static_assert(FIELDS <= 64 * WANTED_WORDS, "a bit for each field");

#define MEMBER(type, name, ...) type name;
#define SIZE(type, ...) + sizeof(type)

/* The control block at one moment. */
struct state {
	STATE_FIELDS(MEMBER, MEMBER)
	__u8 reserved[RESERVED(SIZE)];
};

enum flag {
	FLAG_TIMESTAMPS = 1 << 0,
	FLAG_SACK = 1 << 1,
	FLAG_WINDOW_SCALING = 1 << 2,
	FLAG_DSACK = 1 << 3,
	FLAG_ECN = 1 << 4,
	FLAG_ECN_QUEUE_CWR = 1 << 5,
	FLAG_ECN_DEMAND_CWR = 1 << 6,
	FLAG_ECN_SEEN = 1 << 7,
	FLAG_NAGLE_OFF = 1 << 8,
	FLAG_CORK = 1 << 9,
	FLAG_CWND_LIMITED = 1 << 10,
	FLAG_APP_LIMITED = 1 << 11,
	FLAG_FRTO = 1 << 12,
	FLAG_OUT_OF_ORDER = 1 << 13, /* the reassembly queue is not empty */
	FLAG_UNDO = 1 << 14,
	FLAG_TLP = 1 << 15,
	FLAG_IN_USE = 1 << 16,       /* a process owned the socket when the sample was taken */
	FLAG_SYN_DATA = 1 << 17,
	FLAG_FASTOPEN = 1 << 18,
	FLAG_REPAIR = 1 << 19,
};

/* One sample. */
struct sample {
	__u8 kind;          /* KIND_SAMPLE */
	__u8 point;         /* enum point */
	__u16 detail;       /* at state and recovery: old << 8 | new */
	__u32 slot;         /* the flow's slot in the table */
	__u64 number;       /* counts the records of this CPU from 0, also those without room in the ring: a gap is a lost record */
	__u64 time_ns;      /* CLOCK_TAI; CLOCK_MONOTONIC where the kernel has no helper for it (facts.has_tai) */
	__u64 cookie;       /* the socket cookie */
	__u64 packet;       /* the packet's number in its direction of the flow, from 0; ~0: no packet */
	__u32 seq;          /* of the TCP header */
	__u32 ack;
	__u16 tcp_flags;    /* 12 bits: reserved, AE, CWR, ECE, URG, ACK, PSH, RST, SYN, FIN */
	__u16 window;       /* as in the header, not scaled */
	__u32 packet_bytes; /* IP header and everything after it, over all segments */
	__u32 payload_bytes;
	__u16 segments;     /* at least 1 */
	__u16 ip_id;        /* IPv4; IPv6: 0 */
	__u8 tos;           /* traffic class: DSCP and ECN */
	__u8 reserved[7];
	struct state state;
};

#define PRIVATE_BYTES 104
#define NAME_BYTES 16

/* The private state of the congestion control, as bytes. It belongs to sample number `sample` of the same CPU. */
struct private_state {
	__u8 kind;          /* KIND_PRIVATE */
	__u8 reserved[3];
	__u32 slot;
	__u64 number;       /* counted together with the samples */
	__u64 time_ns;
	__u64 cookie;
	__u64 sample;       /* the number of its sample */
	char algorithm[NAME_BYTES];
	__u8 bytes[PRIVATE_BYTES];
};

/* One slot of a CPU's ring, shared by the programs and user space. */
struct slot {
	__u64 commit;       /* the record's position + 1, written last: the record is complete then */
	union {
		struct sample sample;
		struct private_state private;
		__u8 kind;
	};
} __attribute__((aligned(64)));

/* How far user space has read a ring. */
struct reader {
	__u64 position;
	__u64 reserved[7];
};

/* The counters of one direction of a flow, on cache lines of their own: ingress and egress may run on two CPUs. */
struct counts {
	__u64 seen;         /* also the next packet's number */
	__u64 segments;     /* here and below, the programs count the segments after a packet's first; user space adds the first */
	__u64 ticks;        /* the next segment's number, where packets are sampled by segment */
	__u64 jiffies;      /* when last_ns was last written without a sample */
	__u64 last_ns;      /* time of the last packet; less than one jiffy too early where that packet was not logged */
	__u64 dispositions[DISPOSITIONS_OF_FLOW];
	__u64 segments_of_dispositions[DISPOSITIONS_OF_FLOW];
	__u64 reserved[5];
};

/* One flow. User space maps the table and reads it in place: each number is consistent, but not all are of the same
 * moment. Slots are assigned in order, then from a queue of those that user space freed. */
struct flow {
	__u64 cookie;       /* 0: the slot is free */
	__u64 generation;   /* how often the slot has been used */
	__u64 verdict;      /* generation of options << 1 | wanted */
	__u64 logged_ns;    /* time of the last sample, where a minimum interval is requested */
	__u64 changes;      /* digest of the chosen fields at the last sample, where only changes are logged */
	__u64 first_ns;     /* written last when a flow is created: 0 is not ready */
	__u64 ended_ns;     /* 0: the socket still exists */
	__u64 netns;        /* cookie of the network namespace */
	struct counts directions[2];
	__u64 cgroup;
	__u32 process;      /* the process that created the socket; 0: unknown */
	__u16 family;
	__u16 local_port;   /* host order */
	__u16 remote_port;
	__u16 reserved[3];
	__u8 local[16];     /* network order; IPv4 in the first four */
	__u8 remote[16];
	char command[NAME_BYTES];
	char algorithm[NAME_BYTES];
	__u64 padding[5];   /* fills up the last cache line */
};

/* The counters of one CPU. The programs count only dispositions of packets without a flow here; user space adds those
 * of the flows. */
struct totals {
	__u64 seen[2];
	__u64 segments[2];  /* as in struct counts */
	__u64 dispositions[2][DISPOSITIONS];
	__u64 segments_of_dispositions[2][DISPOSITIONS];
	__u64 events;       /* samples at events, which belong to no packet */
	__u64 events_full;  /* the same without room in the ring */
	__u64 privates;     /* private states logged */
	__u64 privates_full;
	__u64 number;       /* the next record's number */
	__u64 position;     /* the next record's position in the ring; a record without room has none */
};

#define PORTS 16

/* The options. User space may change them at any time. */
struct options {
	__u64 generation;
	__u32 enabled;
	__u32 ppl;            /* sampling 1 in N packets (or segments), at least 1 */
	__u32 by_segment;
	__u32 points;         /* bit n: log at enum point n */
	__u64 min_interval_ns;
	__u64 changes;        /* bits of enum change: log only when one of these fields changes */
	__u32 private_every;  /* log the private state with every n-th sample of a flow; 0: never */
	__u32 one_in_flows;   /* 1 in N flows, by a hash of the cookie; at least 1 */
	__u64 netns;          /* 0: all */
	__u64 cgroup;         /* an ancestor of the socket's cgroup; 0: all */
	__u32 cgroup_level;
	__u32 process;        /* 0: all */
	__u32 ports;          /* the number of ports below */
	__u32 prefixes;       /* whether the tries of prefixes are looked up */
	__u16 port[PORTS];    /* local or remote port */
	char algorithm[NAME_BYTES]; /* empty: all */
	__u32 burn;           /* turns of the placebo's busy loop */
	__u32 reserved;
	__u64 offset_ns;      /* from CLOCK_MONOTONIC to the clock of the samples; set by user space at attachment */
};

enum change {
	CHANGE_CWND = 1 << 0,
	CHANGE_SSTHRESH = 1 << 1,
	CHANGE_CA_STATE = 1 << 2,
	CHANGE_STATE = 1 << 3,
	CHANGE_RTT = 1 << 4,
	CHANGE_RTO = 1 << 5,
	CHANGE_SND_WND = 1 << 6,
	CHANGE_RCV_WND = 1 << 7,
	CHANGE_RETRANS = 1 << 8,
	CHANGE_MSS = 1 << 9,
	CHANGE_PACING = 1 << 10,
};

#endif
