#!/bin/sh
# A router with a set of nftables rules: `sojourn run bridge-latency --device "mine=./router.sh rules.nft"`, a program of nft -f
# whose tables are of family inet, ip or ip6; or, in place of a file, how many rules there are to be.
set -eu
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip address add "$SOJOURN_LEFT_IP4" dev "$SOJOURN_LEFT"
ip address add "$SOJOURN_RIGHT_IP4" dev "$SOJOURN_RIGHT"
ip address add "$SOJOURN_LEFT_IP6" dev "$SOJOURN_LEFT" nodad
ip address add "$SOJOURN_RIGHT_IP6" dev "$SOJOURN_RIGHT" nodad

# Neighbours that are known need not be asked for while it is measured.
ip neighbour replace "$SOJOURN_A_IP4" lladdr "$SOJOURN_A_MAC" dev "$SOJOURN_LEFT" nud permanent
ip neighbour replace "$SOJOURN_B_IP4" lladdr "$SOJOURN_B_MAC" dev "$SOJOURN_RIGHT" nud permanent

if [ -f "${1:-}" ]; then
    nft -f "$1"
    echo "loaded $1"
    exit
fi

{
    echo 'table inet filter {'
    echo 'chain forward { type filter hook forward priority 0; policy accept;'
    number=0
    while [ "$number" -lt "${1:-200}" ]; do
        number=$((number + 1))
        echo "ip saddr 192.0.2.$((number % 256)) drop"
    done
    echo '}'
    echo '}'
} | nft -f -
echo "${1:-200} rules"
