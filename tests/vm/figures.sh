#!/usr/bin/env bash
# hoop's figures over Soft-RoCE beside those of perftest, in turn, in one virtual machine (where all is
# slow, so that only ratios count). Needs the packages perftest and ibverbs-utils.
#     tests/vm/run --devs 4 --timeout 600 tests/vm/figures.sh BUILD [ROUNDS]
set -u
build=$(readlink -f "${1:?usage: figures.sh BUILD [ROUNDS]}")
rounds=${2:-3}
[ -x "$build/tools/hooprun" ] || {
    echo "figures.sh: there is no $build/tools/hooprun in here; a build below /tmp or /var/tmp is shared by run --rw $build" >&2
    exit 2
}
export HOOP_TRANSPORT=rdma

# peer PROGRAM OPTIONS...: its line of figures.
peer() {
    local program=$1
    shift
    "$program" -d rxe0 -x 1 "$@" >/dev/null 2>&1 &
    until ss -ltn | grep -q ':18515 '; do sleep 0.1; done
    timeout 60 "$program" -d rxe1 -x 1 "$@" 10.77.0.1 2>/dev/null | awk '/^ *[0-9]+ +[0-9]+ /'
    wait
}

# ours RANKS BYTES ITERATIONS: time in us and algbw in GB/s, out of place.
ours() {
    timeout 100 "$build/tools/hooprun" -n "$1" "$build/bench/all_reduce_perf" -b "$2" -e "$2" -n "$3" -w 2 -c 0 -R 2 \
        --no-bound 2>/dev/null | awk '$1 ~ /^[0-9]+$/ { print $6, $7 }'
}

for ((round = 0; round < rounds; round++)); do
    for bytes in 8 49152; do
        half=$(peer ib_write_lat -s $bytes -n 200 | awk '{ print $5 }')
        read -r two _ < <(ours 2 $bytes 100)
        echo "$bytes B: ib_write_lat $half us, all_reduce of 2 ranks $two us"
        [ $bytes = 8 ] || { read -r four _ < <(ours 4 $bytes 50); echo "$bytes B: 4 ranks $four us"; }
    done
    both=$(peer ib_write_bw -b -s 65536 -n 200 | awk '{ print $4 }')
    read -r time _ < <(ours 2 2097152 4)
    read -r whole _ < <(HOOP_TEST_WHOLE_WRITES=1 ours 2 2097152 4)
    echo "2 MiB: ib_write_bw -b $both MB/s both ways, all_reduce of 2 ranks $time us;" \
        "with writes of many packets, as on an adapter, $whole us"
done
