"""Whatever bytes a reader is given, it reads them or refuses them in one sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sojourn.errors import RequestError
from sojourn.plan.load import load_plan
from sojourn.records.decode import DEEPEST, json_value, toml_tables
from tests.fuzz.targets import TARGETS, once, seeds

if TYPE_CHECKING:
    from pathlib import Path

edits = st.lists(
    st.tuples(
        st.sampled_from(["set", "insert", "cut", "copy", "end"]),
        st.floats(0, 1),
        st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 4, bytes(8), b"[", b"{", b"9" * 30])),
    ),
    max_size=6,
)


def mutated(octets: bytes, changes: list[tuple[str, float, bytes]]) -> bytes:
    """The bytes with these changes, each at a share of the length."""
    for kind, share, what in changes:
        at = int(share * len(octets))
        if kind == "set":
            octets = octets[:at] + what + octets[at + len(what) :]
        elif kind == "insert":
            octets = octets[:at] + what + octets[at:]
        elif kind == "cut":
            octets = octets[:at] + octets[at + len(what) :]
        elif kind == "copy":
            octets = octets[:at] + octets[max(0, at - 64) :]
        else:
            octets = octets[:at]
    return octets


@pytest.mark.parametrize("name", TARGETS)
def test_valid_seeds_are_read(name: str) -> None:
    whole = TARGETS[name].seeds()
    assert whole
    for octets in whole:
        TARGETS[name].read(octets)


@pytest.mark.parametrize("name", TARGETS)
@settings(deadline=None)
@given(data=st.data())
def test_any_bytes_are_read_or_refused(name: str, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(list(seeds(name))) | st.binary(max_size=200))
    once(TARGETS[name], mutated(seed, data.draw(edits)))


def test_a_column_whose_name_is_no_text_is_damage() -> None:
    """pyarrow raises UnicodeDecodeError for it, which is none of its own errors."""
    [whole] = TARGETS["log-samples"].seeds()
    assert b"segs_out" in whole
    once(TARGETS["log-samples"], whole.replace(b"segs_out", b"seg\x80_out"))


@pytest.mark.parametrize("depth", [DEEPEST + 1, 3000, 100_000])
@pytest.mark.parametrize("kind", ["arrays", "tables", "dotted", "quick"])
def test_a_plan_that_is_nested_too_deeply_is_refused_in_one_sentence(tmp_path: Path, depth: int, kind: str) -> None:
    path = tmp_path / "deep.toml"
    path.write_text({
        "arrays": "[study]\nname = " + "[" * depth + "]" * depth,
        "tables": "[study]\nname = " + "{a = " * depth + "1" + "}" * depth,
        "dotted": "[quick]\n" + ".".join(["a"] * depth) + " = 1",
        "quick": "[quick." + ".".join(["a"] * depth) + "]\nb = 1",
    }[kind])  # fmt: skip
    with pytest.raises(RequestError, match=r"deep\.toml: not TOML: more than \d+ arrays or tables within each other"):
        load_plan(path)


def test_lists_of_addresses_and_decimals_are_not_deep() -> None:
    addresses = ", ".join(f'"10.0.0.{last}"' for last in range(200))
    decimals = ", ".join(f"{value}.5" for value in range(200))
    tables = toml_tables(f"peers = [\n{addresses}\n]\nrates = [\n{decimals}\n]\n")
    assert len(tables["peers"]) == len(tables["rates"]) == 200


KEYS = ("{key} = 1", "[{key}]", "x = {{ {key} = 1 }}", '"a=b".{key} = 1', '"\\"".{key}."b" = 1')


@pytest.mark.parametrize("text", KEYS)
def test_key_of_a_hundred_thousand_parts_uses_little_memory(text: str) -> None:
    with pytest.raises(ValueError, match="within each other"):
        toml_tables(text.format(key=".".join(["a"] * 100_000)))


def test_numbers_of_thousands_of_digits_are_refused_in_every_format() -> None:
    with pytest.raises(ValueError, match="4300 digits"):
        json_value("9" * 5000)
    with pytest.raises(ValueError, match="4300 digits"):
        toml_tables("a = " + "9" * 5000)
    with pytest.raises(RequestError, match="rounds"):
        load_plan("bridge-latency", sets=["rounds=" + "9" * 5000])


def test_error_about_a_long_value_is_short() -> None:
    for octets in (b"x" * 3000, b"\x00" * 900):
        once(TARGETS["device-cpu"], octets)
        once(TARGETS["set"], b'probe.interval="' + octets + b'"')
    with pytest.raises(RequestError) as refused:
        TARGETS["device-cpu"].read(b"y" * 5000)
    said = str(refused.value)
    assert said.startswith("device_cpu = 'yyy")
    assert said.endswith("expected 'shared', 'own' or 'loaded:NN%' with NN from 1 to 95")
    assert len(said) < 1800


def test_a_row_of_results_that_names_no_path_is_read_or_refused() -> None:
    (whole,) = TARGETS["results"].seeds()
    once(TARGETS["results"], whole.replace(b'"device"', b'"levice"'))


def test_time_out_of_range_is_read_or_refused() -> None:
    (whole,) = TARGETS["log-samples"].seeds()
    half = len(whole) // 2
    once(TARGETS["log-samples"], whole[:half] + b"\0" + whole[half:])
