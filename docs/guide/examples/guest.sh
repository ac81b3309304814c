#!/bin/sh
# A guest system that bridges two virtio ports, in QEMU. Each port is joined to a tap by a redirect, which is on the way too.
#   sojourn run bridge-latency --device "./guest.sh"                       the newest kernel in /boot
#   sojourn run bridge-latency --device "./guest.sh VMLINUZ MODULES"       another, and its folder of modules
# Needs qemu-system-x86, busybox-static, and a kernel with virtio and a bridge, built in or as modules. A plan gives it more
# time than 30 s where the machine cannot virtualise: device = { up = "./guest.sh", within = "2min" }.
set -eu
for tool in qemu-system-x86_64 busybox; do
    command -v "$tool" >/dev/null || { echo "$tool not found: apt-get install qemu-system-x86 busybox-static"; exit 1; }
done
kernel=${1:-$(ls -t /boot/vmlinuz-* 2>/dev/null | head -n 1)}
[ -r "${kernel:-/nowhere}" ] || { echo "no kernel: name one, such as /boot/vmlinuz-6.1.0-1-amd64"; exit 1; }
modules=${2:-/lib/modules/${kernel##*/vmlinuz-}}

# Its whole system: busybox, the modules in the order of their needs, and a first process.
root=$SOJOURN_FOLDER/guest
mkdir -p "$root/bin" "$root/modules" "$root/proc" "$root/sys"
cp "$(command -v busybox)" "$root/bin/busybox"
order=
needs() {
    case $order in *" $1 "*) return 0 ;; esac
    file=$(find "$modules" -name "$(echo "$1" | tr _- '??').ko*" 2>/dev/null | head -n 1)
    case $file in
        '') return 0 ;; # built in
        *.xz) xz -dc "$file" >"$root/modules/$1.ko" ;;
        *.zst) zstd -qdc "$file" >"$root/modules/$1.ko" ;;
        *) cp "$file" "$root/modules/$1.ko" ;;
    esac
    for one in $(tr '\0' '\n' <"$root/modules/$1.ko" | sed -n 's/^depends=//p' | tr ',' ' '); do needs "$one"; done
    case $order in *" $1 "*) ;; *) order="$order $1 " ;; esac
}
for module in virtio_pci virtio_net bridge; do needs "$module"; done
cat >"$root/init" <<END
#!/bin/busybox sh
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
for module in $order; do insmod /modules/\$module.ko; done
until [ -e /sys/class/net/eth1 ]; do sleep 0.1; done
brctl addbr br0
for port in eth0 eth1; do brctl addif br0 \$port; ip link set \$port up; done
ip link set br0 up
echo bridging
while :; do sleep 1000; done
END
sed -i '1s|/bin/busybox sh|/bin/sh|' "$root/init"
ln -s busybox "$root/bin/sh"
chmod +x "$root/init"
(cd "$root" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$SOJOURN_FOLDER/initrd.gz"

# A tap for each port, and whatever comes in at one leaves at the other.
for side in left right; do
    ip tuntap add "tap-$side" mode tap
    ip link set "tap-$side" mtu "$SOJOURN_MTU" up
done
for pair in "$SOJOURN_LEFT tap-left" "tap-left $SOJOURN_LEFT" "$SOJOURN_RIGHT tap-right" "tap-right $SOJOURN_RIGHT"; do
    set -- $pair
    tc qdisc add dev "$1" clsact
    tc filter add dev "$1" ingress protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev "$2"
done
# QEMU emulates the processor, unless GUEST_ACCEL=kvm says that this machine can virtualise.
qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg}" -cpu max,-cx16,-la57 -m 256 -nodefaults -display none -no-reboot -serial stdio \
    -kernel "$kernel" -initrd "$SOJOURN_FOLDER/initrd.gz" -append "console=ttyS0 quiet panic=-1 mitigations=off" \
    -netdev tap,id=left,ifname=tap-left,script=no,downscript=no -device virtio-net-pci,netdev=left,romfile= \
    -netdev tap,id=right,ifname=tap-right,script=no,downscript=no -device virtio-net-pci,netdev=right,romfile= &
