#!/usr/bin/env bash
# Boots kernels of Debian and Ubuntu in QEMU, has TCP logged and netem configured in each, and prints kernel × check.
#
#   scripts/kernels.sh [KERNEL…]      such as 5.15 6.1 6.1-arm64; default: all of tests/kernels/packages that can be booted here
#
# Kernels for arm64 take qemu-system-aarch64 and what `make arm64` fetches; where these are missing, the table says "not run".
#
# Needs the network once and a few minutes for each kernel: QEMU computes every instruction, no KVM is asked for. What is
# downloaded is pinned and checked; nothing of it is installed. It comes from the archives that apt is configured for here. PARTS says what is done in a guest (tests/kernels/checks):
# objects,programs,suite,live,computed,logs,killed,netem,peers,locked; peers, ours beside netem, pktgen and fq, in one kernel alone. Where apt knows no such archive (Ubuntu's on Debian), or it has dropped a file,
# DEBIAN and UBUNTU name others. Everything is below build/kernels. Exit status 1: a
# check failed; 3: this machine cannot.

set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/paths.sh

PARTS=${PARTS:-objects,programs,suite,live,computed,logs,killed,netem,peers,locked}
BESIDE=${BESIDE:-6.12} # the kernel whose netem, pktgen and fq ours are measured beside
SECONDS_OF_A_GUEST=${SECONDS_OF_A_GUEST:-2400}
MODULES=(stp llc bridge veth sch_netem tcp_bbr pktgen sch_fq)
TESTS=(sojourn_tcplog kernel kernel_suite live)
work=build/kernels
here=tests/kernels

main() {
    local kernels=("$@") left_out=() kernel
    if [ ${#kernels[@]} -eq 0 ]; then
        mapfile -t kernels < <(bootable)
        mapfile -t left_out < <(known | grep -vxFf <(printf '%s\n' "${kernels[@]}"))
    fi
    for kernel in "${kernels[@]}"; do
        known | grep -qxF "$kernel" || die 2 "no kernel '$kernel': $here/packages has $(known | paste -sd' ')"
    done
    for kernel in "${kernels[@]}"; do needs "$(emulator "$kernel")"; done
    needs busybox
    needs curl
    needs xz
    needs zstd
    needs dpkg-deb
    busybox cpio --help >/dev/null 2>&1 || die 3 "this busybox has no cpio: apt-get install busybox-static"
    mkdir -p "$work"
    if printf '%s\n' "${kernels[@]}" | grep -qv arm64; then programs; fi
    if printf '%s\n' "${kernels[@]}" | grep -q arm64; then programs_for_arm64; fi
    for kernel in "${kernels[@]}"; do
        fetch "$kernel"
        pack "$kernel"
        say "$kernel: $PARTS"
        boot "$kernel" || say "$kernel: the guest did not end by itself"
    done
    .venv/bin/python -m tests.kernels.judge "$work" "${kernels[@]}" --not-run "${left_out[@]}"
    if [ -d "$work/$BESIDE/out/peers" ]; then .venv/bin/python -m tests.kernels.beside "$work" "$BESIDE"; fi
}

say() { printf 'kernels: %s\n' "$*" >&2; }
die() { printf 'kernels: %s\n' "${*:2}" >&2; exit "$1"; }
known() { awk '$1 !~ /^#/ { print $1 }' "$here/packages" | uniq; }
needs() { command -v "$1" >/dev/null || die 3 "$1 is missing: scripts/setup.sh kernels"; }
is_arm64() { [[ $1 == *-arm64* ]]; }
runs_tests() { [[ ,$PARTS, =~ ,(objects|programs|suite|live), ]]; }
emulator() { if is_arm64 "$1"; then echo qemu-system-aarch64; else echo qemu-system-x86_64; fi; }

bootable() {
    local kernel
    for kernel in $(known); do
        if is_arm64 "$kernel" && ! { command -v qemu-system-aarch64 >/dev/null && scripts/arm64.sh ready; }; then
            say "$kernel is left out: apt-get install qemu-system-arm, make arm64"
        else
            echo "$kernel"
        fi
    done
}

# What is run in the guests, as this machine builds it: the instrument, and the tests of crates/tcplog and crates/live.
programs() {
    instrument=${SOJOURN_INSTRUMENT:-${CARGO_TARGET_DIR:-target}/release/sojourn-instrument}
    [ -x "$instrument" ] || die 3 "$instrument is missing: make setup"
    ! runs_tests || cargo test --locked --no-run -p sojourn-tcplog -p sojourn-live >"$work/cargo.log" 2>&1 || die 1 "$(tail -n 20 "$work/cargo.log")"
}

programs_for_arm64() {
    scripts/arm64.sh build || die 3 "the instrument for arm64 could not be built"
    scripts/arm64.sh guest || die 3 "a guest's programs for arm64 could not be had"
    ! runs_tests || scripts/arm64.sh programs -p sojourn-tcplog -p sojourn-live >"$work/cargo-arm64.log" 2>&1 || die 1 "$(tail -n 20 "$work/cargo-arm64.log")"
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
    if is_arm64 "$1"; then own_programs_for_arm64 "$root"; else own_programs "$root"; fi
    for name in "${MODULES[@]}"; do
        file=$(find "$work/$1/files" -name "$name.ko*" -print -quit)
        case $file in
            '') ;; # built in
            *.xz) xz -dc "$file" >"$root/modules/$name.ko" ;;
            *.zst) zstd -qdc "$file" >"$root/modules/$name.ko" ;;
            *) cp "$file" "$root/modules/$name.ko" ;;
        esac
    done
    cp "$here"/{init,checks,asked,computed,peers} "$root"
    .venv/bin/python -m tests.kernels.datagrams "$root/before.pcap"
    chmod +x "$root/init"
    (cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$work/$1/initrd.gz"
}

