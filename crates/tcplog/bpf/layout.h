/* What the programs in the kernel and the one in user space say to each other: events, flows, counters, options.
 *
 * `src/layout.rs` mirrors it; a test holds the two together by the type information in the compiled object. Sizes are
 * explicit, nothing is padded by the compiler. Every number is the host's own byte order unless said.
 */
#ifndef SOJOURN_TCPLOG_LAYOUT_H
#define SOJOURN_TCPLOG_LAYOUT_H

#include "fields.h"

/* Where a sample was taken. The first two belong to a packet, before TCP has dealt with it; the others come after. */
enum point {
	POINT_IN = 0,         /* a packet on its way in, before tcp_rcv; the socket may be in use by another CPU */
	POINT_OUT = 1,        /* a packet on its way out, before it is accounted for (tcp_event_new_data_sent) */
	POINT_RTT = 2,        /* after a new RTT sample (BPF_SOCK_OPS_RTT_CB) */
	POINT_RETRANSMIT = 3, /* a segment was sent again */
	POINT_STATE = 4,      /* the connection changed its state; detail: old << 8 | new */
	POINT_RECOVERY = 5,   /* congestion control changed its state (tcp_cong_state_set); detail: old << 8 | new */
	POINT_RESET_OUT = 6,  /* we reset */
	POINT_RESET_IN = 7,   /* the peer reset */
	POINT_DESTROY = 8,    /* the socket goes away */
};

/* What an event in a ring is; its first byte. */
enum kind {
	KIND_SAMPLE = 1,
	KIND_PRIVATE = 2,
};

/* What becomes of a packet that was seen: exactly one of these. */
enum disposition {
	DISPOSITION_LOGGED = 0,
	DISPOSITION_DECIMATED = 1,  /* packets per log */
	DISPOSITION_UNCHANGED = 2,  /* only changes are wanted, and there was none */
	DISPOSITION_EARLY = 3,      /* sooner than the minimum interval */
	DISPOSITION_FILTERED = 4,   /* its flow is not wanted, or this way of it */
	DISPOSITION_FULL = 5,       /* skipped: no room in the ring */
	DISPOSITION_UNPARSED = 6,   /* skipped: headers that cannot be followed */
	/* From here on without a flow: in the totals only. */
	DISPOSITION_NO_SOCKET = 7,  /* skipped: no socket belongs to it */
	DISPOSITION_NO_STATE = 8,   /* skipped: a listener's, a request's or a TIME_WAIT's, without a control block of its own */
	DISPOSITION_CONTROL = 9,    /* skipped: the kernel's own control socket, or a raw one */
	DISPOSITION_NO_ROOM = 10,   /* skipped: the table of flows is full */
	DISPOSITION_LATE = 11,      /* skipped: its socket is closed, and its flow counted already, if there was one */
	DISPOSITIONS = 12,
	DISPOSITIONS_OF_FLOW = 7,
};

#define NUMBERED(type, name, ...) FIELD_##name,

/* The place of a field's bit. */
enum field {
	STATE_FIELDS(NUMBERED, NUMBERED)
	FIELDS
};

#define WANTED_WORDS 2
_Static_assert(FIELDS <= 64 * WANTED_WORDS, "a bit for each field");

#define MEMBER(type, name, ...) type name;
#define SIZE(type, ...) + sizeof(type)

/* The control block as it is at that moment. */
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
	FLAG_OUT_OF_ORDER = 1 << 13, /* the reassembly queue holds something */
	FLAG_UNDO = 1 << 14,
	FLAG_TLP = 1 << 15,
	FLAG_IN_USE = 1 << 16,       /* the socket was owned by a process when the sample was taken */
	FLAG_SYN_DATA = 1 << 17,
	FLAG_FASTOPEN = 1 << 18,
	FLAG_REPAIR = 1 << 19,
};

/* One sample. */
struct sample {
	__u8 kind;          /* KIND_SAMPLE */
	__u8 point;         /* enum point */
	__u16 detail;       /* of state and recovery: old << 8 | new */
	__u32 slot;         /* the flow's place in the table */
	__u64 number;       /* on this CPU, from 0, one for each record that was to be made: a gap is a record that had no room */
	__u64 time_ns;      /* CLOCK_TAI; CLOCK_MONOTONIC where the kernel cannot (options say which) */
	__u64 cookie;       /* the socket's */
	__u64 packet;       /* its number in its direction of the flow, from 0; ~0: belongs to no packet */
	__u32 seq;          /* TCP's */
	__u32 ack;
	__u16 tcp_flags;    /* 12 bits: reserved, AE, CWR, ECE, URG, ACK, PSH, RST, SYN, FIN */
	__u16 window;       /* as in the header, not scaled */
	__u32 packet_bytes; /* IP header and all behind it, of all segments together */
	__u32 payload_bytes;
	__u16 segments;     /* at least 1 */
	__u16 ip_id;        /* IPv4; IPv6: 0 */
	__u8 tos;           /* traffic class: DSCP and ECN */
	__u8 reserved[7];
	struct state state;
};

