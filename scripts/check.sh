#!/usr/bin/env bash
# Everything that can be checked without running the program; does all of it, then says what failed. Changes no file.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh
bin=.venv/bin
failed=()

step() {
    printf '%-38s' "$1"
    local log
    if log=$("${@:2}" 2>&1); then
        echo ok
    else
        echo FAILED
        printf '%s\n' "$log" | tail -n 60
        failed+=("$1")
    fi
}

# Advisories come over the network, or from a database that was fetched before: where neither can be had, that is said.
skipped() { printf '%-38sSKIPPED: %s\n' "$1" "$2"; }

python_advisories() {
    local said
    if said=$($bin/uv audit --quiet --locked --preview-features audit-command 2>&1); then
        printf '%-38sok\n' "$1"
    elif grep -q 'error: Request failed' <<<"$said"; then
        skipped "$1" 'the database of advisories (OSV) cannot be reached'
    else
        printf '%-38sFAILED\n%s\n' "$1" "$said"
        failed+=("$1")
    fi
}

# By cargo-deny where it is installed and has its database, else as for Python.
rust_advisories() {
    local said
    if cargo deny --version >/dev/null 2>&1 && [ -d "${CARGO_HOME:-$HOME/.cargo}/advisory-dbs" ]; then
        step "$1" cargo deny --locked check --disable-fetch advisories
    elif said=$($bin/python scripts/audit_crates.py 2>&1); then
        printf '%-38sok\n' "$1"
    elif [ $? -eq 3 ]; then
        skipped "$1" "$said"
    else
        printf '%-38sFAILED\n%s\n' "$1" "$said"
        failed+=("$1")
    fi
}

# A failed suite of the last proof is no fault of this tree: it is said.
failed_suites() {
    local said
    if ! said=$($bin/python -m scripts.write_proof --failed 2>&1); then
        printf '%-38sFAILED\n%s\n' "$1" "$said"
        failed+=("$1")
    elif [ -n "$said" ]; then
        printf '%-38sNOTE: %s\n' "$1" "$said"
    else
        printf '%-38sok\n' "$1"
    fi
}

step 'Cargo.lock is current' cargo metadata --locked --format-version 1 --quiet
step 'uv.lock is current' $bin/uv lock --check --quiet
step 'Rust: format' cargo fmt --all --check
step 'Rust: lints (clippy, five rules)' cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
step 'Python: format' $bin/ruff format --check .
step 'Python: lints' $bin/ruff check .
step 'Python: types (strict)' $bin/mypy
step 'Python: layers' $bin/lint-imports
step 'Python: no cycles of imports' $bin/python scripts/check_cycles.py
step 'Nothing unused, or used by tests alone' $bin/python scripts/check_unused.py
step 'Rules, names, first lines' $bin/python scripts/check_rules.py
step 'Schema: Python agrees with Rust' $bin/python scripts/generate_schema.py --check
step 'Reference pages are current' $bin/python scripts/generate_reference.py --check
step 'Proof page and README agree' $bin/python -m scripts.write_proof --check
failed_suites 'Suites of the proof page'
step 'Bench page agrees with its figures' $bin/python -m scripts.write_bench --check
step 'Fuzzing page agrees with its counts' $bin/python -m scripts.fuzz_ledger --check
step 'Drawing of the modules is current' $bin/python scripts/draw_modules.py --check
step 'Links of the pages' $bin/python scripts/check_links.py
step 'Common misspellings' $bin/codespell --ignore-words-list ECT,ect docs README.md ARCHITECTURE.md CONTRIBUTING.md SECURITY.md CHANGELOG.md
step 'Spelling by dictionaries' $bin/python -m scripts.check_spelling
step 'No retired words' $bin/python scripts/check_words.py
if cargo deny --version >/dev/null 2>&1; then
    step 'Licences, sources, bans (deny.toml)' cargo deny --locked check bans licenses sources
else
    step 'Licences, sources, bans (deny.toml)' $bin/python scripts/check_dependencies.py
fi

python_advisories 'Advisories on uv.lock'
rust_advisories 'Advisories on Cargo.lock'

if [ ${#failed[@]} -gt 0 ]; then
    printf '\ncheck: failed: %s\n' "$(IFS=';'; echo "${failed[*]}")"
    exit 1
fi
echo 'check: all good'
