"""What can be found in a measurement: a name, how grave it is, and what it says. One line each.

What an instrument says itself is declared in crates/record and comes with `schema.json`; what only the analysis says
stands here. The reference page is made of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from sojourn.records.schema import DECLARATION

Severity = Literal["note", "doubtful", "invalid"]


@dataclass(frozen=True, slots=True)
class FindingKind:
    """A name that a finding may have, how bad it is, and what it means."""

    name: str
    severity: Severity
    doc: str


OF_THE_ANALYSIS: Final = (
    FindingKind(
        "offload_on",
        "note",
        "An offload that may join, split or defer frames was on. Receive checksums, scatter-gather, VLAN tags and the "
        "segmentation of tunnels stay on at the ports of a bed and are not meant; `bed.json` lists what was on.",
    ),
    FindingKind("tester_limited", "doubtful", "The tester, not the device, limits the figure."),
    FindingKind("clock_one_sided", "note", "The clocks of a trial were compared before it alone, or behind it alone."),
    FindingKind(
        "clock_imprecise",
        "doubtful",
        "The maximum error of host B's times exceeds 1 % of the time that figures are of.",
    ),
    FindingKind(
        "turnaround_counted",
        "note",
        "Time of the answering program is in what a device is said to add.",
    ),
    FindingKind("periodic_delay", "note", "Delay recurs with a period."),
    FindingKind("periodic_in_time", "note", "Slow probes recur after equal times."),
    FindingKind("delay_ramps", "note", "Delay rises steadily for a while, again and again."),
    FindingKind("delay_steps", "note", "The level of the delay changes in a step."),
    FindingKind("drift", "note", "Delay drifts over the run."),
    FindingKind("several_modes", "note", "Delays cluster around several values."),
    FindingKind("phase_dependent", "note", "The delay of a regular stream depends on its phase to another."),
    FindingKind(
        "modes_differ",
        "doubtful",
        "Round trips over a path are in a slower mode more often than those over the direct link.",
    ),
    FindingKind("unsteady", "doubtful", "The level of the delay changed within the run."),
    FindingKind("too_few_pairs", "doubtful", "Too few pairs, rounds or beds for an interval at the stated level."),
    FindingKind("stopped_by_interval", "note", "The run ended because its headline's interval was narrow enough."),
    FindingKind(
        "target_not_reached",
        "note",
        "The run ended before its headline's interval met the rule for ending: narrow enough, after enough sessions, "
        "and confirmed by later ones.",
    ),
    FindingKind("a_a_nonzero", "doubtful", "Two measurements of the same direct link differ significantly."),
    FindingKind(
        "windows_collapse", "note", "Congestion windows collapse more often with the log than without, or less."
    ),
    FindingKind(
        "estimators_disagree",
        "note",
        "The mean of the pairs lies outside the interval of their pseudomedian: a few pairs determine the mean.",
    ),
    FindingKind(
        "directions_differ",
        "note",
        "A device takes longer in one direction than in the other: half a round trip is the latency of neither.",
    ),
    FindingKind("truncated_record", "doubtful", "A record file is cut off before its end."),
    FindingKind(
        "columns_missing",
        "invalid",
        "A record lacks columns that its version should have: figures computed from them are wrong.",
    ),
    FindingKind(
        "columns_unknown",
        "note",
        "A later version of Sojourn wrote the records: columns that this version does not know are left out.",
    ),
    FindingKind("contended", "note", "Other work competed for the processors."),
    FindingKind("contended_heavily", "doubtful", "Other work took half of the processors' time or more."),
    FindingKind(
        "device_disturbed",
        "doubtful",
        "Something happened to a device while it was measured: to a port of it, its program, its log or its clock.",
    ),
    FindingKind(
        "rules_unseen",
        "doubtful",
        "A device has nftables rules that no frame reached, for their family is not that of how it forwards: family "
        "bridge for bridged frames, ip, ip6 or inet for routed packets.",
    ),
    FindingKind(
        "blocks_lost",
        "note",
        "A host, a link or the controller failed, and blocks were lost; doubtful where they were not measured again.",
    ),
    FindingKind(
        "setting_not_taken",
        "doubtful",
        "A driver, or the kernel, took another value of a setting than the one that was asked.",
    ),
    FindingKind("setting_changed", "doubtful", "A setting that the run had set was another one at its end."),
    FindingKind("setting_not_restored", "note", "A setting is not what it was before the run: set it by hand."),
    FindingKind("settings_differ", "note", "The two ports of a path have unlike interrupt coalescing or ring sizes."),
    FindingKind(
        "delaying_settings",
        "note",
        "A setting in force delays frames: half duplex, a slower port, interrupts that wait for more frames, a link "
        "that sleeps, a governor that changes the frequency.",
    ),
    FindingKind(
        "log_interrupted",
        "doubtful",
        "Programs of the log of TCP's state were detached or replaced in a trial: what passed then is in no record.",
    ),
    FindingKind(
        "log_left_out",
        "note",
        "Trials with the log of TCP's state were left out, or are without it; no figure needs them.",
    ),
    FindingKind("ambiguous_matches", "note", "Identical packets were matched in their order."),
    FindingKind(
        "anomalous_cell",
        "note",
        "The latency that a device adds in one cell is far from that in its other cells; the cell was measured again "
        "by itself.",
    ),
    FindingKind(
        "taps_disagree",
        "note",
        "What a device adds by subtraction differs from what its taps measure by more than the uncertainty of both.",
    ),
    FindingKind(
        "segments_differ",
        "doubtful",
        "Messages over TCP did not leave as one segment each: the packet rate is not the configured one.",
    ),
    FindingKind(
        "segments_not_conserved",
        "doubtful",
        "TCP at the sender, the emulator and TCP at the receiver disagree on how many segments of a flow there were.",
    ),
    FindingKind("below_floor", "invalid", "A delay is below the minimum that the path can have."),
    FindingKind("interference", "note", "Something outside the experiment disturbed it."),
    FindingKind(
        "path_not_filled", "doubtful", "Flows of TCP, or a train of packets, left a part of the path's rate unused."
    ),
    FindingKind(
        "round_trip_differs",
        "doubtful",
        "The least round trip that flows of TCP measured is not the one that the plan gave them.",
    ),
    FindingKind("path_dead", "invalid", "No frame of the stream arrived."),
    FindingKind("model_misfit", "note", "The queueing model does not predict the measured delays."),
    FindingKind("stamps_out_of_order", "note", "Timestamps along a frame's path are not in the order of the path."),
    FindingKind("rate_rises_with_size", "doubtful", "Longer frames passed at a higher rate than shorter ones."),
    FindingKind("goals_contradict", "note", "A rate that allows a loss is lower than one that allows less."),
    FindingKind(
        "rate_not_sustained", "doubtful", ("A later trial lost frames at a rate that a search had found without loss.")
    ),
    FindingKind(
        "search_disagrees", "doubtful", ("The bounds that a search reported differ from those that its trials give.")
    ),
    FindingKind(
        "loss_unverified", "note", ("A loss did not recur in a second trial at the same load, and was not counted.")
    ),
    FindingKind("too_few_frames", "note", "A trial had fewer frames than the standard requires."),
    FindingKind(
        "not_conserved",
        "invalid",
        "The frames sent are not each counted exactly once as received, damaged, dropped by the tester or lost.",
    ),
    FindingKind(
        "impossible",
        "invalid",
        "A figure is impossible, such as a negative delay spread: the analysis contradicts itself.",
    ),
)

LABELS: Final = {"stamps_out_of_order": "timestamps out of order"}
"""What people read in place of a name that records keep."""


def label(name: str) -> str:
    """The name of a finding in words."""
    return LABELS.get(name, name.replace("_", " "))


FINDINGS: Final[dict[str, FindingKind]] = {
    one.name: one for one in (*(FindingKind(**one) for one in DECLARATION["findings"]), *OF_THE_ANALYSIS)
}
