#!/bin/sh
# Two routers with a tunnel between them: A - left - tunnel - right - B. WireGuard, where the kernel or a wireguard-go has it;
# elsewhere VXLAN, which encrypts nothing, and the output says so: `sojourn run bridge-latency --device ./wireguard.sh`.
set -eu
ip netns add right
ip link add across type veth peer name across netns right
ip link set "$SOJOURN_RIGHT" netns right

in_right() { ip netns exec right "$@"; }
in_right ip link set lo up
in_right ip link set "$SOJOURN_RIGHT" up
ip address add 172.31.0.1/30 dev across
in_right ip address add 172.31.0.2/30 dev across
ip link set across up
in_right ip link set across up

# tunnel HERE'S-PREFIX NUMBER: makes the interface tun0, on the left without a prefix.
if command -v wg >/dev/null && ip link add tun0 type wireguard 2>/dev/null; then
    echo "the tunnel is WireGuard, the kernel's"
    in_right ip link add tun0 type wireguard
    encrypted=yes
elif command -v wg >/dev/null && command -v wireguard-go >/dev/null && wireguard-go tun0; then
    echo "the tunnel is WireGuard, wireguard-go's"
    in_right wireguard-go tun0
    encrypted=yes
else
    echo "this machine has no WireGuard (modprobe wireguard, apt-get install wireguard-tools): the tunnel is VXLAN, without encryption"
    ip link add tun0 type vxlan id 1 remote 172.31.0.2 local 172.31.0.1 dstport 4789 dev across
    in_right ip link add tun0 type vxlan id 1 remote 172.31.0.1 local 172.31.0.2 dstport 4789 dev across
    encrypted=no
fi
if [ "$encrypted" = yes ]; then
    umask 077
    for side in left right; do wg genkey >"$SOJOURN_FOLDER/$side"; done
    left=$(wg pubkey <"$SOJOURN_FOLDER/left") right=$(wg pubkey <"$SOJOURN_FOLDER/right")
    wg set tun0 listen-port 51820 private-key "$SOJOURN_FOLDER/left" \
        peer "$right" endpoint 172.31.0.2:51820 allowed-ips 0.0.0.0/0
    in_right wg set tun0 listen-port 51820 private-key "$SOJOURN_FOLDER/right" \
        peer "$left" endpoint 172.31.0.1:51820 allowed-ips 0.0.0.0/0
fi
ip address add 172.31.1.1/30 dev tun0
in_right ip address add 172.31.1.2/30 dev tun0
ip link set tun0 up
in_right ip link set tun0 up

sysctl -qw net.ipv4.ip_forward=1
in_right sysctl -qw net.ipv4.ip_forward=1
ip address add "$SOJOURN_LEFT_IP4" dev "$SOJOURN_LEFT"
in_right ip address add "$SOJOURN_RIGHT_IP4" dev "$SOJOURN_RIGHT"
ip neighbour replace "$SOJOURN_A_IP4" lladdr "$SOJOURN_A_MAC" dev "$SOJOURN_LEFT" nud permanent
in_right ip neighbour replace "$SOJOURN_B_IP4" lladdr "$SOJOURN_B_MAC" dev "$SOJOURN_RIGHT" nud permanent
ip route add "$SOJOURN_B_IP4" via 172.31.1.2
in_right ip route add "$SOJOURN_A_IP4" via 172.31.1.1
