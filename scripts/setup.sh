#!/usr/bin/env bash
# Brings a fresh Debian or Ubuntu to where `make demo`, `test`, `proof`, `bench`, `kernels` can run, saying what it does.
#
#   scripts/setup.sh [demo|test|proof|bench|kernels]      default: demo
#
# System packages (only those whose command is missing), the Rust toolchain that rust-toolchain.toml pins, the Python
# environment in .venv exactly as uv.lock says, and in it `sojourn` and `sojourn-instrument`. A second run installs
# nothing. Touches nothing outside this folder but apt and a rustup that is there. Names no host: apt, cargo, uv and rustup
# take what the machine is configured for. Exit status 3: this machine cannot, with the reason.

set -euo pipefail
cd "$(dirname "$0")/.."

UV_VERSION=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' scripts/uv.txt)
purpose=${1:-demo}
uv=.venv/bin/uv
. scripts/paths.sh

policy=/usr/sbin/policy-rc.d
policy_mark="# Written by Sojourn's scripts/setup.sh, which removes it: meanwhile no package starts a service."

main() {
    case $purpose in
        demo | test | proof | bench | kernels) ;;
        *) die 2 "unknown purpose '$purpose': use demo, test, proof, bench or kernels" ;;
    esac
    system_packages
    . scripts/paths.sh # certificates may have come
    python_environment
    rust_toolchain
    our_programs
    browser
}

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "${*:2}" >&2; exit "$1"; }
is_for() { [[ " $* " == *" $purpose "* ]]; }
has() { command -v "$1" >/dev/null 2>&1; }

# --- system packages -----------------------------------------------------------------------------------------------

