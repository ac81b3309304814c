#!/usr/bin/env bash
# Builds sojourn-instrument for arm64 on a machine of another architecture, without shared libraries: .venv/bin/sojourn-instrument-aarch64.
#
#   scripts/arm64.sh [build|ready|test|programs|guest]      default: build
#
# build     fetches what is missing, then compiles
# ready     says by its exit status whether everything is there already; fetches nothing
# test      runs the unit tests of some crates, compiled for arm64, in QEMU's user mode; crates may be named
# programs  compiles the test programs of crates, and says where they are (scripts/kernels.sh)
# guest     unpacks what a guest's system needs into build/arm64/guest (scripts/kernels.sh)
#
# The compiler is the clang that our programs for the kernel need anyway; the linker is the one that comes with Rust. Rust's
# own library comes by rustup, the C library, libelf and zlib from Debian's packages, unpacked into build/arm64: the machine's
# packages stay as they are. Names no host: rustup, cargo and apt take what the machine is configured for. One runs at a time:
# the others wait. Exit status 3: this machine cannot, with the reason.

set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh

target=aarch64-unknown-linux-gnu
folder=$PWD/build/arm64
result=.venv/bin/sojourn-instrument-aarch64
CRATES=(sojourn-time sojourn-wire sojourn-record sojourn-clock sojourn-rights sojourn-emulate)

main() {
    [ "$(uname -m)" != aarch64 ] || die 3 "this machine is arm64 itself: make static"
    [ "${1:-build}" = ready ] || lock
    case ${1:-build} in
        build) prepare; build ;;
        ready) is_ready ;;
        test) prepare; unit_tests "${@:2}" ;;
        programs) prepare; cargo test --locked --no-run --target "$target" "${@:2}" ;;
        guest) [ -d "$folder/guest" ] || fetch_guest ;;
        *) die 2 "unknown word '$1': use build, ready, test, programs or guest" ;;
    esac
}

say() { printf 'arm64: %s\n' "$*" >&2; }
die() { printf 'arm64: %s\n' "${*:2}" >&2; exit "$1"; }
has() { command -v "$1" >/dev/null 2>&1; }

# Until this script and what it started have ended.
lock() {
    mkdir -p "$folder"
    exec 9>"$folder/lock"
    flock -n 9 || { say "waiting for another run of this script"; flock 9; }
}

is_ready() { has clang && has_rust && [ -d "$folder/root" ] && [ -n "$(linker)" ]; }

prepare() {
    has clang || die 3 "clang is missing: apt-get install clang"
    has_rust || fetch_rust
    [ -n "$(linker)" ] || die 3 "no linker for arm64: apt-get install lld"
    [ -d "$folder/root" ] || fetch_libraries
    wrap
}

has_rust() { [ -d "$(rustc --print sysroot)/lib/rustlib/$target/lib" ]; }

fetch_rust() {
    has rustup || die 3 "Rust's library for $target is missing, and there is no rustup here to fetch it"
    say "fetching Rust's library for $target"
    rustup target add "$target" 2>"$(log rustup)" ||
        die 3 "Rust's library for $target cannot be had: $(tail -n 1 "$(log rustup)")"
}

# Rust's own lld; Debian's where Rust has none.
linker() {
    local own
    own=$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/gcc-ld/ld.lld
    if [ -x "$own" ]; then echo "$own"; else command -v ld.lld || true; fi
}

fetch_libraries() {
    local compiler
    say "fetching the C library, libelf and zlib for arm64 from Debian's packages"
    update
    compiler=$(apt_arm64 cache depends gcc | sed -n 's/^ *Depends: gcc-\([0-9]*\).*/\1/p' | head -n 1)
    unpack root libc6-dev linux-libc-dev "libgcc-${compiler:-12}-dev" libelf-dev zlib1g-dev
}

