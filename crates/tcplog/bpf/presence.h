/* Which fields of a sample this kernel has: by the very relocations that the programs were loaded with. */
#ifndef SOJOURN_TCPLOG_PRESENCE_H
#define SOJOURN_TCPLOG_PRESENCE_H

/* What user space wants to know of this kernel. */
struct facts {
	__u64 offset_ns; /* from CLOCK_MONOTONIC to the clock of the samples */
	__u32 has_tai;
	__u32 types; /* of no use but that the object then has the types of what only goes through rings */
	__u8 present[FIELDS];
};

struct facts facts SEC(".data.facts");

#define LOOKED_FOR(type, name, how, from, ...) \
	facts.present[FIELD_##name] = bpf_core_field_exists(((struct tcp_sock *)0)->from);

/* Run by user space. */
SEC("syscall")
int find_facts(void *ctx)
{
	(void)ctx;
	STATE_FIELDS(LOOKED_FOR, LOOKED_FOR)
	facts.has_tai = HAS_TAI;
	/* Two looks at one clock are apart too. */
	facts.offset_ns = facts.has_tai ? time_now() - bpf_ktime_get_ns() : 0;
	facts.types = bpf_core_type_id_local(struct sample) + bpf_core_type_id_local(struct private_state) +
		      bpf_core_type_id_local(enum field);
	return 0;
}

#endif
