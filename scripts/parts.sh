#!/usr/bin/env bash
# Sourced by test.sh and proof.sh: runs suites one after the other, all even if one fails, and ends with their closing lines.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/paths.sh
mkdir -p build
export SOJOURN_FAILURES=$PWD/build/failures.log # each failure as it comes: tests/conftest.py
rm -f "$SOJOURN_FAILURES"
failed=0
status=0 # of the last suite
suites=()
declare -A took beside began_beside
declare -A begun_at

# The commit that the folder stands at, as scripts/proof_figures.py says it: what a proof writes itself does not count.
commit() {
    local written=(':(top,exclude)README.md' ':(top,exclude)docs/reference/proof.md' ':(top,exclude)docs/reference/proof.json')
    printf '%s' "$(git rev-parse --short=12 HEAD 2>/dev/null)"
    git diff --quiet HEAD -- . "${written[@]}" 2>/dev/null
    [ $? != 1 ] || printf -- -dirty
}

only=() # the suites that were asked for; none: all

# Keeps the names of the suites that were asked for, each of which must be one of the script that runs.
wanted_suites() { # NAME…
    local name known
    known=$(sed -nE 's/^suite(_beside|_side_by_side)? ([a-z-]+) .*/\2/p' "scripts/${0##*/}")
    for name in "$@"; do
        if ! grep -qxF -- "$name" <<<"$known"; then
            printf '%s: there is no suite %s: expected some of %s\n' "$0" "$name" "$(paste -sd ' ' <<<"$known")" >&2
            return 1
        fi
    done
    only=("$@")
}

# Whether a suite was asked for.
is_wanted() { # NAME
    [ ${#only[@]} = 0 ] || [[ " ${only[*]} " = *" $1 "* ]]
}

# Runs a suite that was asked for.
suite() { # NAME COMMAND…
    ! is_wanted "$1" || run_suite "$@"
}

# Runs a suite; its output also goes to build/NAME.log.
run_suite() { # NAME COMMAND…
    local began=$SECONDS
    rm -f "build/suites/$1.json"
    begun_at[$1]=$(commit)
    SOJOURN_SUITE=${1%-again} "${@:2}" 2>&1 | tee "build/$1.log"
    status=${PIPESTATUS[0]}
    [ "$status" = 0 ] || failed=1 # pytest's 5 too: a suite without a test has lost them
    suites+=("$1")
    took[$1]=$((SECONDS - began))
    record "$1"
}

# What a suite came to, for the proof page (scripts/write_proof.py). One that began on another commit is of neither.
record() { # NAME
    local at=${begun_at[$1]} now
    now=$(commit)
    [ "$at" = "$now" ] || at="$at to $now"
    mkdir -p build/suites
    printf '{"status": %d, "seconds": %d, "commit": "%s"}\n' "$status" "${took[$1]}" "$at" >"build/suites/$1.json"
    if declare -F after_suite >/dev/null; then after_suite; fi
}

# Starts a suite beside those that follow; its output goes to build/NAME.log alone until suite_ended.
suite_beside() { # NAME COMMAND…
    is_wanted "$1" || return 0
    began_beside[$1]=$SECONDS
    rm -f "build/suites/$1.json"
    begun_at[$1]=$(commit)
    SOJOURN_SUITE=$1 setsid "${@:2}" >"build/$1.log" 2>&1 & # a group of its own, which an interrupted run ends whole
    beside[$1]=$!
    trap 'for group in "${beside[@]}"; do kill -- "-$group" 2>/dev/null; done' EXIT
}

# Waits for a suite that was started beside others, and prints what it said.
suite_ended() { # NAME
    is_wanted "$1" || return 0
    wait "${beside[$1]}"
    status=$?
    unset "beside[$1]"
    [ "$status" = 0 ] || failed=1
    cat "build/$1.log"
    suites+=("$1")
    took[$1]=$((SECONDS - began_beside[$1]))
    record "$1"
}

# Runs a suite of pytest side by side; with 0 workers, one test at a time. Other work on a machine spoils a test now and
# then, so up to six that failed run once more, one at a time: a program that is wrong fails again. The closing lines name
# both runs.
suite_side_by_side() { # NAME WORKERS ARGUMENTS-OF-PYTEST…
    local before=$failed cache=$PWD/build/cache-$1
    is_wanted "$1" || return 0
    rm -rf "$cache" "build/suites/$1-again.json"
    run_suite "$1" .venv/bin/pytest -o cache_dir="$cache" -n "$2" --dist worksteal "${@:3}"
    # Status 1: all ran, and some failed. Any other says that not all ran.
    if [ "$status" != 1 ] || ! spoilt_few "$cache/v/cache/lastfailed"; then return; fi
    failed=$before
    run_suite "$1-again" .venv/bin/pytest -o cache_dir="$cache" --last-failed "${@:3}"
}

# Whether between one and six tests stand in pytest's list of those that failed.
spoilt_few() { # FILE
    [ -s "$1" ] && .venv/bin/python -c 'import json, sys; sys.exit(not 1 <= len(json.load(open(sys.argv[1]))) <= 6)' "$1"
}

# Prints what each suite came to, and exits.
closing_lines() {
    local name
    echo
    for name in "${suites[@]}"; do
        if grep -q '^test result:' "build/$name.log"; then
            awk -v name="$name" -v seconds="${took[$name]}" '
                /^test result:/ { passed += $4; failed += $6; ignored += $8 }
                END { printf "%s: %d passed, %d failed, %d ignored in %d s\n", name, passed, failed, ignored, seconds }
            ' "build/$name.log"
        else
            printf '%s: %s\n' "$name" "$(tail -n 1 "build/$name.log" | tr -d '=' | sed 's/^ *//; s/ *$//')"
        fi
    done
    exit "$failed"
}
