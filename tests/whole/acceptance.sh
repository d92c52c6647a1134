#!/bin/sh
# Whole runs with processes and threads: every #wrong is 0, and a flipped bit is noticed.
# HOOP_TEST_SAMPLE=k in the environment: with fewer numbers of ranks.
#     acceptance.sh HOOPRUN ALL_REDUCE_PERF ALL_REDUCE_PERF_FAULTY
set -u

hooprun=$1 perf=$2 faulty=$3
failures=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK HOOP_ALGO

# run CODE COMMAND...
run() {
    want=$1
    shift
    timeout 120 "$@" >"$out" 2>&1
    got=$?
    if [ "$got" != "$want" ]; then
        cat "$out"
        echo "FAILED: returned $got, expected $want: $*"
        failures=$((failures + 1))
    fi
}

# Every row of the table is right.
right() {
    rows=$(awk '$1 ~ /^[0-9]+$/ { n++; if ($9 != "0" || $13 != "0") bad++ } END { print n + 0, bad + 0 }' "$out")
    case $rows in
    "$1 0") ;;
    *)
        cat "$out"
        echo "FAILED: rows and wrong rows are $rows, expected $1 0"
        failures=$((failures + 1))
        ;;
    esac
}

[ -n "${HOOP_TEST_SAMPLE:-}" ] && sizes=3 || sizes='4 3 7'
for n in $sizes; do
    run 0 "$hooprun" -n "$n" "$perf" -b 4 -e 1M -f 16 -d all -o all -n 1 -w 0 --no-bound
    right 360
done
run 0 "$perf" -t 5 -b 4 -e 4M -f 32 -n 2
right 5
run 0 "$perf" -t 2 -g 2 -b 1K -e 1M -f 32 -n 2
right 3
run 0 "$hooprun" -n 3 "$perf" -b 4 -e 4M -f 32 -u 1 -R 2 -n 2
right 5
for algo in ring slab direct; do
    run 0 env HOOP_ALGO=$algo "$hooprun" -n 3 "$perf" -b 4 -e 4M -f 32 -R 2 -n 2
    right 5
done
run 0 "$hooprun" -n 2 "$perf" -b 64M -e 64M -R 2 -n 1 -w 0
right 1

# A bit of one received chunk flips, in an operation that is checked.
run 7 env HOOP_ALGO=ring HOOP_TEST_FAULT=flip:15 "$hooprun" -n 2 "$faulty" \
    -b 1M -e 1M -n 1 -w 0 -c 3
if ! awk '$1 ~ /^[0-9]+$/ && $9 + $13 > 0 { found = 1 } END { exit !found }' "$out"; then
    cat "$out"
    echo "FAILED: no row counts wrong elements"
    failures=$((failures + 1))
fi

if ls /dev/shm/*hoop* >/dev/null 2>&1; then
    echo "FAILED: something was left in /dev/shm"
    failures=$((failures + 1))
fi
[ "$failures" = 0 ]
