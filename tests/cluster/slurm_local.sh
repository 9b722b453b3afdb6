#!/bin/sh
# A Slurm of one node for the tests, from Debian's packages (apt-get install slurm-wlm munge), in a folder of its own:
# its daemons, ports and key have nothing to do with a Slurm that the machine may have.
#
#   slurm_local.sh start DIR     then: export SLURM_CONF=DIR/slurm.conf
#   slurm_local.sh stop DIR
set -eu
action=$1
mkdir -p "$2"
dir=$(cd "$2" && pwd)
PATH=$PATH:/usr/sbin:/sbin

need() {
    command -v "$1" >/dev/null || { echo "$1 is not installed: apt-get install slurm-wlm munge" >&2; exit 1; }
}

# A daemon may leave before it has a pid file, or be gone already.
stop() {
    for name in slurmd slurmctld munged; do
        if [ -s "$dir/$name.pid" ]; then
            kill "$(cat "$dir/$name.pid")" 2>/dev/null || true
        fi
    done
}

start() {
    for program in munged slurmctld slurmd sbatch squeue scontrol; do need "$program"; done
    mkdir -p "$dir/state" "$dir/spool"
    chmod 700 "$dir"
    dd if=/dev/urandom of="$dir/munge.key" bs=1024 count=1 2>/dev/null
    chmod 600 "$dir/munge.key"
    # --force: the socket's folder may be less open than munge likes, which only matters to other users.
    munged --force --key-file "$dir/munge.key" --socket "$dir/munge.socket" --pid-file "$dir/munged.pid" \
        --log-file "$dir/munged.log" --seed-file "$dir/munge.seed"
    port=$((20000 + $$ % 20000))
    host=$(hostname -s)
    cat >"$dir/slurm.conf" <<CONF
ClusterName=ttabench
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
SlurmctldPort=$port
SlurmdPort=$((port + 1))
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
CryptoType=crypto/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=tests Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
    export SLURM_CONF="$dir/slurm.conf"
    slurmctld
    slurmd
    tries=0
    until [ "$(squeue --noheader 2>/dev/null >/dev/null && sinfo --noheader --format %T 2>/dev/null)" = idle ]; do
        tries=$((tries + 1))
        if [ "$tries" -gt 60 ]; then
            echo "Slurm did not come up: $(tail -n 3 "$dir/slurmctld.log" "$dir/slurmd.log" 2>&1 | tr '\n' ' ')" >&2
            stop
            exit 1
        fi
        sleep 0.5
    done
}

case $action in
start) start ;;
stop) stop ;;
*) echo "slurm_local.sh start|stop DIR" >&2; exit 2 ;;
esac
