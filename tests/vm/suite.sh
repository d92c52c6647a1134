#!/usr/bin/env bash
# Tests that need real verbs, over Soft-RoCE, inside the virtual machine of tests/vm/run, 4 devices:
#     tests/vm/run --devs 4 tests/vm/suite.sh BUILD [CASE...]
# BUILD is below the current directory, which is shared; /tmp is not. Ends with a line "N passed, M
# failed, K skipped". Emulation is slow, so there are few rounds of each test.
set -u
build=$(readlink -f "${1:?usage: suite.sh BUILD [CASE...]}")
shift
work=$(mktemp -d)
passed=0 failed=0
trap 'rm -rf "$work"' EXIT
unset "${!HOOP_@}"
hooprun=$build/tools/hooprun perf=$build/bench
rows='^ +[0-9]+ +[0-9]+ '
# With this a lost packet costs 70 ms instead of half a second, and seven cost 0.5 s.
export HOOP_IB_TIMEOUT=14

complain() { [ -n "$complaint" ] || complaint=$1; }

# run SECONDS COMMAND...: its output is in $work/out, its exit code in $code.
run() {
    local limit=$1
    shift
    timeout "$limit" "$@" >"$work/out" 2>&1 </dev/null
    code=$?
}

# says PATTERN...: each matches a line of the output.
says() {
    local pattern
    for pattern in "$@"; do
        grep -aEq -- "$pattern" "$work/out" || complain "nothing says '$pattern'"
    done
}

# table ROWS: the benchmark ended well, with so many rows and no wrong element.
table() {
    local got
    got=$(awk -v rows="$rows" '$0 ~ rows { n++; if ($9 != "0" || $13 !~ /^(0|N\/A)$/) bad++ }
                END { print n + 0, bad + 0 }' "$work/out")
    [ "$code $got" = "0 $1 0" ] || complain "code, rows and wrong rows are $code $got, not 0 $1 0"
}

# job RANKS PROGRAM OPTIONS...: over rdma.
job() {
    local ranks=$1 program=$2
    shift 2
    run 100 env HOOP_TRANSPORT=rdma "$hooprun" -n "$ranks" "$perf/${program}_perf" -c 1 --no-bound "$@"
}

counter() { cat "/sys/class/infiniband/rxe0/ports/1/hw_counters/$1"; }
loss() { for nic in rdma0 rdma1; do tc qdisc "$1" dev $nic root netem loss 3%; done; }

# ---- Cases ---------------------------------------------------------------------------------------

devices() {
    local n
    run 60 "$build/tools/hoopinfo" --json
    says '"rxe0": "port 1, state ACTIVE.* gid 1 RoCE v2 0*ffff0a4d0001.*network 10.77.0.1/24' '"rxe3": "port 1' \
        'why_not a software device: it is used only where HOOP_IB_HCA'
    run 60 env HOOP_IB_HCA=rxe2 "$build/tools/hoopinfo" --json
    says '"rxe1": .*why_not HOOP_IB_HCA leaves it out' '"rxe2": .*usable true'
    # As many GIDs as VLANs and containers may make; one of the last is asked for.
    for n in $(seq 20); do ip addr add "10.79.$n.1/24" dev rdma3; done
    sleep 1 # until the table is updated
    run 60 env HOOP_IB_HCA=rxe3 HOOP_IB_GID_INDEX=20 "$build/tools/hoopinfo" --json
    says '"rxe3": .*gid 20 RoCE v2 .*usable true'
    for n in $(seq 20); do ip addr del "10.79.$n.1/24" dev rdma3; done
}

contract() {
    run 100 env HOOP_TEST_RDMA_DEVICE=1 HOOP_IB_HCA=rxe "$build/tests/test_$1" rdma
    [ $code = 0 ] || complain "code $code"
}
contract_plain() { contract transport; }
contract_ends() { contract transport_ends; }
contract_hostile() { contract transport_hostile; }
contract_places() { contract transport_places; }

two_ranks() {
    job 2 all_reduce -b 4 -e 300K -f 17 -n 2 -w 1
    table 4
    job 2 all_reduce -b 8 -e 8 -n 1000 -w 1
    table 1
}

# Every collective with odd counts, 3 ranks on 2 devices.
collectives() {
    local program
    for program in all_gather all_reduce alltoall broadcast gather reduce reduce_scatter scatter sendrecv; do
        HOOP_IB_HCA="rxe0,rxe1" job 3 "$program" -b 12 -e 200004 -f 129 -n 1 -w 0
        table 3
        [ -z "$complaint" ] || { complain "$program"; return; }
    done
}

# logged SECONDS COMMAND...: what ranks log about links is added behind the output, not mixed in.
logged() {
    run "$1" env HOOP_DEBUG=info HOOP_DEBUG_SUBSYS=net HOOP_DEBUG_FILE="$work/log.%p" "${@:2}"
    cat "$work"/log.* >>"$work/out"
    rm -f "$work"/log.*
}

# Registered memory at odd addresses, in parts of odd sizes; also in place.
places() {
    local algo program
    for program in all_reduce all_gather broadcast sendrecv; do
        case $program in broadcast) algo=chain ;; sendrecv) algo=auto ;; *) algo=ring ;; esac
        HOOP_TRANSPORT=rdma HOOP_ALGO=$algo logged 100 "$hooprun" -n 3 "$perf/${program}_perf" -R 2 -u 1 \
            -b 300001 -e 300001 -d int8 -n 1 -w 0 -c 1 --no-bound
        table 1
        says 'a region of [0-9]+ bytes registered with rxe'
        [ -z "$complaint" ] || { complain "$program"; return; }
    done
}

