"""Which built-in studies run between real hosts whose clocks differ, and with which sentence the others are refused.

Each is asked on a bench that has a path for every device of the study. tests/unit/test_studies_over_ssh.py holds it for
every study, tests/net/test_real_hosts_studies.py runs those that are not refused.
"""

from __future__ import annotations

STUDIES: dict[str, str | None] = {
    "anomalies": None,
    "aqm": None,
    "background": None,
    "bridge-latency": None,
    "bridge-modes": None,
    "bridge-modes-tcp": None,
    "bufferbloat": None,
    "capture-cost": None,
    "coexistence": None,
    "cubic-region": None,
    "dummynet-tcp": None,
    "emulator-delay": None,
    "emulator-delay-rate": None,
    "emulator-loss": None,
    "emulator-overhead": None,
    "emulator-throughput": None,
    "fan-in": None,
    "frame-size": None,
    "loss": None,
    "model": None,
    "multicast": None,
    "one-way": None,
    "ping-wait": None,
    "rated-fan-in": None,
    "rated-frame-size": None,
    "rated-mixed": None,
    "rated-phase": None,
    "rated-queue": None,
    "rated-throughput": None,
    "rfc2544": None,
    "rfc2889": None,
    "rfc8219": None,
    "rrul": None,
    "rtt-fairness": None,
    "short-flows": None,
    "stages": None,
    "tcp-hypotheses": None,
    "tcp-methodology": None,
    "tcplog-cost": None,
    "tcplog-perturbation": None,
    "tcplog-truth": None,
    "throughput": None,
    "timestamp-accuracy": None,
    "variance": None,
}