# With what they need; none is installed, so nothing of them is set up.
fetch_guest() {
    local packages
    say "fetching a guest's programs for arm64 from Debian's packages"
    update
    mapfile -t packages < <(apt_arm64 get -s --no-install-recommends install busybox-static dash iproute2 iputils-ping util-linux |
        sed -n 's/^Inst \([^ ]*\) .*/\1/p')
    [ ${#packages[@]} -gt 0 ] || die 3 "apt has no busybox-static, dash, iproute2, iputils-ping and util-linux for arm64"
    unpack guest "${packages[@]}"
}

# apt with its lists of arm64 in our folder, from the machine's own sources, and checked against its keys.
apt_arm64() { # get|cache WORDS...
    local apt=$folder/apt
    mkdir -p "$apt"/{lists,archives}/partial
    : >"$apt/status"
    printf '%s\n' "Dir::State \"$apt\";" "Dir::State::Lists \"$apt/lists\";" "Dir::State::status \"$apt/status\";" \
        "Dir::Cache \"$apt\";" "Dir::Cache::archives \"$apt/archives\";" 'APT::Architecture "arm64";' \
        'APT::Architectures { "arm64"; };' 'Acquire::Languages "none";' 'APT::Sandbox::User "root";' >"$apt/conf"
    APT_CONFIG=$apt/conf "apt-$1" -q "${@:2}"
}

update() {
    has apt-get || die 3 "the C library and libelf for arm64 come from Debian's packages, and there is no apt-get here"
    apt_arm64 get update >"$(log apt)" 2>&1 || die 3 "apt has no packages for arm64 here: $(tail -n 1 "$(log apt)")"
}

# Whole or not at all.
unpack() { # FOLDER PACKAGE...
    local into=$folder/packages package
    rm -rf "$into" "$folder/$1.new"
    mkdir -p "$into"
    (cd "$into" && apt_arm64 get download "${@:2}") >"$(log apt)" 2>&1 ||
        die 3 "packages for arm64 cannot be had: $(tail -n 1 "$(log apt)")"
    for package in "$into"/*.deb; do dpkg-deb -x "$package" "$folder/$1.new"; done
    rm -rf "$into"
    mv -T "$folder/$1.new" "$folder/$1"
}

# One program that is compiler and linker for arm64.
wrap() {
    printf '#!/bin/sh\nexec clang --target=aarch64-linux-gnu --sysroot="%s" --ld-path="%s" -Wno-unused-command-line-argument "$@"\n' \
        "$folder/root" "$(linker)" >"$folder/cc.new"
    chmod 755 "$folder/cc.new"
    mv "$folder/cc.new" "$folder/cc"
    export CC_aarch64_unknown_linux_gnu=$folder/cc AR_aarch64_unknown_linux_gnu=ar
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$folder/cc
    unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS # they are for this machine, and cargo would not look at those for arm64
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS="-C target-feature=+crt-static"
    export CARGO_TARGET_DIR=target/static # build scripts are those of `make static`
    export SOJOURN_SYSROOT=$folder/root
}

build() {
    local emulator built=$CARGO_TARGET_DIR/$target/release/sojourn-instrument
    cargo build --locked --release --target "$target" --bin sojourn-instrument
    require_static "$built"
    install -m 755 "$built" "$result.new"
    mv "$result.new" "$result" # the one before may be running
    if emulator=$(user_mode); then
        "$emulator" "$result" --version
    else
        say "$result is built, and was not run: apt-get install qemu-user"
    fi
}

require_static() {
    local segments
    segments=$(LC_ALL=C readelf -lW "$1") || die 3 "$1 cannot be read: apt-get install binutils"
    [[ $segments == *LOAD* && $segments != *INTERP* ]] || die 1 "$1 needs shared libraries: it was built without +crt-static"
}

unit_tests() {
    local crates=("$@")
    [ ${#crates[@]} -gt 0 ] || crates=("${CRATES[@]}")
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=$(user_mode) || die 3 "no QEMU to run them: apt-get install qemu-user"
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER
    # QEMU's user mode has no seccomp, which these look at.
    local skipped=(--skip calls::tests::confined --skip calls::tests::clone3 --skip calls::tests::who_holds_nothing)
    cargo test --locked --target "$target" "${crates[@]/#/-p}" --lib -- "${skipped[@]}"
}

user_mode() { command -v qemu-aarch64 || command -v qemu-aarch64-static; }

log() { mkdir -p "$folder" && echo "$folder/$1.log"; }

main "$@"
