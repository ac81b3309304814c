#!/usr/bin/env bash
# Searches by coverage for bytes that a reader of foreign bytes cannot take: libFuzzer for Rust, Atheris for Python.
#
#   scripts/fuzz.sh [SECONDS] [TARGET…]      default: 60 s for each target; Python's are called python/NAME
#   scripts/fuzz.sh minutes M [TARGET…]      M minutes in all, the least searched target first (scripts/fuzz_search.py)
#   scripts/fuzz.sh keep [TARGET…]           takes the fewest files that reach the same code into the repository
#
# What a search finds joins its corpus in build/fuzz/corpus; bytes that end a reader stay in build/fuzz/found, whose names are printed
# in the last lines. Each begins with the seeds that its target declares and with tests/fuzz/corpus: what
# `python -m scripts.make_corpus` has written there, and what `keep` has taken there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh

host=$(rustc -vV | sed -n 's/^host: //p')
corpus=build/fuzz/corpus
found=build/fuzz/found

main() {
    case ${1:-} in
    search) search "${@:2}" ;;
    keep) build; exec .venv/bin/python -m scripts.fuzz_search --keep "${@:2}" ;;
    minutes) build; exec .venv/bin/python -m scripts.fuzz_search --minutes "${2:?minutes of how long?}" "${@:3}" ;;
    *) build; exec .venv/bin/python -m scripts.fuzz_search --seconds "${1:-60}" "${@:2}" ;;
    esac
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

# One search, in place of this shell, so that its processor time is that of the search and signals come to it.
search() { # TARGET OPTION…
    local name=${1#python/} limits=(-rss_limit_mb=2048 -timeout=20 -artifact_prefix="$found/${1//\//-}-")
    if [ "$1" = "$name" ]; then
        mkdir -p "$corpus/$name"
        SOJOURN_FUZZ_TARGET=$name SOJOURN_FUZZ_SEEDS=$corpus/$name \
            exec "build/fuzz/target/$host/release/search" "${limits[@]}" "${@:2}"
    fi
    exec .venv/bin/python -m tests.fuzz.search "$name" "${limits[@]}" "${@:2}"
}

main "$@"
