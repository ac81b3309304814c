#!/bin/sh
# A bridge with a set of nftables rules: `sojourn run bridge-latency --device "./rules.sh 200"`.
set -eu
ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
ip link set "$SOJOURN_LEFT" master br0
ip link set "$SOJOURN_RIGHT" master br0
ip link set br0 up

{
    echo 'table bridge filter {'
    echo 'chain forward { type filter hook forward priority 0; policy accept;'
    number=0
    while [ "$number" -lt "${1:-20}" ]; do
        number=$((number + 1))
        echo "ether type ip ip saddr 192.0.2.$((number % 256)) drop"
    done
    echo '}'
    echo '}'
} | nft -f -
echo "${1:-20} rules"
