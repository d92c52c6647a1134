#!/usr/bin/env bash
# hoop's figures over Soft-RoCE beside those of perftest, in turn, in one virtual machine (where all is
# slow, so that only ratios count), and what messages alone would take. Needs the packages perftest and
# ibverbs-utils; a round takes half a minute.
#     tests/vm/run --devs 4 --timeout 600 tests/vm/figures.sh BUILD [ROUNDS]
set -u
build=$(readlink -f "${1:?usage: figures.sh BUILD [ROUNDS]}")
rounds=${2:-3}
[ -x "$build/tools/hooprun" ] || {
    echo "figures.sh: there is no $build/tools/hooprun in here; a build below /tmp or /var/tmp is shared by run --rw $build" >&2
    exit 2
}
export HOOP_TRANSPORT=rdma

# served PORT PROGRAM OPTIONS...: perftest's line of figures.
served() {
    local port=$1 program=$2
    shift 2
    "$program" -p "$port" -d rxe0 -x 1 "$@" >/dev/null 2>&1 &
    until ss -ltn | grep -q ":$port "; do sleep 0.1; done
    timeout 60 "$program" -p "$port" -d rxe1 -x 1 "$@" 10.77.0.1 2>/dev/null | awk '/^ *[0-9]+ +[0-9]+ /'
    wait
}
peer() { served 18515 "$@"; }

# exchange BYTES PAIRS: us that a rank needs for a message each way, acknowledged, if so many pairs of
# ranks do nothing else at the same time.
exchange() {
    local pair
    for ((pair = 0; pair < $2; pair++)); do
        served $((18515 + pair)) ib_write_bw -b -s "$1" -t 1 -n 1000 >"$work/$pair" &
    done
    wait
    for ((pair = 0; pair < $2; pair++)); do cat "$work/$pair"; done |
        awk -v pairs="$2" '{ rate += $5 } END { printf "%.1f\n", (rate > 0 ? 2 * pairs / rate : 0) }'
}

# ours RANKS BYTES ITERATIONS: us, the mean and the median, out of place.
ours() {
    rm -f "$work/json"
    timeout 100 "$build/tools/hooprun" -n "$1" "$build/bench/all_reduce_perf" -b "$2" -e "$2" -n "$3" -w 20 -c 0 \
        -R 2 -I 1 -J "$work/json" --no-bound >/dev/null 2>&1
    awk -F'[:,]' '/"time"/ && !mean { mean = $2 } /"p50_us"/ && !median { median = $2 }
        END { print mean + 0, median + 0 }' "$work/json"
}

over() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

# small RANKS BYTES ITERATIONS: beside what ib_write_lat prints, typical and mean.
small() {
    local typical mean our_mean our_median
    read -r typical mean < <(peer ib_write_lat -s "$2" -n "$3" | awk '{ print $5, $6 }')
    read -r our_mean our_median < <(ours "$1" "$2" "$3")
    echo "$2 B, $1 ranks: median $our_median us, ib_write_lat $typical: $(over "$our_median" "$typical");" \
        "mean $our_mean, $mean: $(over "$our_mean" "$mean")"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ((round = 0; round < rounds; round++)); do
    small 2 8 2000
    echo "8 B: no less than $(exchange 8 1) us, one message each way"
    small 2 49152 200
    small 4 49152 100
    # pairwise: each rank sends six parts, and no algorithm sends less
    least=$(exchange 12288 2)
    echo "49152 B, 4 ranks: no less than $(awk -v us="$least" 'BEGIN { print 6 * us }') us, six parts of each rank"
    both=$(peer ib_write_bw -b -s 65536 -n 200 | awk '{ print $4 }')
    read -r time _ < <(ours 2 2097152 10)
    read -r whole _ < <(HOOP_TEST_WHOLE_WRITES=1 ours 2 2097152 10)
    echo "2 MiB, 2 ranks: $time us, algbw over half of ib_write_bw -b ($both MB/s): $(over $((4 * 1000000)) "$(
        awk -v t="$time" -v b="$both" 'BEGIN { print t * b }')");" \
        "with writes of many packets, as on an adapter, $whole us"
done
