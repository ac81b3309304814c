#!/usr/bin/env bash
# What a Linux bridge adds to a packet's way, measured here and now: at most a minute, then a page to read.
set -euo pipefail
cd "$(dirname "$0")/.."

# The program shows its own progress, prints its verdict, and names the page that it made.
exec .venv/bin/sojourn run bridge-latency --quick "$@"
