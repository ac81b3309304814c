#!/usr/bin/env bash
# Runs what takes too long for test.sh: statistics over thousands of repetitions, many kills, long studies, bare machines.
# With names of suites, only those: the proof page keeps what it has of the others, each with its own commit and date.
. "$(dirname "$0")/parts.sh"
wanted_suites "$@" || exit 2
export CI=1 # what is skipped is not proven, so it fails
rm -rf build/verdicts
export SOJOURN_PROOF=$PWD/build/proof/figures # where tests record figures for the proof page
.venv/bin/python -m scripts.write_proof --begin || exit 1
after_suite() { .venv/bin/python -m scripts.write_proof; } # a proof that is broken off keeps the suites that have ended

suite proof-cargo .venv/bin/python scripts/cargo_tests.py --ignored
suite proof-properties env PROPTEST_CASES=2000 .venv/bin/python scripts/cargo_tests.py --properties
suite proof-examples env SOJOURN_EXAMPLES=1000 .venv/bin/pytest -n auto --dist worksteal -m "hypothesis and not proof" tests/unit
suite proof-pytest .venv/bin/pytest -n auto --dist loadgroup -m proof tests --ignore tests/net --ignore tests/bare
# What judges no time runs side by side: the search for bytes that readers of captures and of frames cannot take (`make fuzz` has all
# targets), which takes what the others leave; every study once and bare systems, an hour of which half is waiting; and frames that
# are counted, as in test.sh. What measures time has the cores alone afterwards. What other work spoilt runs once more by itself, and
# the page says so. Linux weighs sessions against each other before it looks at nice values within one (sched(7), autogroup).
idle='if [ -w /proc/self/autogroup ]; then echo 19 >/proc/self/autogroup; fi'
suite_beside proof-fuzz bash -c "$idle; exec nice -n 19 scripts/fuzz.sh 600 capture frame digest headers"
suite_beside proof-published .venv/bin/pytest -m proof tests/net/test_published.py
suite_beside proof-bare .venv/bin/pytest -m proof tests/bare
suite_side_by_side proof-kills 3 -m 'proof and not alone' tests/net/test_bed_kill.py tests/net/test_kill_*.py
suite_side_by_side proof-hosts 3 -m 'proof and not alone' tests/net/test_real_hosts*.py tests/net/test_host_faults.py
suite_side_by_side proof-net 3 -m 'proof and not alone' tests/net --ignore tests/net/test_published.py --ignore tests/net/test_bed_kill.py \
    --ignore-glob '*/test_kill_*.py' --ignore-glob '*/test_real_hosts*.py' --ignore tests/net/test_host_faults.py
suite_ended proof-published
suite_ended proof-bare
suite_ended proof-fuzz
suite_side_by_side proof-alone 0 -m 'proof and alone' tests/net
printf '\nVerdicts of the studies:\n'
cat build/verdicts/*.txt 2>/dev/null
printf '\nThe proof page:\n'
.venv/bin/python -m scripts.write_proof || failed=1
closing_lines
