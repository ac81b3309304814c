/* Holds each frame for HOLD_NS at a port's ingress: a device whose delay differs from another's by a known time.
 * It turns about in the kernel's monotonic clock, so a frame is held for HOLD_NS and at most one reading of the clock more.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#ifndef HOLD_NS
#error "HOLD_NS says how long"
#endif
#define READINGS 2000 /* of some 20 to 60 ns each; the verifier wants an end */

static unsigned long long (*now_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;

__attribute__((section("tc"), used)) int hold(struct __sk_buff *frame)
{
    unsigned long long until = now_ns() + HOLD_NS;
    for (int reading = 0; reading < READINGS && now_ns() < until; reading++)
        ;
    return TC_ACT_UNSPEC;
}

char licence[] __attribute__((section("license"), used)) = "GPL";
