#!/usr/bin/env bash
# Sourced by the other scripts: where programs lie that a plain PATH lacks, which certificates downloads trust, and that
# Python keeps what it has compiled.

export PATH="$PATH:/usr/sbin:/sbin" # where Debian keeps ip, ethtool and tcpdump from plain users
if [ -x .rust/cargo/bin/cargo ]; then # what setup.sh fetched where the system had no Rust that is new enough
    export CARGO_HOME=$PWD/.rust/cargo RUSTUP_HOME=$PWD/.rust/rustup PATH="$PWD/.rust/cargo/bin:$PATH"
elif ! command -v cargo >/dev/null && [ -x "$HOME/.cargo/bin/cargo" ]; then
    export PATH="$HOME/.cargo/bin:$PATH"
fi
# The system's own certificates, which may hold more than those that pip, uv and others bring with them.
if [ -e /etc/ssl/certs/ca-certificates.crt ]; then
    export UV_SYSTEM_CERTS=1
    export SSL_CERT_FILE=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
    export PIP_CERT=${PIP_CERT:-$SSL_CERT_FILE}
fi
# Where it is set, every process compiles every library that it imports anew: 2 to 3 s for a study.
unset PYTHONDONTWRITEBYTECODE
