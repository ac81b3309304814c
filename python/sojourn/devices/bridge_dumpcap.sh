#!/bin/sh
# The Linux bridge with dumpcap running on its port towards A: the first 128 bytes of every frame, both ways, into memory;
# beyond 64 MB the oldest make room.
set -eu
ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0 ageing_time 360000
for port in "$SOJOURN_LEFT" "$SOJOURN_RIGHT"; do ip link set "$port" master br0; done
ip link set br0 up
: >"$SOJOURN_FOLDER/said"
dumpcap -q -i "$SOJOURN_LEFT" -s 128 -w "$SOJOURN_FOLDER/capture" -b filesize:16000 -b files:4 \
    >"$SOJOURN_FOLDER/said" 2>&1 &
until grep -q "^File: " "$SOJOURN_FOLDER/said"; do
    kill -0 $! 2>/dev/null || { cat "$SOJOURN_FOLDER/said"; exit 1; }
    sleep 0.02
done
cat "$SOJOURN_FOLDER/said"
