#!/bin/sh
# Whole runs of a collective's benchmark with processes and threads, shared memory, links and both:
# every #wrong is 0, and a flipped bit is noticed.
#     acceptance_collective.sh HOOPRUN PERF PERF_FAULTY [N|large...]
# N: all combinations of transport, type and operation, and every root, with so many ranks, instead
# of samples. large: more than 4 GiB between two ranks, over shared memory and TCP; needs 20 GiB.
set -u

hooprun=$1 perf=$2 faulty=$3
shift 3
failures=0 patience=300
out=$(mktemp)
trap 'rm -f "$out"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK HOOP_ALGO HOOP_TRANSPORT HOOP_ORDER HOOP_HOSTID
HOOP_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export HOOP_SECRET HOOP_SOCKET_IFNAME=lo

# fail WHAT
fail() {
    cat "$out"
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# run CODE COMMAND...
run() {
    want=$1
    shift
    "$@" >"$out" 2>&1
    got=$?
    [ "$got" = "$want" ] || fail "returned $got, expected $want: $*"
}

# right COMMAND...: every row of the table is right, in the halves that it has.
right() {
    run 0 "$@"
    awk '$1 ~ /^[0-9]+$/ { n++; if ($9 != "0" || ($13 != "0" && $13 != "N/A")) bad++ }
        END { exit n == 0 || bad > 0 }' "$out" || fail "wrong rows, or none: $*"
}

# alone PROGRAM...: without hooprun.
alone() {
    timeout $patience "$@"
}

# ranks N shm|tcp|mixed|blocks PROGRAM...: mixed: odd ranks count as on another machine; blocks: the
# upper half does.
ranks() {
    n=$1 over=$2
    shift 2
    # shellcheck disable=SC2016
    case $over in
    shm) timeout $patience "$hooprun" -n "$n" "$@" ;;
    tcp) HOOP_TRANSPORT=tcp timeout $patience "$hooprun" -n "$n" "$@" ;;
    mixed)
        timeout $patience "$hooprun" -n "$n" \
            sh -c 'unset LOCAL_WORLD_SIZE; HOOP_HOSTID=$((RANK % 2)) exec "$@"' - "$@"
        ;;
    blocks)
        timeout $patience "$hooprun" -n "$n" sh -c \
            'unset LOCAL_WORLD_SIZE; HOOP_HOSTID=$((RANK * 2 / WORLD_SIZE)) exec "$@"' - "$@"
        ;;
    esac
}

# noticed N OVER: a bit of one received chunk flips, in an operation that is checked.
noticed() {
    HOOP_TEST_FAULT=flip:40
    export HOOP_TEST_FAULT
    run 7 ranks "$1" "$2" "$faulty" -b 1M -e 1M -n 1 -w 0 -c 20
    unset HOOP_TEST_FAULT
    awk '$1 ~ /^[0-9]+$/ && $9 + $13 > 0 { found = 1 } END { exit !found }' "$out" ||
        fail "no row counts wrong elements: $1 ranks, $2"
}

# everything N
everything() {
    for over in shm tcp mixed blocks; do
        right ranks "$1" $over "$perf" -b 4 -e 256K -f 256 -d all -o all -n 1 -w 0 -R $(($1 % 3)) --no-bound
        right ranks "$1" $over "$perf" -b 4 -e 1M -f 64 -r -1 -n 2 -R $(($1 % 3)) --no-bound
    done
    for over in tcp mixed; do # faults are only made on links
        [ "$1" = 1 ] || noticed "$1" $over
    done
}

large() {
    patience=3600
    right ranks 2 shm "$perf" -b 4608M -e 4608M -d uint8 -n 1 -w 0 --no-bound
    right ranks 2 tcp "$perf" -b 4608M -e 4608M -d uint8 -n 1 -w 0 --no-bound
}

if [ $# != 0 ]; then
    for what; do
        if [ "$what" = large ]; then large; else everything "$what"; fi
    done
    [ "$failures" = 0 ]
    exit
fi

for n in 1 2 3 5; do
    right ranks $n shm "$perf" -b 4 -e 256K -f 256 -d all -o all -n 1 -w 0 -R $((n % 3))
    right ranks $n shm "$perf" -b 4 -e 1M -f 64 -r -1 -n 2 -R $((n % 3)) --no-bound
done
right ranks 3 tcp "$perf" -b 4 -e 1M -f 64 -d all -n 1 -w 0
right ranks 5 mixed "$perf" -b 4 -e 1M -f 64 -r -1 -n 1 -w 0 --no-bound
right ranks 5 blocks "$perf" -b 80 -e 80K -f 32 -d all -o all -n 1 -w 0 --no-bound
right ranks 5 blocks "$perf" -b 4 -e 256K -f 16 -r -1 -n 1 -w 0 --no-bound
right ranks 2 shm "$perf" -t 4 -b 1K -e 1M -f 32 -r -1 -n 2
right alone "$perf" -t 5 -b 4 -e 4M -f 32 -u 3 -R 2 -n 2 -r -1
right alone "$perf" -t 2 -g 2 -m 3 -b 1K -e 1M -f 32 -n 2
right ranks 3 shm "$perf" -b 16M -e 16M -R 2 -n 1 -w 0 -u 1
noticed 3 tcp

[ "$failures" = 0 ]
