#!/usr/bin/env bash
# Boots kernels of Debian and Ubuntu in QEMU, has TCP logged and netem configured in each, and prints kernel × check.
#
#   scripts/kernels.sh [KERNEL…]      such as 5.15 6.1; default: all of tests/kernels/packages
#
# Needs the network once and a few minutes for each kernel: QEMU computes every instruction, no KVM is asked for. What is
# downloaded is pinned and checked; nothing of it is installed. It comes from the archives that apt is configured for here. PARTS says what is done in a guest (tests/kernels/checks):
# objects,programs,suite,logs,killed,netem,locked. Where apt knows no such archive (Ubuntu's on Debian), or it has dropped a file,
# DEBIAN and UBUNTU name others. Everything is below build/kernels. Exit status 1: a
# check failed; 3: this machine cannot.

set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh

PARTS=${PARTS:-objects,programs,suite,logs,killed,netem,locked}
SECONDS_OF_A_GUEST=${SECONDS_OF_A_GUEST:-1200}
MODULES=(stp llc bridge veth sch_netem tcp_bbr)
TESTS=(sojourn_tcplog kernel kernel_suite)
work=build/kernels
here=tests/kernels

main() {
    local kernels=("$@") kernel
    if [ ${#kernels[@]} -eq 0 ]; then mapfile -t kernels < <(known); fi
    for kernel in "${kernels[@]}"; do
        known | grep -qxF "$kernel" || die 2 "no kernel '$kernel': $here/packages has $(known | paste -sd' ')"
    done
    needs qemu-system-x86_64
    needs busybox
    needs curl
    needs xz
    needs zstd
    needs dpkg-deb
    busybox cpio --help >/dev/null 2>&1 || die 3 "this busybox has no cpio: apt-get install busybox-static"
    mkdir -p "$work"
    programs
    for kernel in "${kernels[@]}"; do
        fetch "$kernel"
        pack "$kernel"
        say "$kernel: $PARTS"
        boot "$kernel" || say "$kernel: the guest did not end by itself"
    done
    .venv/bin/python -m tests.kernels.judge "$work" "${kernels[@]}"
}

say() { printf 'kernels: %s\n' "$*" >&2; }
die() { printf 'kernels: %s\n' "${*:2}" >&2; exit "$1"; }
known() { awk '$1 !~ /^#/ { print $1 }' "$here/packages" | uniq; }
needs() { command -v "$1" >/dev/null || die 3 "$1 is missing: scripts/setup.sh kernels"; }

# What is run in the guests, as this machine builds it: the instrument, and the tests of crates/tcplog.
programs() {
    instrument=${SOJOURN_INSTRUMENT:-${CARGO_TARGET_DIR:-target}/release/sojourn-instrument}
    [ -x "$instrument" ] || die 3 "$instrument is missing: make setup"
    cargo test --locked --no-run -p sojourn-tcplog >"$work/cargo.log" 2>&1 || die 1 "$(tail -n 20 "$work/cargo.log")"
}

# The address of an archive: what was named, else apt's.
archive() { # debian|ubuntu
    local named=${1^^} found
    found=${!named:-$(apt-get indextargets --format '$(REPO_URI)' "Origin: ${1^}" "Label: ${1^}" 2>/dev/null | head -n 1)}
    [ -n "$found" ] || die 3 "apt has no archive of ${1^} here: name one, as $named=ADDRESS make kernels"
    printf '%s\n' "${found%/}"
}

# Downloads what is not there yet, and unpacks it.
fetch() {
    local kernel archive path sum file
    mkdir -p "$work/packages" "$work/$1"
    rm -rf "$work/$1/files"
    while read -r kernel archive path sum; do
        [ "$kernel" = "$1" ] || continue
        file=$work/packages/${path##*/}
        if ! [ -f "$file" ]; then
            archive=$(archive "$archive")
            say "fetching ${path##*/}"
            curl -fsSL --retry 3 -o "$file.part" "$archive/$path" || die 3 "$archive/$path cannot be had (see DEBIAN and UBUNTU)"
            mv "$file.part" "$file"
        fi
        echo "$sum  $file" | sha256sum --check --quiet || die 3 "$file is not what is pinned: remove it"
        dpkg-deb -x "$file" "$work/$1/files"
    done <"$here/packages"
}

# Makes the guest's file system, which it has in its memory.
pack() {
    local root=$work/$1/root name file
    rm -rf "$root"
    mkdir -p "$root"/{bin,modules,tests}
    # The shell too: busybox's takes its own ip and tc before others.
    for name in busybox sh ip tc ping unshare; do put "$root" "$(readlink -f "$(command -v "$name")")" "bin/$name"; done
    put "$root" "$instrument" bin/sojourn-instrument
    for name in "${TESTS[@]}"; do put "$root" "$(built "$name")" "tests/$name"; done
    for file in /usr/lib/tc /usr/lib/*/tc; do # netem's distributions
        if [ -d "$file" ]; then mkdir -p "$root$file" && cp -a "$file/." "$root$file"; fi
    done
    for name in "${MODULES[@]}"; do
        file=$(find "$work/$1/files" -name "$name.ko*" -print -quit)
        case $file in
            '') ;; # built in
            *.xz) xz -dc "$file" >"$root/modules/$name.ko" ;;
            *.zst) zstd -qdc "$file" >"$root/modules/$name.ko" ;;
            *) cp "$file" "$root/modules/$name.ko" ;;
        esac
    done
    cp "$here"/{init,checks,asked} "$root"
    chmod +x "$root/init"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/$1/initrd.gz"
}

# Puts a program and its libraries into a root; what debuggers want stays outside.
put() { # ROOT PROGRAM PLACE
    local library
    strip -o "$1/$3" "$2" 2>/dev/null || cp "$2" "$1/$3"
    { ldd "$2" 2>/dev/null | grep -oE '/[^ ]+' || true; } | while read -r library; do
        mkdir -p "$1${library%/*}"
        cp -nL "$library" "$1$library"
    done
}

# The test program that cargo built last under this name.
built() {
    sed -n "s|.*Executable .*(\(.*/$1-[0-9a-f]*\)).*|\1|p" "$work/cargo.log" | tail -n 1
}

# The emulated machine lacks cmpxchg16b: QEMU 7.2 returns from it with wrong flags where CPUs have threads of their own, and
# kernels since 6.11 use it in their allocator.
boot() {
    local folder=$work/$1
    rm -rf "$folder/out" "$folder/out.tar"
    timeout -k 5 "$SECONDS_OF_A_GUEST" qemu-system-x86_64 -accel tcg -cpu max,-cx16,-la57 -smp 2 -m 1024 \
        -nodefaults -display none -no-reboot -kernel "$folder"/files/boot/vmlinuz-* -initrd "$folder/initrd.gz" \
        -append "console=ttyS0 quiet panic=-1 mitigations=off parts=$PARTS" \
        -serial "file:$folder/console.log" -serial "file:$folder/out.tar" </dev/null || return
    mkdir "$folder/out"
    tar -C "$folder/out" -xf "$folder/out.tar" || true
}

main "$@"