# The shell too: busybox's takes its own ip and tc before others.
own_programs() {
    local root=$1 name file
    for name in busybox sh ip tc ping unshare; do put "$root" "$(readlink -f "$(command -v "$name")")" "bin/$name"; done
    put "$root" "$instrument" bin/sojourn-instrument
    if [[ ,$PARTS, == *,peers,* ]]; then
        needs iperf3
        needs tcpdump
        for name in iperf3 tcpdump; do put "$root" "$(readlink -f "$(command -v "$name")")" "bin/$name"; done
        mkdir -p "$root/etc" && echo root:x:0:0:root:/tmp:/bin/sh >"$root/etc/passwd" # tcpdump asks who root is
    fi
    if runs_tests; then for name in "${TESTS[@]}"; do put "$root" "$(built "$name" cargo)" "tests/$name"; done; fi
    for file in /usr/lib/tc /usr/lib/*/tc; do # netem's distributions
        if [ -d "$file" ]; then mkdir -p "$root$file" && cp -a "$file/." "$root$file"; fi
    done
}

# From Debian's packages, with every library that is in them.
own_programs_for_arm64() {
    local root=$1 guest=build/arm64/guest name file
    for file in lib usr/lib/aarch64-linux-gnu usr/lib/tc usr/lib/ld-linux-aarch64.so.1; do
        if [ -e "$guest/$file" ]; then mkdir -p "$(dirname "$root/$file")" && cp -a "$guest/$file" "$root/$file"; fi
    done
    [ -e "$root/lib" ] || ln -s usr/lib "$root/lib" # as packages have it since Debian 13
    rm -rf "$root"/{,usr/}lib/{,aarch64-linux-gnu/}{gconv,perl*,systemd,udev}
    for name in busybox:busybox sh:dash ip:ip tc:tc ping:ping unshare:unshare; do
        file=$(find "$guest"/{,usr/}{bin,sbin} -name "${name#*:}" -type f -print -quit 2>/dev/null || true)
        cp "$file" "$root/bin/${name%:*}"
    done
    put "$root" .venv/bin/sojourn-instrument-aarch64 bin/sojourn-instrument
    if runs_tests; then for name in "${TESTS[@]}"; do put "$root" "$(built "$name" cargo-arm64)" "tests/$name"; done; fi
}

# Puts a program and its libraries into a root; what debuggers want stays outside.
put() { # ROOT PROGRAM PLACE
    local library
    strip -o "$1/$3" "$2" 2>/dev/null || llvm-strip -o "$1/$3" "$2" 2>/dev/null || cp "$2" "$1/$3"
    { ldd "$2" 2>/dev/null | grep -oE '/[^ ]+' || true; } | while read -r library; do
        mkdir -p "$1${library%/*}"
        cp -nL "$library" "$1$library"
    done
}

# The test program that cargo built last under this name.
built() { # NAME LOG
    sed -n "s|.*Executable .*(\(.*/$1-[0-9a-f]*\)).*|\1|p" "$work/$2.log" | tail -n 1
}

# The emulated x86 lacks cmpxchg16b: QEMU 7.2 returns from it with wrong flags where CPUs have threads of their own, and
# kernels since 6.11 use it in their allocator.
boot() {
    local folder=$work/$1 says=ttyS0 out=ttyS1 parts=,$PARTS,
    [ "$1" = "$BESIDE" ] || parts=${parts/,peers,/,}
    local machine=(-cpu 'max,-cx16,-la57' -serial "file:$folder/out.tar")
    if is_arm64 "$1"; then
        # Its board has one serial port; the other is a card. The authentication of pointers by QARMA would be most of the time.
        machine=(-machine virt -cpu 'max,pauth-impdef=on' -chardev "file,id=out,path=$folder/out.tar" -device pci-serial,chardev=out)
        says=ttyAMA0 out=ttyS0
    fi
    rm -rf "$folder/out" "$folder/out.tar"
    timeout -k 5 "$SECONDS_OF_A_GUEST" "$(emulator "$1")" -accel tcg -smp 2 -m 1024 \
        -nodefaults -display none -no-reboot -kernel "$folder"/files/boot/vmlinuz-* -initrd "$folder/initrd.gz" \
        -append "console=$says says=/dev/$says out=/dev/$out quiet panic=-1 mitigations=off parts=$parts" \
        -serial "file:$folder/console.log" "${machine[@]}" </dev/null || return
    mkdir "$folder/out"
    tar -C "$folder/out" -xf "$folder/out.tar" || true
}

main "$@"