system_packages() {
    local missing=()
    let_services_start
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
    has ip || missing+=(iproute2)
    has ping || missing+=(iputils-ping)
    has ethtool || missing+=(ethtool)
    has tcpdump || missing+=(tcpdump) # and with it libpcap, whose language the filters of `capture` have
    { has unshare && has nsenter && has setpriv; } || missing+=(util-linux)
    can_link || missing+=(gcc libc6-dev)
    has make || missing+=(make)
    has pkg-config || missing+=(pkg-config)
    has clang || missing+=(clang) # compiles our programs for the kernel (docs/decisions/0013-xdp-and-bpf.md)
    has_header libelf.h || missing+=(libelf-dev)
    has_header zlib.h || missing+=(zlib1g-dev)
    if ! [ -x .venv/bin/python ]; then
        find_python
        if [ -n "$python" ]; then
            "$python" -c 'import venv, ensurepip' 2>/dev/null || missing+=("$(basename "$python")-venv")
        elif has python3; then
            missing+=(python3.11 python3.11-venv) # an older distribution's python3 may be too old, and a newer lie beside it
        else
            missing+=(python3 python3-venv)
        fi
    fi
    if is_for test proof; then test_peers; fi
    if is_for proof; then bare_systems; cluster; typesetting; fi
    if is_for bench; then bench_peers; fi
    if is_for proof bench; then load_peers; fi
    if is_for kernels; then guests; fi
    if is_for proof kernels; then guest_hosts; fi
    if [ ${#missing[@]} -eq 0 ]; then return; fi
    install_packages "${missing[@]}"
    hash -r
    can_link || die 3 "the C linker does not work: apt-get install gcc libc6-dev"
    has clang || die 3 "clang does not work: apt-get install clang"
}

# The programs whose traffic the emulator is to carry, and those that judge what ours write.
test_peers() {
    has iperf3 || missing+=(iperf3)
    has trafgen || missing+=(netsniff-ng)
    has dnsmasq || missing+=(dnsmasq-base)
    has nft || missing+=(nftables)
    { has tshark && has dumpcap; } || missing+=(tshark) # reads the comments that `tcplog convert` writes into captures
    has sudo || missing+=(sudo)
    if ! [ -x /usr/sbin/sshd ] && [ "$(id -u)" -eq 0 ]; then ssh_server; fi # namespaces of its tests need root
    has zsh || missing+=(zsh) # complete commands, each in its way
    has fish || missing+=(fish)
    has mandoc || missing+=(mandoc) # judges man pages
    has strace || missing+=(strace) # tells the order of writes and syncs, for losses of power
    { has hunspell && [ -e /usr/share/hunspell/en_GB.dic ] && [ -e /usr/share/hunspell/en_US.dic ]; } \
        || missing+=(hunspell hunspell-en-gb hunspell-en-us) # spells our pages
    has systemd-analyze || missing+=(systemd) # judges the units that the package ships
}

# The tests start sshd themselves, in namespaces; the service that comes with the package is neither started nor enabled.
ssh_server() {
    unstarted openssh-server
    if [ -d /run/systemd/system ]; then systemctl --quiet disable --now ssh.service ssh.socket || true; fi
}

# A package whose service is not started. Debian enables irtt's and netperf's where systemd runs: they would listen.
unstarted() {
    if ! [ -e $policy ]; then
        rights || die 3 "$1 is missing and this is neither root nor sudo: install it as root, then again"
        trap let_services_start EXIT # also where a package cannot be installed, or a signal ends this
        printf '#!/bin/sh\n%s\nexit 101\n' "$policy_mark" | "${root[@]}" install -m 755 /dev/stdin $policy ||
            die 3 "$policy cannot be written, without which $1 would start a service"
    fi
    install_packages "$1"
    let_services_start
    if [ -d /run/systemd/system ]; then "${root[@]}" systemctl --quiet disable --now "$1.service" 2>/dev/null || true; fi
}

# Removes the policy that we have written, also what an earlier set-up left that was killed.
let_services_start() {
    if ! grep -qsxF "$policy_mark" $policy; then return 0; fi # in a trap, `return` alone gives the status before it
    if ! rights || ! "${root[@]}" rm -f $policy; then say "no package starts a service until you run, as root: rm $policy"; fi
}

# What makes the root file systems in which set-up is tried from nothing.
bare_systems() {
    has mmdebstrap || missing+=(mmdebstrap)
    has runc || missing+=(runc) # runs the container image
    [ "$(uname -m)" = aarch64 ] || has qemu-aarch64 || has qemu-aarch64-static || missing+=(qemu-user) # runs the instrument for arm64
}

# What sets the tables that a report has for papers.
typesetting() {
    { has pdflatex && kpsewhich siunitx.sty >/dev/null && kpsewhich booktabs.sty >/dev/null; } \
        || missing+=(texlive-latex-base texlive-latex-recommended texlive-science)
    has pdftotext || missing+=(poppler-utils)
}

# What Apache Spark runs on. Debian 13 has no Java 17.
cluster() {
    local version=17
    if grep -qs '^ID=debian' /etc/os-release && grep -qs '^VERSION_ID="13"' /etc/os-release; then version=21; fi
    has java || missing+=("openjdk-$version-jre-headless")
}

# The programs that ours are compared with.
bench_peers() {
    has sockperf || missing+=(sockperf)
    has iperf || missing+=(iperf)
    has iperf3 || missing+=(iperf3)
    has trafgen || missing+=(netsniff-ng)
    has mgen || missing+=(mgen)
    has ITGSend || missing+=(d-itg)
}

# The programs beside which a path under load is measured. irtt's and netperf's packages would start their servers.
load_peers() {
    has iperf3 || missing+=(iperf3)
    has fping || missing+=(fping)
    has flent || missing+=(flent)
    has irtt || unstarted irtt
    if ! has netperf; then
        # `show` knows packages, too, that no source has any more.
        if has apt-cache && LC_ALL=C apt-cache policy netperf 2>/dev/null | grep -q '^  Candidate: [^(]'; then
            unstarted netperf
        else
            say "no netperf: it is in Debian's non-free; without it flent has no test with load, and is not compared"
        fi
    fi
}

# What boots other kernels, and what their packages are unpacked with.
guests() {
    has qemu-system-x86_64 || missing+=(qemu-system-x86)
    has busybox || missing+=(busybox-static)
    has curl || missing+=(curl)
    has xz || missing+=(xz-utils)
    has zstd || missing+=(zstd)
    has iperf3 || missing+=(iperf3)
    has tcpdump || missing+=(tcpdump)
}

# What makes and boots a guest that is a host of a bed over SSH.
guest_hosts() {
    has mmdebstrap || missing+=(mmdebstrap)
    has qemu-system-x86_64 || missing+=(qemu-system-x86)
    has mke2fs || missing+=(e2fsprogs)
    if ! [ -x /usr/sbin/sshd ] && [ "$(id -u)" -eq 0 ]; then ssh_server; fi
}

# A tool name is not enough: gcc without libc's start files cannot link, and that is what cargo would stumble over.
can_link() {
    has cc && echo 'int main(void){return 0;}' | cc -x c - -o /dev/null 2>/dev/null
}

has_header() { # quietly no when there is no compiler yet: it is installed together with what is missing
    has cc && echo "#include <$1>" | cc -x c -E - -o /dev/null 2>/dev/null
}

# Sets $python to the first interpreter that is new enough, or to nothing.
find_python() {
    python=
    local candidate
    for candidate in python3 python3.11 python3.12 python3.13 python3.14; do
        if has "$candidate" && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            return
        fi
    done
}

install_packages() {
    has apt-get || die 3 "these are missing and only apt is known here, please install them yourself: $*"
    rights ||
        die 3 "these packages are missing and this is neither root nor sudo: run 'apt-get install $*' as root, then again"
    say "installing system packages: $*"
    # A stale package list is the usual reason for a failure on a fresh image, a full update the usual waste: ask second.
    if ! quiet_install "$@" >/dev/null 2>&1; then
        "${root[@]}" apt-get -qq update || die 3 "apt-get update failed: is this machine on the network?"
        quiet_install "$@" >/dev/null || die 3 "apt-get could not install: $*"
    fi
}

# Sets $root to what a command of root's is run by: sudo, or nothing for root itself.
rights() {
    root=()
    if [ "$(id -u)" -eq 0 ]; then return 0; fi
    has sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; } && root=(sudo)
}

quiet_install() {
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install "$@" </dev/null
}

# --- Python, Rust, and our own two programs --------------------------------------------------------------------------

python_environment() {
    if ! [ -x .venv/bin/python ]; then
        find_python
        if [ -z "$python" ] && has apt-get; then
            install_packages python3.11 python3.11-venv # python3 has come, and is too old: Ubuntu 22.04
            hash -r
            find_python
        fi
        [ -n "$python" ] || die 3 "Sojourn needs Python 3.11 or newer, and this distribution has none: install one, then again"
        say "making .venv with $("$python" --version)"
        "$python" -m venv .venv || die 3 "python venv failed: apt-get install $(basename "$python")-venv"
    fi
    if [ "$("$uv" --version 2>/dev/null | cut -d' ' -f2)" != "$UV_VERSION" ]; then
        say "installing uv $UV_VERSION into .venv"
        .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/uv.txt ||
            die 3 "pip could not fetch uv $UV_VERSION; the reason stands above"
    fi
}

rust_toolchain() {
    local pinned
    pinned=$(sed -n 's/^channel = "\(.*\)"$/\1/p' rust-toolchain.toml)
    if ! has rustup && ! new_enough "$pinned"; then
        fetch_rustup "$pinned" || rust_from_apt "$pinned"
        . scripts/paths.sh
    fi
    if has rustup && ! rustup toolchain list 2>/dev/null | grep -q "^$pinned-"; then
        say "installing Rust $pinned (pinned in rust-toolchain.toml)"
        rustup toolchain install "$pinned" --profile minimal -c rustfmt -c clippy >/dev/null 2>&1 ||
            die 3 "rustup could not install Rust $pinned: is this machine on the network? Try: rustup toolchain install $pinned"
    fi
    has cargo || die 3 "rustup is there but cargo is not: run 'rustup toolchain install $pinned', then again"
}

# A cargo without rustup ignores rust-toolchain.toml: it must be new enough by itself.
new_enough() {
    has cargo || return 1
    local have
    have=$(cargo --version | cut -d' ' -f2)
    at_least "$1" "$have"
}

at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# Into this folder. Its compiler takes two thirds of the processor time of Debian's (docs/decisions/0030-rust-on-bare-systems.md).
fetch_rustup() {
    say "this system has no Rust from $1 on: fetching rustup and Rust $1 into .rust/"
    mkdir -p .rust/rustup build
    # The toolchain that rustup-init installs is its default one.
    printf 'version = "12"\nprofile = "minimal"\ndefault_toolchain = "%s"\n' "$1-$(uname -m)-unknown-linux-gnu" >.rust/rustup/settings.toml
    if "$uv" run --quiet --locked --isolated --only-group rust python -m puccinialin --location .rust >build/rustup.log 2>&1; then return; fi
    say "rustup cannot be had: $(tail -n 1 build/rustup.log)"
    rm -rf .rust
    return 1
}

# Debian keeps a current Rust for its browsers: cargo-web, rustc-web.
rust_from_apt() {
    local package have
    for package in cargo-web cargo rustup; do
        have=$(apt-cache policy $package 2>/dev/null | sed -n 's/^ *Candidate: //p')
        case $package:$have in
            *: | *:'(none)') continue ;;
            cargo-web:*) if at_least "$1" "$have"; then install_packages cargo-web rustc-web; return; fi ;;
            cargo:*) if at_least "$1" "$have"; then install_packages cargo; return; fi ;;
            rustup:*) install_packages rustup; return ;;
        esac
    done
    die 3 "Rust $1 or newer is needed: neither rustup could be fetched nor has this distribution a package; install one, then again"
}

