#!/usr/bin/env bash
# Measures hoop over Soft-RoCE, in turn with perftest and with bare verbs (least.c), which show the
# least time that an all_reduce can take. All is in one virtual machine, where everything is slow,
# so only ratios count.
# Needs the packages perftest and ibverbs-utils; a round takes half a minute.
#     tests/vm/run --devs 4 --timeout 600 tests/vm/figures.sh BUILD [ROUNDS [BYTES:RANKS...]]
set -u
build=$(readlink -f "${1:?usage: figures.sh BUILD [ROUNDS [BYTES:RANKS...]]}")
rounds=${2:-3}
shift $(($# < 2 ? $# : 2))
cases=("$@") large=0
[ $# -gt 0 ] || cases=(8:2 49152:2 49152:4) large=1
[ -x "$build/tools/hooprun" ] || {
    echo "figures.sh: there is no $build/tools/hooprun in here; a build below /tmp or /var/tmp is shared by run --rw $build" >&2
    exit 2
}
[ -x "$build/tests/least" ] || {
    echo "figures.sh: there is no $build/tests/least, which needs libibverbs-dev to build" >&2
    exit 2
}
for program in ib_write_lat ib_write_bw ss; do
    command -v "$program" >/dev/null || {
        echo "figures.sh: there is no $program (packages perftest, iproute2)" >&2
        exit 2
    }
done
export HOOP_TRANSPORT=rdma

# peer PROGRAM OPTIONS...: prints perftest's line of figures.
peer() {
    local program=$1
    shift
    "$program" -d rxe0 -x 1 "$@" >/dev/null 2>&1 &
    until ss -ltn | grep -q ':18515 ' || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
    timeout 60 "$program" -d rxe1 -x 1 "$@" 10.77.0.1 2>/dev/null | awk '/^ *[0-9]+ +[0-9]+ /'
    wait
}

# ours RANKS BYTES ITERATIONS: the mean and the median in us, out of place.
ours() {
    rm -f "$work/json"
    timeout 100 "$build/tools/hooprun" -n "$1" "$build/bench/all_reduce_perf" -b "$2" -e "$2" -n "$3" -w 20 -c 0 \
        -R 2 -I 1 -J "$work/json" --no-bound >/dev/null 2>&1
    awk -F'[:,]' '/"time"/ && !mean { mean = $2 } /"p50_us"/ && !median { median = $2 }
        END { print mean + 0, median + 0 }' "$work/json"
}

# least RANKS BYTES ITERATIONS: medians in us, of half a round trip and of the fastest all_reduce.
least() {
    timeout 100 "$build/tests/least" "$@" |
        awk '{ best = $4; if (NF > 4 && $6 < best) best = $6; print $2 + 0, best + 0 }'
}

over() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", (b > 0 ? a / b : 0) }'; }

# small RANKS BYTES ITERATIONS: medians next to what ib_write_lat prints.
small() {
    local typical median half bare
    read -r typical < <(peer ib_write_lat -s "$2" -n "$3" | awk '{ print $5 }')
    read -r _ median < <(ours "$@")
    read -r half bare < <(least "$@")
    echo "$2 B, $1 ranks: $median us, ib_write_lat $typical: $(over "$median" "$typical"); bare verbs" \
        "$bare, half of a round trip $half: $(over "$bare" "$half")"
    echo "$2 $1 $median $typical $bare $half" >>"$work/all"
}

# For each case the median ratio, and the ratio of the fastest on either side.
summary() {
    local bytes ranks
    for case in "${cases[@]}"; do
        bytes=${case%:*} ranks=${case#*:}
        grep "^$bytes $ranks " "$work/all" | awk -v what="$bytes B, $ranks ranks" '
            function middle(of, n,   i, j, t) {
                for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
                    if (of[j] < of[i]) { t = of[i]; of[i] = of[j]; of[j] = t }
                return of[int((n + 1) / 2)]
            }
            { n++; for (i = 3; i <= 6; i++) if (n == 1 || $i < least[i]) least[i] = $i
              a[n] = $3 / $4; b[n] = $5 / $6; c[n] = $3 / $5 }
            END { printf "%s, middle of %d: over ib_write_lat %.2f, bare verbs %.2f, hoop over these %.2f; ", what, n,
                         middle(a, n), middle(b, n), middle(c, n)
                  printf "quickest of each: %.2f, %.2f, %.2f\n",
                         least[3] / least[4], least[5] / least[6], least[3] / least[5] }'
    done
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for ((round = 0; round < rounds; round++)); do
    for case in "${cases[@]}"; do
        bytes=${case%:*} ranks=${case#*:}
        small "$ranks" "$bytes" $((bytes < 4096 ? 2000 : 400 / ranks))
    done
    [ $large = 1 ] || continue
    both=$(peer ib_write_bw -b -s 65536 -n 200 | awk '{ print $4 }')
    read -r time _ < <(ours 2 2097152 10)
    echo "2 MiB, 2 ranks: $time us, algbw over half of ib_write_bw -b ($both MB/s): $(over $((4 * 1000000)) "$(
        awk -v t="$time" -v b="$both" 'BEGIN { print t * b }')")"
done
summary
