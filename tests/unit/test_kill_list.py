"""Every command is killed by a test, or has a reason why none kills it: the commands are those that the program has."""

from __future__ import annotations

import functools
from pathlib import Path

from scripts.command_tree import tree
from tests.net.test_kill_commands import BUILDERS, COMMANDS

ROOT = Path(__file__).resolve().parents[2]

OF_LOGS = "tests/net/test_kill_readers.py::test_killed_replay_or_recovery_of_an_emulator_log_can_be_repeated"
OF_MADE = (
    "tests/net/test_kill_readers.py::test_a_killed_timeline_conversion_or_plot_leaves_the_previous_or_the_new_file"
)
KILLED_ELSEWHERE = {
    "run": "tests/net/test_kill_commands.py::test_a_killed_study_leaves_nothing",
    "uplink": "tests/net/test_uplink.py::test_uplink_killed_at_any_moment_leaves_the_machine_as_it_was",
    "doctor": "tests/net/test_kill_commands.py::test_a_killed_doctor_leaves_nothing",
    "tcplog top": "tests/net/test_kill_commands.py::test_a_killed_table_of_flows_leaves_nothing",
    "bed clean": "tests/net/test_bed_kill.py::test_a_killed_clean_is_completed_by_the_next_and_leaves_live_runs",
    "bed check": "tests/net/test_real_hosts.py::test_a_killed_check_of_a_bed_has_its_hosts_clean_up",
    "bridge up": "tests/net/test_host_bridge.py::test_after_a_killed_up_or_down_another_down_restores_everything",
    "bridge down": "tests/net/test_host_bridge.py::test_after_a_killed_up_or_down_another_down_restores_everything",
    "new": "tests/net/test_kill_reports.py::test_a_killed_new_leaves_whole_files_alone",
    "report": "tests/net/test_kill_reports.py::test_killed_report_leaves_the_previous_or_the_new_one",
    "compare": "tests/net/test_kill_reports.py::test_a_killed_comparison_leaves_both_runs",
    "export": "tests/net/test_kill_reports.py::test_killed_export_leaves_the_previous_or_the_new_file",
    "dataset": "tests/net/test_kill_reports.py::test_killed_dataset_command_adds_all_or_nothing",
    "match": "tests/net/test_kill_readers.py::test_killed_match_leaves_captures_intact_and_no_partial_summary",
    "emulate offline": "tests/net/test_kill_readers.py::test_a_killed_offline_emulation_leaves_its_input",
    "emulate replay": OF_LOGS,
    "emulate recover": OF_LOGS,
    "timeline": OF_MADE,
    "tcplog convert": OF_MADE,
    "tcplog plot": OF_MADE,
    "tcplog recover": "tests/net/test_kill_readers.py::test_killed_recovery_of_a_tcp_log_can_be_repeated",
    "watch": "tests/net/test_kill_readers.py::test_a_killed_watch_leaves_no_process_and_no_port",
}
"""Commands that a test of their own kills."""

PRINTS = "it reads, prints and ends: it opens nothing in the kernel and writes no file"
ASKS = "it asks a program that runs over its socket, which answers or does not, and holds nothing itself"
SIMULATES = "it simulates, with no port; its records are those of the commands that are killed"

NOT_KILLED = {
    "list": PRINTS,
    "history": PRINTS,
    "why": PRINTS,
    "bed new": PRINTS,
    "bed show": PRINTS,
    "bridge status": PRINTS,
    "probe sim": SIMULATES,
    "stream sim": SIMULATES,
    "clock sim": SIMULATES,
    "emulate kernel": PRINTS,
    "emulate explain": PRINTS,
    "emulate set": ASKS,
    "emulate show": ASKS,
    "emulate ask": ASKS,
    "tcplog status": ASKS,
    "tcplog set": ASKS,
    "tcplog summary": PRINTS,
}
"""Commands that no test kills, and why."""

OF_THE_INSTRUMENT_ALONE = {"tcp send", "tcp receive", "tcp serve", "match-slice"}
"""Killed, and no command of `sojourn`: studies start them."""


@functools.cache
def commands() -> frozenset[str]:
    """Every command of `sojourn` that can be typed, without its name."""
    every = [(" ".join(words[1:]), command) for words, command in tree().all()]
    own = {words for words, command in every if not command.commands}
    # These two do something themselves, and have commands below them.
    return frozenset(own) | {words for words, command in every if words in {"clock", "capture"} and command.commands}


def killed_here() -> set[str]:
    """What tests/net/test_kill_commands.py starts, as it is typed."""
    found = set()
    for words in [*(words for _, words in COMMANDS.values()), *(words for words, _ in BUILDERS.values())]:
        known = [" ".join(words[:length]) for length in (2, 1)]
        every = commands() | OF_THE_INSTRUMENT_ALONE
        found.add(next(one for one in known if one in every))
    return found


def test_every_command_has_a_kill_test_or_a_stated_reason() -> None:
    lists = [killed_here(), set(KILLED_ELSEWHERE), set(NOT_KILLED)]
    told = [one for some in lists for one in some if one != "match"]  # with --live it is killed among the others
    assert len(told) == len(set(told)), "each in one list"
    assert set().union(*lists) - OF_THE_INSTRUMENT_ALONE == commands()
    assert killed_here() >= OF_THE_INSTRUMENT_ALONE


def test_named_kill_tests_exist() -> None:
    for command, test in KILLED_ELSEWHERE.items():
        file, name = test.split("::")
        assert "kill" in name
        assert f"\ndef {name}(" in (ROOT / file).read_text(), f"{command}: there is no {test}"


def test_a_test_that_is_said_to_kill_a_command_starts_it() -> None:
    for command, test in KILLED_ELSEWHERE.items():
        text = (ROOT / test.split("::")[0]).read_text()
        assert all(f'"{word}"' in text for word in command.split()), f"{test} does not start `{command}`"