#define PRIVATE_BYTES 104
#define NAME_BYTES 16

/* The private state of the congestion control, as bytes; goes with the sample of the same cookie before it on this CPU. */
struct private_state {
	__u8 kind;          /* KIND_PRIVATE */
	__u8 reserved[3];
	__u32 slot;
	__u64 number;       /* as in a sample: of the same row of numbers */
	__u64 time_ns;
	__u64 cookie;
	__u64 sample;       /* the number of the sample that it belongs to */
	char algorithm[NAME_BYTES];
	__u8 bytes[PRIVATE_BYTES];
};

/* Where a record is made: what the programs and user space share of a ring, for each CPU. */
struct slot {
	__u64 commit;       /* the record's position + 1, written last: then it is whole */
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

/* What one way of a flow has counted, on cache lines of its own: packets that come and packets that go may be on two CPUs. */
struct counts {
	__u64 seen;         /* the next packet's number */
	__u64 segments;     /* here and below, the kernel counts those behind the first of each packet; user space adds the first */
	__u64 ticks;        /* the next segment's number, while packets are chosen by segment */
	__u64 jiffies;      /* when last_ns was written without a sample */
	__u64 last_ns;      /* of its last packet; to a jiffy, too early by less than one, where that one was not logged */
	__u64 dispositions[DISPOSITIONS_OF_FLOW];
	__u64 segments_of_dispositions[DISPOSITIONS_OF_FLOW];
	__u64 reserved[5];
};

/* One flow; user space maps the table and reads it as it is: each number by itself is whole, but they need not be of one
 * moment. Slots are handed out in order, then from a queue of those that user space gave back. */
struct flow {
	__u64 cookie;       /* 0: the slot is free */
	__u64 generation;   /* how often the slot has been used */
	__u64 verdict;      /* generation of options << 1 | wanted */
	__u64 logged_ns;    /* of the last sample, where a minimum interval is asked for */
	__u64 changes;      /* a digest of the chosen fields at the last sample, where changes are asked for */
	__u64 first_ns;     /* written last when a flow is made: 0 is not ready */
	__u64 ended_ns;     /* 0: the socket is still there */
	__u64 netns;        /* cookie of the network namespace */
	struct counts directions[2];
	__u64 cgroup;
	__u32 process;      /* who made the socket; 0: unknown */
	__u16 family;
	__u16 local_port;   /* host order */
	__u16 remote_port;
	__u16 reserved[3];
	__u8 local[16];     /* network order; IPv4 in the first four */
	__u8 remote[16];
	char command[NAME_BYTES];
	char algorithm[NAME_BYTES];
	__u64 padding[5];   /* whole cache lines */
};

/* How many packets met each disposition on this CPU, one way. The programs count only the dispositions without a flow here; user space adds
 * those of the flows. */
struct totals {
	__u64 seen[2];
	__u64 segments[2];  /* as in a flow */
	__u64 dispositions[2][DISPOSITIONS];
	__u64 segments_of_dispositions[2][DISPOSITIONS];
	__u64 events;       /* samples after the fact that were logged: no packet's */
	__u64 events_full;  /* and those that had no room */
	__u64 privates;     /* private states that were logged */
	__u64 privates_full;
	__u64 number;       /* the next record's */
	__u64 position;     /* of the next record in the ring: those without room have none */
};

#define PORTS 16

/* What is asked; may change at any time, `generation` last. */
struct options {
	__u64 generation;
	__u32 enabled;
	__u32 ppl;            /* packets (or segments) per log, at least 1 */
	__u32 by_segment;
	__u32 points;         /* bit n: enum point n is wanted */
	__u64 min_interval_ns;
	__u64 changes;        /* bits of enum change: log only when one of these changes */
	__u32 private_every;  /* the private state with every n-th sample of a flow; 0: never */
	__u32 one_in_flows;   /* 1 in N flows, by a hash of the cookie; at least 1 */
	__u64 netns;          /* 0: all */
	__u64 cgroup;         /* an ancestor of the socket's; 0: all */
	__u32 cgroup_level;
	__u32 process;        /* 0: all */
	__u32 ports;          /* how many of those below */
	__u32 prefixes;       /* whether the tries of prefixes are asked */
	__u16 port[PORTS];    /* either end's */
	char algorithm[NAME_BYTES]; /* empty: all */
	__u32 burn;           /* the placebo's loop: how often */
	__u32 reserved;
	__u64 offset_ns;      /* from CLOCK_MONOTONIC to the clock of the samples; whoever attaches the programs sets it */
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
