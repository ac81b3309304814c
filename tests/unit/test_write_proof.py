"""The proof page says what logs, records and figures say; what did not run, or on another commit, is marked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from scripts import proof_figures, write_proof
from scripts.proof_page import BEGIN, END, SUITES, page, with_lines

ROOT = Path(__file__).parents[2]
COMMIT = "0123456789ab"
MACHINE = {"cpu": "a processor", "cores": 2, "virtual": True, "kernel": "6.1"}
BEGAN = {"date": "2026-11-26", "commit": COMMIT, "machine": MACHINE}

CARGO = """
test one ... ok
test result: ok. 21 passed; 0 failed; 3 ignored; 0 measured; 78 filtered out; finished in 165.49s
test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
"""
PYTEST = "...F\n=================== 1 failed, 40 passed, 2 skipped in 120.34s (0:02:00) ===================\n"
FUZZ = """capture                 Done 4567890 runs in 601 second(s)
layers                  FOUND: build/fuzz/layers.log
fuzz: not searched to the end, or cannot be taken: layers; see build/fuzz/*.log and build/fuzz/found
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    """A build folder in which a proof has begun."""
    build = tmp_path / "build"
    write(build / "proof/began.json", BEGAN)
    return build


def write(path: Path, told: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(told if isinstance(told, str) else json.dumps(told))


def ran(build: Path, name: str, log: str, status: int = 0, commit: str = COMMIT) -> None:
    """A suite that came to its end."""
    write(build / f"{name}.log", log)
    write(build / f"suites/{name}.json", {"status": status, "seconds": 75, "commit": commit})


def of(build: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [one for one in write_proof.collected(build)["suites"] if one["name"] == name]
    return found


def test_outcomes_in_suite_logs_are_counted(build: Path) -> None:
    ran(build, "proof-cargo", CARGO, 1)
    ran(build, "proof-examples", PYTEST, 1)
    assert of(build, "proof-cargo") == {
        "name": "proof-cargo", "outcome": "failed", "passed": 25, "failed": 2, "skipped": 0, "seconds": 75, **BEGAN
    }  # fmt: skip
    assert of(build, "proof-examples") == {
        "name": "proof-examples", "outcome": "failed", "passed": 40, "failed": 1, "skipped": 2, "seconds": 75, **BEGAN
    }  # fmt: skip


def test_a_status_that_is_not_0_is_a_failure_whatever_was_counted(build: Path) -> None:
    ran(build, "proof-net", "=== 7 passed in 3.00s ===\n", 1)
    assert of(build, "proof-net")["outcome"] == "failed"


def test_a_suite_of_another_commit_did_not_run(build: Path) -> None:
    ran(build, "proof-pytest", PYTEST, commit="another")
    assert of(build, "proof-pytest") == {"name": "proof-pytest", "outcome": "not run"}
    assert of(build, "proof-bare") == {"name": "proof-bare", "outcome": "not run"}


def test_outcome_is_taken_from_the_log_if_not_recorded(build: Path) -> None:
    write(build / "proof-examples.log", PYTEST)
    write(build / "proof-net.log", "3 workers [106 items]\n......")
    write(build / "proof-cargo.log", "error[E0596]: cannot borrow\nerror: could not compile\n")
    write(build / "proof-fuzz.log", FUZZ)
    outcomes = {name: of(build, name)["outcome"] for name in ("proof-examples", "proof-net", "proof-cargo")}
    assert outcomes == {"proof-examples": "failed", "proof-net": "not ended", "proof-cargo": "failed"}
    assert of(build, "proof-examples")["seconds"] == 120
    assert of(build, "proof-fuzz")["outcome"] == "failed"


def test_log_older_than_the_proof_is_ignored(build: Path) -> None:
    write(build / "proof-pytest.log", PYTEST)
    os.utime(build / "proof-pytest.log", (1e9, 1e9))
    assert of(build, "proof-pytest")["outcome"] == "not run"


GALLERY = "# Gallery\n\non shared machines. Of 44 verdicts, 12 are doubtful and 32 are trusted. A verdict is part\n"


def test_proof_without_a_start_record_uses_the_commit_of_its_folder(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    write(tmp_path / "build/proof-pytest.log", "=== 7 passed in 0.00s ===\n")
    write(tmp_path / "build/proof-net.log", "=== 7 passed in 2228.00s (0:37:08) ===\n")  # begun before the commit
    write(tmp_path / "build/proof-alone.log", "=== 7 passed in 3.00s ===\n")
    os.utime(tmp_path / "build/proof-alone.log", (1e9, 1e9))
    found = write_proof.collected(tmp_path / "build")
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
    assert head.startswith(found["commit"])
    assert found["commit"]
    outcomes = {one["name"]: one["outcome"] for one in found["suites"]}
    assert [outcomes[name] for name in ("proof-pytest", "proof-alone", "proof-net")] == ["passed", "not run", "not run"]
    assert "the proof recorded none" in page(found)


def test_page_contains_fuzzing_verdicts_kernels_and_figures(build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(build, "proof-fuzz", FUZZ, 1)
    ran(build, "proof-net", "=== 7 passed in 3.00s ===\n")
    ran(build, "proof-pytest", "=== 9 passed in 3.00s ===\n")
    write(build / "verdicts/aqm.txt", "proof-net: aqm: doubtful: A round trip takes 95.7 ms: grade C | so.\n")
    told = {"kernel": "6.12", "passed": 15, "failed": 1, "not_done": 0}
    write(build / "kernels/judged.json", {"commit": COMMIT, "kernels": [told, {"kernel": "6.1-arm64"}]})
    monkeypatch.setenv(proof_figures.FOLDER, str(build / "proof/figures"))
    monkeypatch.setattr(proof_figures, "commit", lambda _: COMMIT)
    monkeypatch.setenv(proof_figures.SUITE, "proof-pytest")
    proof_figures.record("coverage", "mean of pairs", "a::b[1]", {"held": 1890, "of": 2000})
    proof_figures.record("coverage", "mean of pairs", "a::b[2]", {"held": 1920, "of": 2000})
    proof_figures.record("coverage", "a device of infinite variance: a known limit", "a::e", {"held": 1400, "of": 2000})
    proof_figures.record("coverage", "next run's mean", "a::f", {"held": 1500, "of": 2000})
    proof_figures.record("kills", "runs of a study", "a::c", {"kills": 12})
    monkeypatch.setattr(proof_figures, "commit", lambda _: "another")
    proof_figures.record("kills", "runs of a study", "a::d", {"kills": 700})
    facts = write_proof.collected(build)
    text = page(facts)
    for line in (
        "| `capture` | nothing found | 4,567,890 | 10 min 1 s |",
        "| `layers` | ended by bytes that it cannot take | – | – |",
        r"| `aqm` | `proof-net` | doubtful | A round trip takes 95.7 ms: grade C \| so. |",
        f"| Linux 6.12 | 15 | 1 | 0 | 2026-11-26 | `{COMMIT}` |",
        f"| Linux 6.1-arm64 | not run | not run | not run | 2026-11-26 | `{COMMIT}` |",
        "| mean of pairs | 2 | 4,000 | 94.5 % | 95.2 % | 96.0 % |",
        "| runs of a study | 1 | 12 |",
    ):
        assert f"{line}\n" in text, text
    lines = with_lines(f"a\n{BEGIN}\nold\n{END}\nb\n", facts, write_proof.measured_alone(GALLERY))
    assert "old" not in lines
    assert "95.2 % of simulated runs in the median of the proof's 2 cases, in 94.5 %" in " ".join(lines.split())
    assert "gallery](docs/gallery.md)'s 44 archived runs, 12 are doubtful and 32 are trusted" in " ".join(lines.split())
    assert "2 of 11 suites passed, 1 failed, 8 without a whole run; 16 tests passed" in " ".join(lines.split())


def test_suites_that_did_not_run_keep_what_an_earlier_proof_found(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figure(suite: str, kills: int) -> None:
        monkeypatch.setenv(proof_figures.SUITE, suite)
        proof_figures.record("kills", "runs of a study", f"test of {suite}", {"kills": kills})

    monkeypatch.setenv(proof_figures.FOLDER, str(build / "proof/figures"))
    monkeypatch.setattr(proof_figures, "commit", lambda _: COMMIT)
    ran(build, "proof-fuzz", FUZZ, 1)
    ran(build, "proof-net", "=== 7 passed in 3.00s ===\n")
    ran(build, "proof-kills", "=== 8 passed in 3.00s ===\n")
    write(build / "verdicts/aqm.txt", "proof-net: aqm: doubtful: A round trip takes 95.7 ms.\n")
    figure("proof-kills", 12)
    figure("proof-net", 5)
    earlier = write_proof.collected(build)

    later = {**BEGAN, "date": "2026-11-30", "commit": "a later one"}
    again = tmp_path / "again"
    write(again / "proof/began.json", later)
    monkeypatch.setenv(proof_figures.FOLDER, str(again / "proof/figures"))
    monkeypatch.setattr(proof_figures, "commit", lambda _: "a later one")
    ran(again, "proof-net", "=== 9 passed in 3.00s ===\n", commit="a later one")
    write(again / "verdicts/one-way.txt", "proof-net: one-way: trusted: A frame takes 3 µs.\n")
    figure("proof-net", 6)
    facts = write_proof.with_earlier(write_proof.collected(again), earlier)

    told = {one["name"]: (one["outcome"], one.get("commit"), one.get("date")) for one in facts["suites"]}
    assert told["proof-net"] == ("passed", "a later one", "2026-11-30")
    assert told["proof-kills"] == ("passed", COMMIT, "2026-11-26")
    assert told["proof-cargo"] == ("not run", None, None)
    assert sorted(one["numbers"]["kills"] for one in facts["figures"]) == [6, 12]
    assert [one["study"] for one in facts["verdicts"]] == ["one-way"]
    assert facts["fuzzing"] == earlier["fuzzing"]
    text = page(facts)
    assert "| dates | 2026-11-26 to 2026-11-30 |" in text
    assert f"`a later one`, `{COMMIT}` |" in text or f"`{COMMIT}`, `a later one` |" in text
    lines = with_lines(f"{BEGIN}\n{END}\n", facts, write_proof.measured_alone(GALLERY))
    assert "of 2026-11-26 to 2026-11-30 (2 commits, 2 cores): 2 of 11 suites" in " ".join(lines.split())


def test_soak_stays_until_another_soak(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make soak`, a proof of proof-alone, whose tests are the same ones for two minutes, and `make soak` once more."""

    def figure(build: Path, suite: str, commit: str, seconds: int, test: str = "a::load") -> None:
        monkeypatch.setenv(proof_figures.FOLDER, str(build / "proof/figures"))
        monkeypatch.setenv(proof_figures.SUITE, suite)
        monkeypatch.setattr(proof_figures, "commit", lambda _: commit)
        monkeypatch.setattr(proof_figures, "today", lambda: f"of {commit}")
        growth = {"rise_bytes": 1.5e6, "bytes_per_hour": 0.1, "half_bytes_per_hour": 0.2}
        proof_figures.record("soak", f"emulator, {test}", test, {"seconds": seconds, "packets": 7, **growth})

    def told(facts: dict[str, Any]) -> set[tuple[str, str, int]]:
        every = [one for one in facts["figures"] if one["kind"] == "soak"]
        return {(one["suite"], one["test"], one["numbers"]["seconds"]) for one in every}

    def proof(build: Path, earlier: dict[str, Any]) -> dict[str, Any]:
        found = write_proof.collected(build)
        assert write_proof.has_proof(found)
        return write_proof.with_earlier(found, earlier)

    of_soak, of_log = ("soak", "a::load", 3600), ("soak", "a::log", 3600)
    nothing = write_proof.collected(tmp_path / "nothing")
    assert not write_proof.has_proof(nothing)
    build = tmp_path / "build"
    figure(build, "soak", "first", 3600)
    figure(build, "soak", "first", 3600, "a::log")
    page_of_soak = proof(build, nothing)
    assert told(page_of_soak) == {of_soak, of_log}
    assert "| emulator, a::load | 60 min 0 s | 7 | 1.50 MB | 0.0 ± 0.0 MB | of first | `first` |\n" in page(
        page_of_soak
    )

    # In the same folder, whose figures a proof deletes as it begins, and in another.
    for again, commit in ((build, "second"), (tmp_path / "again", "third")):
        for path in again.glob("proof/figures/*.json"):
            path.unlink()
        write(again / "proof/began.json", {**BEGAN, "commit": commit})
        ran(again, "proof-alone", "=== 9 passed in 3.00s ===\n", commit=commit)
        figure(again, "proof-alone", commit, 120)
        after = proof(again, page_of_soak)
        assert told(after) == {of_soak, of_log, ("proof-alone", "a::load", 120)}
        text = page(after)
        assert "| 60 min 0 s | 7 | 1.50 MB | 0.0 ± 0.0 MB | of first | `first` |\n" in text
        assert f"| 2 min 0 s | 7 | 1.50 MB | 0.0 ± 0.0 MB | 2026-11-26 | `{commit}` |\n" in text

    # A soak of another commit than that of the proof in its folder; of its two tests one fails.
    figure(build, "soak", "fourth", 7200)
    last = proof(build, after)
    assert told(last) == {("soak", "a::load", 7200), of_log, ("proof-alone", "a::load", 120)}
    assert "| of fourth | `fourth` |\n" in page(last)


def test_make_soak_records_its_own_suite_and_writes_the_page() -> None:
    argv = ["make", "-n", "soak", "SECONDS=600"]
    said = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tests, page_after = said.index("tests/net/test_soak.py"), said.index("-m scripts.write_proof")
    assert f"{proof_figures.FOLDER}={ROOT}/build/proof/figures" in said[:tests]
    assert f"{proof_figures.SUITE}={proof_figures.SOAK} SOJOURN_SOAK=600 " in said[:tests]
    assert tests < page_after


def test_missing_record_is_distinguished_from_a_suite_that_did_not_run(build: Path) -> None:
    ran(build, "proof-pytest", "=== 9 passed in 3.00s ===\n")
    text = page(write_proof.collected(build))
    told = {part.split("\n")[0]: part.strip().split("\n")[-1] for part in text.split("\n## ")}
    assert told["Coverage of intervals"] == "Not recorded."
    assert told["Kills"] == told["Fuzzing"] == told["Soak"] == told["Bare systems"] == "Not run."


def test_every_suite_of_the_scripts_is_described(build: Path) -> None:
    assert write_proof.suites() == list(SUITES)
    assert len(page(write_proof.collected(build)).split("not run |")) == len(SUITES) + 1


def test_a_page_or_a_readme_that_was_edited_by_hand_fails_the_check(
    tmp_path: Path, build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(build, "proof-cargo", CARGO, 1)
    write(tmp_path / write_proof.FACTS, write_proof.collected(build))
    write(tmp_path / write_proof.README, f"# Sojourn\n\n{BEGIN}\n{END}\n")
    write(tmp_path / write_proof.GALLERY, GALLERY)
    assert write_proof.laid_out(tmp_path, check=False) == 0
    assert write_proof.laid_out(tmp_path, check=True) == 0
    for path in (write_proof.PAGE, write_proof.README):
        whole = (tmp_path / path).read_text()
        assert "25" in whole
        write(tmp_path / path, whole.replace("25", "26"))
        assert write_proof.laid_out(tmp_path, check=True) == 1
        assert f": {path}\n" in capsys.readouterr().out
        write(tmp_path / path, whole)


def test_failed_suites_are_said(build: Path) -> None:
    ran(build, "proof-cargo", CARGO, 1)
    facts = write_proof.collected(build)
    [one] = [one for one in facts["suites"] if one["name"] == "proof-cargo"]
    one |= {"outcome": "failed", "date": "2026-11-30", "again": "passed"}
    said = "proof-cargo of 2026-11-30 failed; those that failed, again by themselves: passed"
    assert write_proof.failed(facts) == [said]
    one["outcome"] = "passed"
    assert write_proof.failed(facts) == []


def test_searches_of_readers_that_are_no_target_any_more_are_left_out(tmp_path: Path, build: Path) -> None:
    ran(build, "proof-fuzz", FUZZ, 1)
    facts = write_proof.collected(build)
    assert [one["target"] for one in facts["fuzzing"]] == ["capture", "layers"]
    write(tmp_path / write_proof.FACTS, facts)
    write(tmp_path / write_proof.README, f"# Sojourn\n\n{BEGIN}\n{END}\n")
    write(tmp_path / write_proof.GALLERY, GALLERY)
    assert write_proof.laid_out(tmp_path, check=False) == 0
    text = (tmp_path / write_proof.PAGE).read_text()
    assert "| `capture` | nothing found |" in text
    assert "layers" not in text


def test_folder_without_a_proof_does_not_change_the_data(build: Path) -> None:
    assert not write_proof.has_proof(write_proof.collected(build))
    ran(build, "pytest", "=== 9 passed in 3.00s ===\n")  # of `make test`
    assert not write_proof.has_proof(write_proof.collected(build))
    ran(build, "proof-pytest", "=== 9 passed in 3.00s ===\n")
    assert write_proof.has_proof(write_proof.collected(build))


def test_files_written_by_a_proof_do_not_change_its_commit(tmp_path: Path) -> None:
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    write(tmp_path / "README.md", "a")
    write(tmp_path / "other", "a")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "one"]):
        subprocess.run([*git, *words], check=True)
    clean = proof_figures.commit(tmp_path)
    assert len(clean) == 12
    parts = f"cd {tmp_path}; eval \"$(sed -n '/^commit() {{/,/^}}/p' {ROOT}/scripts/parts.sh)\"; commit"
    for path, said in (("README.md", clean), ("other", f"{clean}-dirty")):
        write(tmp_path / path, "b")
        proof_figures.commit.cache_clear()
        assert proof_figures.commit(tmp_path) == said
        assert subprocess.run(["bash", "-c", parts], capture_output=True, text=True, check=True).stdout == said


def test_figures_are_recorded_only_during_a_proof_with_their_required_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(proof_figures.FOLDER, raising=False)
    proof_figures.record("kills", "a", "t", {"kills": 1})
    monkeypatch.setenv(proof_figures.FOLDER, str(tmp_path / "figures"))
    with pytest.raises(ValueError, match="has kills, not deaths"):
        proof_figures.record("kills", "a", "t", {"deaths": 1})
    assert not [*tmp_path.iterdir()]
    proof_figures.record("kills", "a", "t", {"kills": 1})
    proof_figures.record("kills", "a", "t", {"kills": 2})
    (path,) = (tmp_path / "figures").iterdir()
    assert json.loads(path.read_text())["numbers"] == {"kills": 2}


def test_only_the_suites_that_were_asked_for_run(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("parts.sh", "paths.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    lines = (
        'wanted_suites "$@" || exit 2', "suite one sh -c 'echo $SOJOURN_SUITE'", "suite two true",
        "suite_beside three sh -c 'echo $SOJOURN_SUITE'", "suite_ended three",
        "suite_side_by_side four 0 true", "closing_lines",
    )  # fmt: skip
    (tmp_path / "scripts/some.sh").write_text("\n".join(['. "$(dirname "$0")/parts.sh"', *lines]))
    argv = ["bash", "scripts/some.sh"]
    done = subprocess.run([*argv, "one", "three"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["one: one", "three: three"]
    assert {path.stem for path in (tmp_path / "build/suites").iterdir()} == {"one", "three"}
    done = subprocess.run([*argv, "five"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scripts/some.sh: there is no suite five: expected some of one two three four\n"


def test_scripts_record_the_outcome_of_each_suite(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("parts.sh", "paths.sh"):
        shutil.copy(ROOT / "scripts" / name, tmp_path / "scripts")
    lines = (
        "suite well echo fine", "suite ill sh -c 'echo no; exit 3'", "suite_beside later true", "suite_ended later",
        "closing_lines",
    )  # fmt: skip
    (tmp_path / "scripts/some.sh").write_text("\n".join(['. "$(dirname "$0")/parts.sh"', *lines]))
    done = subprocess.run(["bash", "scripts/some.sh"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    found = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "build/suites").iterdir()}
    assert {name: one["status"] for name, one in found.items()} == {"well": 0, "ill": 3, "later": 0}
    assert all(set(one) == {"status", "seconds", "commit"} for one in found.values())