# The links of two ranks use all devices, and each rank begins with another one.
spread() {
    HOOP_TRANSPORT=rdma HOOP_LANES=4 HOOP_ALGO=ring logged 100 "$hooprun" -n 2 "$perf/all_reduce_perf" \
        -b 600004 -e 600004 -n 2 -w 0 -c 1 --no-bound
    table 1
    says 'rank 0: lane 0 to rank 1 by rxe0 port 1' 'rank 1: lane 0 from rank 0 by rxe1 port 1' \
        'rank 0: lane 3 to rank 1 by rxe3 port 1' 'rank 1: lane 3 from rank 0 by rxe0 port 1'
}

# Two networks without a way between them: links stay in one, and a rank without a port there is
# named.
rails() {
    local n
    for n in 2 3; do
        ip addr flush dev rdma$n
        ip addr add 10.78.0.$n/24 dev rdma$n
    done
    # shellcheck disable=SC2016
    HOOP_TRANSPORT=rdma HOOP_ALGO=ring logged 100 "$hooprun" -n 3 sh -c '
        case $RANK in 0) ports=rxe0,rxe2 ;; 1) ports=rxe1,rxe3 ;; *) ports=rxe1 ;; esac
        HOOP_IB_HCA=$ports exec "$@"' sh "$perf/all_reduce_perf" -b 300004 -e 300004 -n 1 -w 0 -c 1 --no-bound
    table 1
    says 'rank 0: lane 1 to rank 1 by rxe2 port 1' 'rank 1: lane 1 from rank 0 by rxe3 port 1' \
        'rank 1: lane 1 to rank 2 does not use rxe3 port 1: rank 2 has no port in its network'
    for n in 2 3; do
        ip addr flush dev rdma$n
        ip addr add 10.77.0.$((n + 1))/24 dev rdma$n
        ip addr add fd77::$((n + 1))/64 dev rdma$n nodad
    done
}

# There is enough lockable memory for the slots, but not for the buffers.
little_locked() {
    chmod 666 /dev/infiniband/uverbs*
    chmod 777 "$work"
    # shellcheck disable=SC2016
    HOOP_TRANSPORT=rdma HOOP_LANES=1 HOOP_ALGO=ring HOME=/tmp logged 100 \
        setpriv --reuid=65534 --regid=65534 --clear-groups bash -c 'ulimit -l 2560; exec "$@"' bash \
        "$hooprun" -n 2 "$perf/all_reduce_perf" -R 2 -b 2M -e 2M -n 1 -w 0 -c 1 --no-bound
    table 1
    says 'copies what could go without copies over RDMA: registering .* may lock 2621440 bytes'
    [ "$(grep -c 'without copies' "$work/out")" = 2 ] || complain "not a line for each rank"
}

four_ranks() {
    job 4 all_reduce -b 4 -e 300K -f 17 -n 1 -w 0
    table 4
    job 4 alltoall -b 16 -e 64K -f 64 -n 1 -w 0
    table 3
}

types() {
    job 3 all_reduce -b 1000 -e 1000 -d all -o all -n 1 -w 0
    [ "$code" = 0 ] && [ "$(grep -cE "$rows" "$work/out")" -ge 50 ] || complain "code $code, few rows"
    awk -v rows="$rows" '$0 ~ rows && ($9 != "0" || $13 != "0") { exit 1 }' "$work/out" ||
        complain "wrong elements"
}

# Two hosts with two ranks each choose shared memory inside and rdma between by themselves.
two_levels() {
    # shellcheck disable=SC2016
    local hosts='export HOOP_HOSTID=host$((RANK / 2)) HOOP_LOCAL_SIZE=2 HOOP_IB_HCA=rxe$((RANK / 2))
        exec "$@"' each=(-n 1 -w 0 -c 1 --no-bound)
    logged 100 "$hooprun" -n 4 sh -c "$hosts" sh "$perf/all_reduce_perf" -b 8 -e 100K -f 100 "${each[@]}"
    table 3
    says 'from rank [01] over rdma' 'over shm'
    HOOP_ALGO=torus logged 100 "$hooprun" -n 4 sh -c "$hosts" sh "$perf/all_reduce_perf" -R 2 \
        -b 300001 -e 300001 -d int8 "${each[@]}"
    table 1
}

