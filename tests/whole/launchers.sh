#!/usr/bin/env bash
# Jobs of four ranks under common launchers, with nothing set for hoop: Open MPI's mpirun, Slurm's
# srun, torchrun or the variables that it would set, PMI's variables. The results must be right.
#     launchers.sh ALL_REDUCE_PERF
# A launcher that is not installed is skipped with a reason; if all are, the exit code is 77.
#
# Slurm really runs: munged, slurmctld and slurmd on this machine, in a folder of their own under
# /tmp, at ports of their own, and are stopped at the end whatever happens. That needs root.
set -u

perf=$(readlink -f "${1:?usage: launchers.sh ALL_REDUCE_PERF}")
sizes=(-b 8 -e 1M -f 64 -n 3 -c 1 --no-bound)
rows=3 # for sizes 8, 512, 32K; the next would be 2M
work=$(TMPDIR=/tmp mktemp -d)
chmod 755 "$work" # munge requires that all users can reach its socket
daemons=()
passed=0 failed=0 skipped=0
unset "${!HOOP_@}" "${!SLURM_@}" "${!PMI_@}" "${!OMPI_@}"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID

finish() {
    trap - EXIT
    local pid at
    # in reverse order; slurmctld takes a while to save its state
    for ((at = ${#daemons[@]} - 1; at >= 0; at--)); do
        pid=${daemons[at]}
        kill "$pid" 2>/dev/null
        for _ in {1..50}; do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.1
        done
        kill -9 "$pid" 2>/dev/null
        wait "$pid" 2>/dev/null
    done
    rm -rf "$work"
    printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
    [ "$failed" = 0 ] || exit 1
    if [ "$passed" = 0 ]; then
        echo "no launcher is installed"
        exit 77
    fi
    exit 0
}
trap finish EXIT
trap 'exit 1' INT TERM HUP

skip() {
    echo "skip $1: $2"
    skipped=$((skipped + 1))
}

# check NAME CODE FILE...: one of the files has the table of four ranks, with every row right;
# otherwise shows the files.
check() {
    local name=$1 code=$2 ranks good
    shift 2
    ranks=$(cat "$@" | grep -cE '^# +Rank +[0-9]+ ')
    good=$(cat "$@" | awk '$1 ~ /^[0-9]+$/ { n++; if ($9 != "0" || $13 != "0") bad++ }
                           END { print n + 0, bad + 0 }')
    if [ "$code" = 0 ] && [ "$ranks" = 4 ] && [ "$good" = "$rows 0" ]; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        cat "$@"
        echo "FAIL $name: exit code $code, $ranks ranks, rows and wrong rows $good, expected" \
             "0, 4, $rows 0"
        failed=$((failed + 1))
    fi
}

# have NAME PROGRAM: is the program installed? Otherwise NAME is skipped.
have() {
    command -v "$2" >/dev/null && return 0
    skip "$1" "$2 is not installed"
    return 1
}

# ---- Open MPI ------------------------------------------------------------------------------------

# mpirun_run NAME: writes $work/NAME. Each has its own TMPDIR: if two mpiruns of Open MPI 4 make a
# common folder at the same time, one of them fails (mkdir: File exists).
mpirun_run() {
    mkdir -p "$work/$1.tmp"
    TMPDIR=$work/$1.tmp timeout 120 mpirun --oversubscribe -n 4 "$perf" "${sizes[@]}" \
        >"$work/$1" 2>&1 </dev/null
}

test_mpirun() {
    have mpirun mpirun || return
    if ! mpirun --version 2>&1 | grep -q 'Open MPI'; then
        skip mpirun "it is not Open MPI's"
        return
    fi
    local first
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    if ! mpirun --oversubscribe -n 4 true >"$work/out" 2>&1 </dev/null; then
        skip mpirun "it does not run true: $(tail -n 1 "$work/out")"
        return
    fi
    mpirun_run out
    check mpirun $? "$work/out"
    # two jobs of one user at the same time do not mix
    mpirun_run first &
    first=$!
    mpirun_run second
    check "mpirun, second of two jobs" $? "$work/second"
    wait "$first"
    check "mpirun, first of two jobs" $? "$work/first"
}

# ---- Slurm ---------------------------------------------------------------------------------------

# A free port that the kernel does not use for outgoing connections.
free_port() {
    local port
    for _ in {1..50}; do
        port=$((20000 + RANDOM % 10000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo $port
            return
        fi
    done
}

slurm_configure() {
    local host
    host=$(hostname -s)
    mkdir -p "$work/state" "$work/spool"
    cat >"$work/slurm.conf" <<TEXT
ClusterName=hooptest
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TEXT
    export SLURM_CONF=$work/slurm.conf
}

# daemon NAME COMMAND...: runs in the background until the end.
daemon() {
    local name=$1
    shift
    "$@" >"$work/$name.log" 2>&1 </dev/null &
    daemons+=($!)
}

slurm_start() {
    dd if=/dev/urandom of="$work/munge.key" bs=128 count=1 2>/dev/null
    chmod 600 "$work/munge.key"
    daemon munged munged --foreground --force --key-file="$work/munge.key" \
        --socket="$work/munge.socket" --pid-file="$work/munge.pid" --log-file="$work/munge.log" \
        --seed-file="$work/munge.seed"
    for _ in {1..50}; do
        [ -S "$work/munge.socket" ] && break
        sleep 0.1
    done
    slurm_configure
    daemon slurmctld slurmctld -D -i
    daemon slurmd slurmd -D
    for _ in {1..150}; do
        [ "$(sinfo -h -o %T 2>/dev/null)" = idle ] && return 0
        sleep 0.2
    done
    return 1
}

test_slurm() {
    local program
    for program in srun slurmctld slurmd munged; do
        have slurm "$program" || return
    done
    if [ "$(id -u)" != 0 ]; then
        skip slurm "slurmd wants to be root"
        return
    fi
    if ! slurm_start; then
        tail -n 20 "$work"/*.log
        skip slurm "it does not come up here (see its log above)"
        return
    fi
    (cd / && timeout 120 srun -n 4 "$perf" "${sizes[@]}") >"$work/out" 2>&1 </dev/null
    check srun $? "$work/out"
    # two steps of one allocation at the same time
    cat >"$work/steps" <<TEXT
timeout 120 srun --overlap -n 4 $perf ${sizes[*]} >$work/first 2>&1 &
timeout 120 srun --overlap -n 4 $perf ${sizes[*]} >$work/second 2>&1
second=\$?
wait \$!
echo \$? \$second
TEXT
    (cd / && timeout 240 salloc -Q -n 4 bash "$work/steps") >"$work/out" 2>&1 </dev/null
    read -r first second < <(tail -n 1 "$work/out")
    check "srun, first of two steps" "${first:-none}" "$work/first"
    check "srun, second of two steps" "${second:-none}" "$work/second"
}

# ---- Variables alone -----------------------------------------------------------------------------

# by_hand NAME: four processes; the words that `variables RANK` prints are each one's variables.
by_hand() {
    local name=$1 rank code=0 pids=()
    for rank in 0 1 2 3; do
        # shellcheck disable=SC2046
        timeout 120 env $(variables $rank) "$perf" "${sizes[@]}" >"$work/out.$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    for rank in 0 1 2 3; do
        wait "${pids[rank]}" || code=$?
    done
    check "$name" $code "$work"/out.[0-3]
}

test_torchrun() {
    variables() {
        echo "RANK=$1 LOCAL_RANK=$1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=4 GROUP_RANK=0" \
             "GROUP_WORLD_SIZE=1 ROLE_RANK=$1 ROLE_WORLD_SIZE=4 ROLE_NAME=default" \
             "MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=none" \
             "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0"
    }
    local port
    port=$(free_port)
    by_hand "torchrun's variables"
    local torch
    if ! torch=$(python/torch_env.sh); then
        skip torchrun "${torch#skip: }"
        return
    fi
    (
        # shellcheck disable=SC1091
        . "$torch/env.sh"
        timeout 120 torchrun --standalone --no_python --nproc_per_node 4 "$perf" "${sizes[@]}"
    ) >"$work/out" 2>&1 </dev/null
    check torchrun $? "$work/out"
}

test_pmi() {
    variables() { echo "PMI_RANK=$1 PMI_SIZE=4 PMI_JOBID=hoop-test-$$"; }
    by_hand "PMI's variables"
    have mpiexec.hydra mpiexec.hydra || return
    local first
    timeout 120 mpiexec.hydra -n 4 "$perf" "${sizes[@]}" >"$work/first" 2>&1 </dev/null &
    first=$!
    timeout 120 mpiexec.hydra -n 4 "$perf" "${sizes[@]}" >"$work/out" 2>&1 </dev/null
    check "mpiexec.hydra, second of two jobs" $? "$work/out"
    wait $first
    check "mpiexec.hydra, first of two jobs" $? "$work/first"
}

test_mpirun
test_slurm
test_torchrun
test_pmi
