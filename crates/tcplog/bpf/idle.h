/* Programs that replace the logging ones to measure their cost: the null program does nothing; the placebo burns CPU
 * time and touches nothing else, as the authors of SIFTR did (siftr-2007) to separate the effect of logging from that
 * of its time.
 */
#ifndef SOJOURN_TCPLOG_IDLE_H
#define SOJOURN_TCPLOG_IDLE_H

#define MOST_TURNS 1024

SEC("cgroup_skb/ingress")
int empty_in(struct __sk_buff *skb)
{
	(void)skb;
	return PASS;
}

SEC("cgroup_skb/egress")
int empty_out(struct __sk_buff *skb)
{
	(void)skb;
	return PASS;
}

/* Run the busy loop; a turn takes some nanoseconds. */
static __always_inline int burn(__u64 number)
{
	__u32 turns = current_options()->burn;

	for (__u32 turn = 0; turn < MOST_TURNS && turn < turns; turn++) {
		number = mixed(number);
		asm volatile("" : "+r"(number));
	}
	return PASS;
}

SEC("cgroup_skb/ingress")
int placebo_in(struct __sk_buff *skb)
{
	return burn(skb->len);
}

SEC("cgroup_skb/egress")
int placebo_out(struct __sk_buff *skb)
{
	return burn(skb->len);
}

#endif
