"""Every fuzz target has seeds in the corpus, small and whole: those that `python -m scripts.make_corpus` writes."""

from __future__ import annotations

import pytest

from scripts import fuzz_ledger
from scripts.fuzz_search import found_files
from scripts.make_corpus import (
    CORPUS,
    LEAST,
    LONGEST_FOUND,
    MOST,
    MOST_BYTES,
    MOST_FOUND,
    MOST_FOUND_BYTES,
    PYTHON,
    RUST,
    made,
    rust_targets,
)
from tests.fuzz.targets import TARGETS

MADE = dict(made())


def test_every_fuzz_target_has_a_corpus() -> None:
    assert sorted(RUST) == rust_targets()
    assert sorted(PYTHON) == sorted(TARGETS)
    assert len(RUST) > 25
    assert sorted(fuzz_ledger.targets()) == sorted(MADE)
    assert {path.parent.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file()} == set(MADE)


@pytest.mark.parametrize("name", MADE)
def test_stored_corpus_equals_the_generated_one(name: str) -> None:
    there = [path.read_bytes() for path in sorted((CORPUS / name).glob("made-*"))]
    assert LEAST <= len(there) <= MOST
    assert there == MADE[name]
    assert len(set(there)) == len(there)
    assert all(there)


def test_corpus_is_small() -> None:
    assert sum(path.stat().st_size for path in CORPUS.rglob("made-*")) < MOST_BYTES
    found = [path.stat().st_size for name in MADE for path in found_files(CORPUS / name)]
    assert sum(found) <= MOST_FOUND_BYTES
    assert max(found) <= LONGEST_FOUND
    assert max(sum(1 for _ in found_files(CORPUS / name)) for name in MADE) <= MOST_FOUND


@pytest.mark.parametrize("name", PYTHON)
def test_every_generated_seed_is_accepted(name: str) -> None:
    for octets in MADE[f"python/{name}"]:
        TARGETS[name].read(octets)