# Libraries are fetched first, so that one that cannot be had is reported before anything is compiled.
our_programs() {
    local groups=(--no-default-groups --group build)
    if is_for test; then groups=(); fi
    if is_for proof; then groups=(--extra spark --group notebooks); fi # half a gigabyte: docs/decisions/0055-spark.md
    local build=(cargo build --locked --release --bin sojourn-instrument)
    # In isolation, hatchling and what it needs would come without a hash: the group `build` has both.
    local sync=("$uv" sync --locked --inexact --quiet --no-build-isolation-package sojourn "${groups[@]}")
    if ! [ -x .venv/bin/sojourn ]; then
        say "fetching the locked libraries, and building the instrument (release)"
        cargo fetch --locked --quiet --target "$(uname -m)-unknown-linux-gnu" || die 3 "cargo could not fetch the libraries of Cargo.lock; the reason stands above"
        side_by_side
    else
        "${build[@]}" || die 3 "cargo build failed; the reason stands above"
        "${sync[@]}" --no-install-project || die 3 "the libraries of uv.lock could not be fetched; the reason stands above"
    fi
    "${sync[@]}" || die 3 "uv could not install sojourn into .venv; the reason stands above"
}

# Python's libraries come while cargo compiles; what fails first ends the other.
side_by_side() {
    local compiling libraries
    "${build[@]}" & compiling=$! # not a function: its process is cargo's, which a signal reaches
    "${sync[@]}" --no-install-project & libraries=$!
    if ! wait -n "$compiling" "$libraries" || ! wait "$compiling" || ! wait "$libraries"; then
        kill "$compiling" "$libraries" 2>/dev/null || true
        wait || true
        die 3 "the libraries of uv.lock could not be fetched, or the instrument not be built; the reason stands above"
    fi
}

# --- a browser for the report's test -------------------------------------------------------------------------------

browser() {
    if ! is_for test proof || has chromium || has chromium-browser || has google-chrome; then return; fi
    # Ubuntu's chromium package is a snap, which does not run in containers: there Playwright's own build serves.
    if has apt-cache && grep -qs '^ID=debian' /etc/os-release; then
        install_packages chromium
    elif ! compgen -G "$HOME/.cache/ms-playwright/chromium*" >/dev/null; then
        say "fetching Chromium through Playwright"
        .venv/bin/playwright install --with-deps chromium >/dev/null || die 3 "no Chromium: install one, or run make without the browser test"
    fi
}

main
