#!/usr/bin/env bash
# Searches by coverage for bytes that a reader of foreign bytes cannot take: libFuzzer for Rust, Atheris for Python.
#
#   scripts/fuzz.sh [SECONDS] [TARGET…]      default: 60 s for each target; Python's are called python/NAME
#
# What a search finds joins its corpus in build/fuzz/corpus; bytes that end a reader stay in build/fuzz/found, whose names are printed
# in the last lines. Each begins with the seeds that its target declares and with tests/fuzz/corpus: what
# `python -m scripts.make_corpus` has written there, and the fewest files with the same coverage as all that searches have found,
# which `scripts/fuzz.sh keep` takes there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh

host=$(rustc -vV | sed -n 's/^host: //p')
search=build/fuzz/target/$host/release/search
corpus=build/fuzz/corpus
kept=tests/fuzz/corpus
found=build/fuzz/found

main() {
    build
    mapfile -t every < <("$search"; .venv/bin/python -m tests.fuzz.search)
    if [ "${1:-}" = keep ]; then keep "${every[@]}"; return; fi
    local seconds=${1:-60} failed
    local targets=("${@:2}")
    [ ${#targets[@]} -gt 0 ] || targets=("${every[@]}")
    rm -f build/fuzz/clean
    printf '%s\n' "${every[@]}" >build/fuzz/every.txt
    for target in "${targets[@]}"; do
        while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
        look "$target" "$seconds" &
    done
    wait
    rmdir --ignore-fail-on-non-empty "$kept"/*/ "$kept"/python/*/ 2>/dev/null || true
    # One that did not come to its end has no line there either.
    failed=$(printf '%s\n' "${targets[@]}" | grep -vxFf <(cat build/fuzz/clean 2>/dev/null || true) | paste -sd ' ') || true
    if [ -n "$failed" ]; then
        echo "fuzz: not searched to the end, or cannot be taken: $failed; see build/fuzz/*.log and $found" >&2
        exit 1
    fi
    echo "fuzz: ${#targets[@]} targets, $seconds s each: nothing found"
}

# One target for so long, and a line on it.
look() { # TARGET SECONDS
    local log=build/fuzz/${1//\//-}.log said spent TIMEFORMAT='%U %S' outcome=clean before
    mkdir -p "$corpus/$1" "$kept/$1" "$found"
    before=$(ls "$found")
    spent=$({ time run "$1" -max_total_time="$2" "$corpus/$1" "$kept/$1" >"$log" 2>&1; } 2>&1) || outcome=$([ "$before" = "$(ls "$found")" ] && echo ended || echo found)
    if [ $outcome = clean ]; then
        said=$(tail -n 200 "$log" | sed -n 's/^.*\(Done .*\)$/\1/p' | tail -n 1)
        echo "$1" >>build/fuzz/clean
    else
        said="FOUND: $log"
    fi
    # For scripts/fuzz_ledger.py: when, at which commit, what, processor seconds of the user and the kernel, how many inputs.
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%F)" "$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)" "$1" \
        "$outcome" "$spent" "$(sed -n 's/^.*Done \([0-9]*\) runs.*$/\1/p' "$log" | tail -n 1)" >>build/fuzz/spent.tsv
    printf '%-24s%s\n' "$1" "$said"
}

# Coverage as cargo-fuzz asks the compiler for it, without a sanitizer, which a stable compiler has none of.
build() {
    local flags=(
        -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
        -Cdebug-assertions -Coverflow-checks
    )
    mkdir -p build/fuzz
    RUSTFLAGS="${flags[*]}" cargo build --locked --release --quiet --package sojourn-fuzz --features search \
        --bin search --target "$host" --target-dir build/fuzz/target
    .venv/bin/uv sync --locked --inexact --quiet --no-install-project --group fuzz
}

run() { # TARGET OPTION…
    local name=${1#python/} limits=(-rss_limit_mb=2048 -timeout=20 -artifact_prefix="$found/${1//\//-}-")
    if [ "$1" = "$name" ]; then
        SOJOURN_FUZZ_TARGET=$name SOJOURN_FUZZ_SEEDS=$corpus/$name "$search" "${limits[@]}" "${@:2}"
    else
        .venv/bin/python -m tests.fuzz.search "$name" "${limits[@]}" "${@:2}"
    fi
}

keep() {
    for target in "$@"; do
        [ -d "$corpus/$target" ] || continue
        local fewest=build/fuzz/fewest
        rm -rf $fewest && mkdir -p $fewest "$kept/$target"
        run "$target" -merge=1 $fewest "$kept/$target" "$corpus/$target" >"build/fuzz/keep.log" 2>&1
        # What is made stays beside it.
        find "$kept/$target" -type f -not -name 'made-*' -delete
        cp $fewest/* "$kept/$target" 2>/dev/null || true
        printf '%-24s%d files\n' "$target" "$(find "$kept/$target" -type f | wc -l)"
    done
}

main "$@"
