/* Find which fields of a sample this kernel has, by the relocations that the programs are loaded with. */
#ifndef SOJOURN_TCPLOG_PRESENCE_H
#define SOJOURN_TCPLOG_PRESENCE_H

/* The properties of this kernel that user space reads. */
struct facts {
	__u64 offset_ns; /* from CLOCK_MONOTONIC to the clock of the samples */
	__u32 has_tai;
	__u32 types; /* unused; puts types into the object that otherwise occur only in rings */
	__u8 present[FIELDS];
};

struct facts facts SEC(".data.facts");

#define LOOKED_FOR(type, name, how, from, ...) \
	facts.present[FIELD_##name] = bpf_core_field_exists(((struct tcp_sock *)0)->from);

/* User space runs it. */
SEC("syscall")
int find_facts(void *ctx)
{
	(void)ctx;
	STATE_FIELDS(LOOKED_FOR, LOOKED_FOR)
	facts.has_tai = HAS_TAI;
	/* Two successive reads of one clock would differ, so the offset is exactly 0 there. */
	facts.offset_ns = facts.has_tai ? time_now() - bpf_ktime_get_ns() : 0;
	facts.types = bpf_core_type_id_local(struct sample) + bpf_core_type_id_local(struct private_state) +
		      bpf_core_type_id_local(enum field);
	return 0;
}

#endif
