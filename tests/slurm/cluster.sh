#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Starts a Slurm cluster of virtual nodes on this machine, for tests and for trying job scripts. It needs no systemd, no
# cgroups and no root.
#   cluster.sh up FOLDER NODES CPUS   starts the cluster in FOLDER; Slurm's commands (sbatch, srun, ...) need
#                                     SLURM_CONF=FOLDER/slurm.conf
#   cluster.sh down FOLDER            cancels its jobs and ends its daemons
# Partitions: low (the default; its jobs can be preempted, get 5 seconds to end, and are queued again) and high (its
# jobs preempt those of low). PATIENCE=N: all times and time-outs are N times as long. Packages: munge, slurm-wlm.
set -eu
PATH=$PATH:/usr/sbin:/sbin # Debian's folders for the daemons
times=${PATIENCE:-1}       # factor for all times: 1 on an idle machine, more on a slow or busy one
patience=$((20 * times))   # time limit in seconds of each wait

fail() {
    echo "cluster.sh: $*" >&2
    exit 1
}

until_true() { # SECONDS COMMAND...: repeats COMMAND until it succeeds, since Slurm does not notify
    local end=$((SECONDS + $1 + 1))
    shift
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}

# COUNT: prints the first of COUNT consecutive free ports, chosen at random, since other processes may choose at the
# same time. They are below the ports that the kernel gives to connections
free_ports() {
    python3 - "$1" <<'END'
import random, socket, sys
count = int(sys.argv[1])
while True:
    first = random.randrange(10000, 32000 - count)
    sockets = [socket.socket() for _ in range(count)]
    try:
        for i, one in enumerate(sockets):
            one.bind(("", first + i))
    except OSError:
        continue
    finally:
        for one in sockets:
            one.close()
    print(first)
    break
END
}

write_conf() { # FOLDER NODES CPUS FIRST_PORT
    local folder=$1 nodes=$2 cpus=$3 port=$4 host user
    host=$(hostname -s)
    user=$(id -un)
    cat >"$folder/slurm.conf" <<END
ClusterName=virtual
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
AuthType=auth/munge
# a job that is queued again waits until its credential has expired
AuthInfo=socket=$folder/run/munge.sock,cred_expire=$((3 + 2 * times))
CredType=cred/munge
SlurmUser=$user
SlurmdUser=$user
SlurmctldPidFile=$folder/run/slurmctld.pid
SlurmdPidFile=$folder/run/slurmd.%n.pid
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
TmpFS=$folder/tmp/%n
TaskProlog=$folder/task_prolog
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.%n.log
# the nodes may have more CPUs than the machine
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,sched_min_interval=0
MpiDefault=${MPI_DEFAULT:-pmix}
ReturnToService=2
JobRequeue=1
# a test asks for the state of a job long after its end, if another job of it took long
MinJobAge=86400
KillWait=$((5 * times))
MessageTimeout=$((times < 9 ? 10 * times : 90))
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldTimeout=$((30 * times))
SlurmdTimeout=$((30 * times))
MailProg=/bin/true
NodeName=n[1-$nodes] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=$cpus RealMemory=8000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=$((5 * times))
PartitionName=high Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
END
}

# Open MPI names its shared memory by host and local rank, which may be the same for tasks of several virtual nodes
write_task_prolog() { # FOLDER
    cat >"$1/task_prolog" <<END
#!/bin/sh
echo "export OMPI_MCA_btl_vader_backing_directory=$1/tmp/\$SLURMD_NODENAME"
END
    chmod +x "$1/task_prolog"
}

all_idle() { # NODES
    [ "$(sinfo -h -p low -t idle -o %D 2>/dev/null)" = "$1" ]
}

start() { # FOLDER NODES
    local folder=$1 nodes=$2 i
    munged --force --key-file="$folder/munge.key" --socket="$folder/run/munge.sock" --pid-file="$folder/run/munged.pid" \
        --log-file="$folder/log/munged.log" --seed-file="$folder/run/munge.seed" --num-threads=4 &&
        slurmctld -f "$folder/slurm.conf" || return 1
    for i in $(seq "$nodes"); do
        mkdir -p "$folder/spool/n$i" "$folder/tmp/n$i"
        slurmd -N "n$i" -f "$folder/slurm.conf" || return 1
    done
    until_true $patience all_idle "$nodes"
}

up() { # FOLDER NODES CPUS
    local folder=$1 nodes=$2 cpus=$3 attempt
    for program in munged slurmctld slurmd srun; do
        command -v $program >/dev/null || fail "there is no $program; on Debian: apt-get install munge slurm-wlm"
    done
    mkdir -p "$folder"/{state,log,run,spool,tmp}
    folder=$(cd "$folder" && pwd -P)
    export SLURM_CONF=$folder/slurm.conf
    [ -f "$folder/munge.key" ] || (umask 077; head -c 1024 /dev/urandom >"$folder/munge.key")
    write_task_prolog "$folder"
    # another process may have taken the ports in the meantime
    for attempt in 1 2 3; do
        write_conf "$folder" "$nodes" "$cpus" "$(free_ports $((nodes + 1)))"
        if start "$folder" "$nodes" >>"$folder/log/start.log" 2>&1; then return; fi
        down "$folder"
    done
    fail "the nodes did not start; see $folder/log"
}

no_jobs() {
    [ -z "$(squeue -h)" ]
}

# whether these processes have ended; a zombie has
ended() { # ID...
    local id line
    for id in "$@"; do
        read -r line 2>/dev/null </proc/$id/stat || continue
        [[ ${line##*) } == Z* ]] || return 1
    done
}

end() { # PID_FILE...
    local ids
    ids=$(cat "$@" 2>/dev/null) || :
    [ -n "$ids" ] || return 0
    kill $ids 2>/dev/null || :
    until_true $patience ended $ids || kill -KILL $ids 2>/dev/null || :
    rm -f "$@"
}

down() { # FOLDER
    local run=$1/run
    export SLURM_CONF=$1/slurm.conf
    # the jobs end first: they would outlive the daemons
    if [ -f "$run/slurmctld.pid" ] && scancel --full -s KILL -u "$(id -un)" && scancel -u "$(id -un)"; then
        until_true $patience no_jobs || echo "cluster.sh: these jobs did not end: $(squeue -h)" >&2
    fi
    end "$run"/slurmd.*.pid
    end "$run/slurmctld.pid"
    end "$run/munged.pid"
}

case "${1-} $#" in
    "up 4") up "$2" "$3" "$4" ;;
    "down 2") down "$2" ;;
    *) fail "usage: cluster.sh up FOLDER NODES CPUS | down FOLDER" ;;
esac
