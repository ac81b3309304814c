#!/bin/sh
# The Linux bridge with a capture running on its port towards A, by the program that is named (capture: ours, tcpdump,
# dumpcap; bpf: ours, by programs of traffic control): the first 128 bytes of every frame, both ways, into memory; beyond 64 MiB (of ours; of the others 64 MB) the
# oldest make room.
set -eu

ours() {
    exec "$SOJOURN_INSTRUMENT" capture "$SOJOURN_LEFT" --format pcapng --snap 128 --out "$SOJOURN_FOLDER/capture" \
        --rotate-size 16MiB --budget 64MiB --remove-oldest --tap "$1"
}

capture() {
    ours ring
}

bpf() {
    ours bpf
}

tcpdump() {
    exec tcpdump -i "$SOJOURN_LEFT" -s 128 -Z root -w "$SOJOURN_FOLDER/capture" -C 16 -W 4
}

dumpcap() {
    exec dumpcap -q -i "$SOJOURN_LEFT" -s 128 -w "$SOJOURN_FOLDER/capture" -b filesize:16000 -b files:4
}

case $1 in
    capture | bpf) begun="capturing $SOJOURN_LEFT" ;;
    tcpdump) begun="listening on $SOJOURN_LEFT" ;;
    dumpcap) begun="^File: " ;;
esac
ip link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0 ageing_time 360000
for port in "$SOJOURN_LEFT" "$SOJOURN_RIGHT"; do ip link set "$port" master br0; done
ip link set br0 up
: >"$SOJOURN_FOLDER/said"
"$1" >"$SOJOURN_FOLDER/said" 2>&1 &
until grep -q "$begun" "$SOJOURN_FOLDER/said"; do
    kill -0 $! 2>/dev/null || { cat "$SOJOURN_FOLDER/said"; exit 1; }
    sleep 0.02
done
cat "$SOJOURN_FOLDER/said"
