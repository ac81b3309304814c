#!/usr/bin/env bash
# Runs every test, the Rust ones and the Python ones, all even if the first fail, and ends with their closing lines.
set -uo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin:/usr/sbin:/sbin"
mkdir -p build
failed=0

cargo test --locked --workspace --no-fail-fast 2>&1 | tee build/cargo-test.log || failed=1
# What computes may share the cores; what measures must have them alone.
.venv/bin/pytest -n auto --dist loadscope tests --ignore tests/net 2>&1 | tee build/pytest.log || failed=1
.venv/bin/pytest tests/net 2>&1 | tee build/pytest-net.log || failed=1

echo
awk '/^test result:/ { passed += $4; failed += $6; ignored += $8 }
     END { printf "cargo test: %d passed, %d failed, %d ignored\n", passed, failed, ignored }' build/cargo-test.log
for log in pytest pytest-net; do
    printf '%s: %s\n' "$log" "$(tail -n 1 "build/$log.log" | tr -d '=' | sed 's/^ *//; s/ *$//')"
done
exit "$failed"
