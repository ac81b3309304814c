/* What is decided about a packet, as pure functions: the programs in the kernel and the tests in user space run these very
 * lines.
 */
#ifndef SOJOURN_TCPLOG_DECIDE_H
#define SOJOURN_TCPLOG_DECIDE_H

#include "layout.h"

#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/* The fields whose change can be asked for, in the order of enum change. */
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
	/* A short division is a quick one. */
	past = first >> 32 ? first % ppl : (__u32)first % ppl;
	return past == 0 || past + count > ppl;
}

/* Mixes all bits of a number into all (the finalizer of MurmurHash3). */
static __always_inline __u64 mixed(__u64 number)
{
	number = (number ^ number >> 33) * 0xff51afd7ed558ccdULL;
	number = (number ^ number >> 33) * 0xc4ceb9fe1a85ec53ULL;
	return number ^ number >> 33;
}

/* Whether a flow is one of the 1 in `n`. */
static __always_inline __u32 flow_is_chosen(__u64 cookie, __u32 n)
{
	return n <= 1 || mixed(cookie) % n == 0;
}

/* Whether a sample at `now` comes sooner after the one at `last` than is wanted; 0: there was none. Another CPU's may be the
 * later one by a little; where it is by more, the clock has been set back, and there is nothing to wait for. */
static __always_inline __u32 is_early(__u64 now, __u64 last, __u64 interval)
{
	__u64 apart = now > last ? now - last : last - now;

	return interval && last && apart < interval;
}

/* Whether a ring of so many slots has none for the record at `position`, of which user space has read all before `read`. What was
 * interrupted between the two readings may find `read` beyond `position`: both have moved meanwhile, and that is not full. */
static __always_inline __u32 is_full(__u64 position, __u64 read, __u32 slots)
{
	return (__s64)(position - read) >= (__s64)slots;
}

/* Whether one of `count` ports is either end's; no ports: all are. */
static __always_inline __u32 ports_match(const __u16 *ports, __u32 count, __u16 local, __u16 remote)
{
	if (!count)
		return 1;
	for (__u32 i = 0; i < PORTS; i++)
		if (i < count && (ports[i] == local || ports[i] == remote))
			return 1;
	return 0;
}

/* What the chosen fields say, in one number that is never 0. */
static __always_inline __u64 digest(const struct watched *watched, __u64 changes)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < WATCHED; i++)
		if (changes & (1ULL << i))
			sum = mixed(sum + 0x9e3779b97f4a7c15ULL) ^ watched->fields[i];
	return mixed(sum) | 1;
}

#endif
