#!/bin/sh
# A bridge with a rule set of yours: `sojourn run bridge-latency --device "mine=./filter.sh rules-500.nft"`.
# The file is a program of nft -f, from this script's folder, whose tables are of family bridge.
set -eu
ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
ip link set "$SOJOURN_LEFT" master br0
ip link set "$SOJOURN_RIGHT" master br0
ip link set br0 up
nft -f "${1:-rules-500.nft}"
echo "loaded ${1:-rules-500.nft}"
