#!/bin/sh
# Open vSwitch between two ports, with daemons and a database of its own: in the kernel where it has the datapath, else in user space.
set -eu
for tool in ovsdb-tool ovsdb-server ovs-vsctl ovs-vswitchd; do
    command -v "$tool" >/dev/null || { echo "$tool not found: apt-get install openvswitch-switch"; exit 1; }
done
export OVS_RUNDIR="$SOJOURN_FOLDER" OVS_LOGDIR="$SOJOURN_FOLDER" OVS_DBDIR="$SOJOURN_FOLDER"
db="unix:$SOJOURN_FOLDER/db.sock"

ovsdb-tool create "$SOJOURN_FOLDER/conf.db"
ovsdb-server "$SOJOURN_FOLDER/conf.db" --remote="p$db" --pidfile --detach --log-file
ovs-vsctl --db="$db" --no-wait init
ovs-vswitchd "$db" --pidfile --detach --log-file

if [ -d /sys/module/openvswitch ] || modprobe -q openvswitch 2>/dev/null; then
    datapath=system
else
    datapath=netdev
fi
ovs-vsctl --db="$db" --timeout=20 add-br br0 -- set bridge br0 datapath_type="$datapath" \
    -- add-port br0 "$SOJOURN_LEFT" -- add-port br0 "$SOJOURN_RIGHT"
echo "the datapath is $datapath (system: the kernel's; netdev: user space)"
ovs-vsctl --db="$db" show