# One host has no device: all use tcp.
one_without() {
    # shellcheck disable=SC2016
    logged 100 "$hooprun" -n 2 sh -c '
        [ $RANK = 0 ] && export HOOP_IB_HCA=rxe0
        export HOOP_HOSTID=host$RANK HOOP_LOCAL_SIZE=1
        exec "$@"' sh "$perf/all_reduce_perf" -b 8 -e 8 -n 1 -w 0 -c 1 --no-bound
    table 1
    says 'over tcp'
    ! grep -q 'over rdma' "$work/out" || complain "rdma was used"
}

fallback() {
    HOOP_TEST_NO_IMMEDIATE=1 job 3 all_reduce -b 8 -e 100K -f 100 -n 2 -w 0
    table 3
    HOOP_TEST_NO_IMMEDIATE=1 HOOP_ALGO=ring job 3 all_reduce -R 2 -b 300001 -e 300001 -d int8 -n 1 -w 0
    table 1
}

lossy() {
    local before
    before=$(counter completer_retry_err)
    loss add
    job 2 all_reduce -b 8 -e 200K -f 160 -n 10 -w 0 -R 2
    loss del
    table 3
    [ "$(counter completer_retry_err)" -gt "$before" ] || complain "nothing was sent again"
}

# until_running FILE: waits until its job moves data.
until_running() {
    for _ in $(seq 400); do
        grep -qE "$rows" "$1" && return
        sleep 0.1
    done
    complain "the job did not start"
}

# endless RANKS: an endless job in the background; its launcher is $launcher.
endless() {
    HOOP_TRANSPORT=rdma "$hooprun" -n "$1" "$perf/all_reduce_perf" -b 8 -e 64K -f 8 -n 2 -w 0 -c 0 \
        --no-bound -N 0 >"$work/out" 2>&1 </dev/null &
    launcher=$!
    until_running "$work/out"
}

# ends SECONDS: the endless job fails within this time.
ends() {
    local end=$((SECONDS + $1))
    while kill -0 $launcher 2>/dev/null && [ $SECONDS -lt $end ]; do
        sleep 0.2
    done
    kill -9 $launcher 2>/dev/null && complain "the job did not end within $1 s"
    wait $launcher 2>/dev/null
    code=$?
    [ $code != 0 ] || complain "the job ended well"
}

killed() {
    local rank
    endless 3
    rank=$(pgrep -x all_reduce_perf | tail -n 1)
    kill -9 "$rank"
    ends 20
    says 'rank [0-2] '
}

# The error names ranks, device, port and status.
link_down() {
    endless 2
    ip link set p1 down
    ends 30
    ip link set p1 up
    says 'rank [01] \(rxe[01] port 1\) cannot (send to|receive from) rank [01] .*verbs status'
}

refused() {
    run 60 env HOOP_IB_HCA=none HOOP_TRANSPORT=rdma "$hooprun" -n 2 "$perf/all_reduce_perf" -b 8 -e 8
    [ $code != 0 ] || complain "it ran"
    says 'no RDMA port can be used: rxe0 port 1: HOOP_IB_HCA leaves it out'
    # As a user who may lock almost no memory.
    chmod 666 /dev/infiniband/uverbs*
    # shellcheck disable=SC2016
    run 60 setpriv --reuid=65534 --regid=65534 --clear-groups bash -c 'ulimit -l 64; exec "$@"' bash \
        env HOOP_TRANSPORT=rdma HOME=/tmp "$hooprun" -n 2 "$perf/all_reduce_perf" -b 8 -e 8
    [ $code != 0 ] || complain "it ran with 64 KiB"
    says 'may lock 65536 bytes in all \(ulimit -l\)'
}

cases=(devices contract_plain contract_ends contract_hostile contract_places two_ranks collectives
    spread rails places little_locked four_ranks types two_levels one_without fallback lossy killed link_down refused)
[ $# = 0 ] || cases=("$@")
for name in "${cases[@]}"; do
    complaint='' code=0 start=$SECONDS
    : >"$work/out"
    "$name"
    if [ -z "$complaint" ]; then
        passed=$((passed + 1))
        echo "ok      $name ($((SECONDS - start)) s)"
    else
        failed=$((failed + 1))
        echo "FAILED  $name ($((SECONDS - start)) s): $complaint"
        tail -n 12 "$work/out" | cut -c 1-300 | sed 's/^/        /'
    fi
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
