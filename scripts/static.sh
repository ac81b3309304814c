#!/usr/bin/env bash
# Builds sojourn-instrument without shared libraries, beside the other in .venv/bin: it runs on every host of this architecture,
# whatever C library that has. libelf and zlib come from the archives in their -dev packages.

set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh

target=$(uname -m)-unknown-linux-gnu
RUSTFLAGS="${RUSTFLAGS:-} -C target-feature=+crt-static" CARGO_TARGET_DIR=target/static \
    cargo build --locked --release --target "$target" --bin sojourn-instrument
install -m 755 "target/static/$target/release/sojourn-instrument" .venv/bin/sojourn-instrument-static
.venv/bin/sojourn-instrument-static --version
