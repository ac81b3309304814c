#!/usr/bin/env bash
# Everything that can be told without running the program; does all of it, then says what failed. Changes no file.
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

step 'Cargo.lock is current' cargo metadata --locked --format-version 1 --quiet
step 'uv.lock is current' $bin/uv lock --check --quiet
step 'Rust: format' cargo fmt --all --check
step 'Rust: lints (clippy, five rules)' cargo clippy --locked --workspace --all-targets --quiet -- -D warnings
step 'Python: format' $bin/ruff format --check .
step 'Python: lints' $bin/ruff check .
step 'Python: types (strict)' $bin/mypy
step 'Python: layers' $bin/lint-imports
step 'Python: no cycles of imports' $bin/python scripts/check_cycles.py
step 'Rules, names, first lines' $bin/python scripts/check_rules.py
step 'Schema: Python agrees with Rust' $bin/python scripts/generate_schema.py --check
step 'Reference pages are current' $bin/python scripts/generate_reference.py --check
step 'Drawing of the modules is current' $bin/python scripts/draw_modules.py --check
step 'No retired words' $bin/python scripts/check_words.py
if cargo deny --version >/dev/null 2>&1; then
    step 'Licences, sources, bans (deny.toml)' cargo deny --locked check bans licenses sources
else
    step 'Licences, sources, bans (deny.toml)' $bin/python scripts/check_dependencies.py
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf '\ncheck: failed: %s\n' "$(IFS=';'; echo "${failed[*]}")"
    exit 1
fi
echo 'check: all good'
