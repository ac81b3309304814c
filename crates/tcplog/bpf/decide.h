/* The decisions about a packet, as pure functions. The programs in the kernel and the tests in user space compile the
 * same source.
 */
#ifndef SOJOURN_TCPLOG_DECIDE_H
#define SOJOURN_TCPLOG_DECIDE_H

#include "layout.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* The number of fields that a sample can depend on (enum change), in the order of that enum. */
#define WATCHED 11

struct watched {
	__u64 fields[WATCHED];
};

/* Whether a multiple of `ppl` lies in [first, first + count): the packets, or segments, of one skb. */
static __always_inline __u32 is_multiple(__u64 first, __u32 count, __u32 ppl)
{
	__u64 past;

	if (ppl <= 1)
		return 1;
	/* A 32-bit division is faster than a 64-bit one. */
	past = first >> 32 ? first % ppl : (__u32)first % ppl;
	return past == 0 || past + count > ppl;
}

/* Mix each bit of a number into all others (the finalizer of MurmurHash3). */
static __always_inline __u64 mixed(__u64 number)
{
	number = (number ^ number >> 33) * 0xff51afd7ed558ccdULL;
	number = (number ^ number >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return number ^ number >> 33;
}

/* Whether the hash of a flow's cookie selects it as one in `n`. */
static __always_inline __u32 flow_is_chosen(__u64 cookie, __u32 n)
{
	return n <= 1 || mixed(cookie) % n == 0;
}

/* Whether the time from sample `last` to `now` is below the minimum interval; `last` 0: no sample yet. Timestamps of
 * two CPUs may be slightly out of order, so the absolute difference counts. A larger step backwards means that the
 * clock was set: such a sample is not early. */
static __always_inline __u32 is_early(__u64 now, __u64 last, __u64 interval)
{
	__u64 apart = now > last ? now - last : last - now;

	return interval && last && apart < interval;
}

/* Whether the ring has no slot for the record at `position`; user space has read all records before `read`. A program
 * interrupted between the two loads may see `read` beyond `position`, because both have advanced meanwhile: the ring is
 * not full then. */
static __always_inline __u32 is_full(__u64 position, __u64 read, __u32 slots)
{
	return (__s64)(position - read) >= (__s64)slots;
}

/* Whether one of `count` ports is the local or the remote one; true where `count` is 0. */
static __always_inline __u32 ports_match(const __u16 *ports, __u32 count, __u16 local, __u16 remote)
{
	if (!count)
		return 1;
	for (__u32 i = 0; i < PORTS; i++)
		if (i < count && (ports[i] == local || ports[i] == remote))
			return 1;
	return 0;
}

/* A digest of the fields that `changes` selects; never 0. */
static __always_inline __u64 digest(const struct watched *watched, __u64 changes)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < WATCHED; i++)
		if (changes & (1ULL << i))
			sum = mixed(sum + 0x9e3779b97f4a7c15ULL) ^ watched->fields[i];
	return mixed(sum) | 1;
}

#endif
