"""What earlier versions wrote, read under the names of this one."""

from __future__ import annotations

import json

import pytest

from sojourn.records.earlier import plan_text, read_json, read_toml


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"arm": "bridge", "laws": ["sham-explains"]}, {"path": "bridge", "hypotheses": ["placebo-explains"]}),
        ({"spec": {"decoy": True}}, {"spec": {"bypass": True}}),
        ({"x": {"bridge/decoy": {"path": "wire/decoy"}}}, {"x": {"bridge/bypass": {"path": "wire/bypass"}}}),
        ({"event": "sham", "took_ns": {"on": 3, "sham": 2}}, {"event": "placebo", "took_ns": {"on": 3, "placebo": 2}}),
        ({"departure_error_ns": {"p99": 4}}, {"pacing_error_ns": {"p99": 4}}),
        ({"foreign": 1, "own_drops": 2}, {"unexpected": 1, "local_drops": 2}),
        ({"fates": 3, "settle": "2s"}, {"dispositions": 3, "grace": "2s"}),
        ({"devices": {"sham": {"arms": {"settle": {}}}}}, {"devices": {"sham": {"arms": {"settle": {}}}}}),
    ],
)
def test_old_keys_values_and_paths_are_mapped_to_current_names(old: object, new: object) -> None:
    """But for tables, whose names their users chose."""
    assert read_json(json.dumps(old)) == new


def test_mapping_old_names_keeps_line_numbers_of_a_plan() -> None:
    text = '[bed]\ndecoy = true # settle\n[trials]\nsettle = "2s"\n[costs]\ncontrols = ["empty", "sham"]\n'
    today = '[bed]\nbypass = true # settle\n[trials]\ngrace = "2s"\n[costs]\ncontrols = ["empty", "placebo"]\n'
    assert plan_text(text) == today
    assert read_toml(text) == {
        "bed": {"bypass": True}, "trials": {"grace": "2s"}, "costs": {"controls": ["empty", "placebo"]},
    }  # fmt: skip
