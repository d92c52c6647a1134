#!/bin/sh
# Whole runs of a collective's benchmark over processes and threads, shared memory, links and both: every
# #wrong is 0, and a flipped bit is noticed.
#     acceptance_collective.sh HOOPRUN PERF PERF_FAULTY
set -u

hooprun=$1 perf=$2 faulty=$3
failures=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK HOOP_ALGO HOOP_TRANSPORT HOOP_ORDER

"$perf" -b 8 -e 8 -n 1 --no-bound >/dev/null 2>&1
if [ $? = 5 ]; then
    echo "this version does not have the operation"
    exit 77
fi

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
    timeout 120 "$@" >"$out" 2>&1
    got=$?
    [ "$got" = "$want" ] || fail "returned $got, expected $want: $*"
}

# right COMMAND...: every row of the table is right, where there is such a half.
right() {
    run 0 "$@"
    awk '$1 ~ /^[0-9]+$/ { n++; if ($9 != "0" || ($13 != "0" && $13 != "N/A")) bad++ }
        END { exit n == 0 || bad > 0 }' "$out" || fail "wrong rows, or none: $*"
}

for n in 1 2 3 5; do
    right "$hooprun" -n $n "$perf" -b 4 -e 256K -f 256 -d all -o all -n 1 -w 0 -R $((n % 3))
    right "$hooprun" -n $n "$perf" -b 4 -e 1M -f 64 -r -1 -n 2 -R $((n % 3)) --no-bound
done
right env HOOP_TRANSPORT=tcp "$hooprun" -n 3 "$perf" -b 4 -e 1M -f 64 -d all -n 1 -w 0
right "$hooprun" -n 2 "$perf" -t 4 -b 1K -e 1M -f 32 -r -1 -n 2
right "$perf" -t 5 -b 4 -e 4M -f 32 -u 3 -R 2 -n 2 -r -1
right "$perf" -t 2 -g 2 -m 3 -b 1K -e 1M -f 32 -n 2
right "$hooprun" -n 3 "$perf" -b 16M -e 16M -R 2 -n 1 -w 0 -u 1

# A bit of one received chunk flips, in one of the operations that are checked.
run 7 env HOOP_TRANSPORT=tcp HOOP_TEST_FAULT=flip:40 "$hooprun" -n 3 "$faulty" \
    -b 1M -e 1M -n 1 -w 0 -c 20
awk '$1 ~ /^[0-9]+$/ && $9 + $13 > 0 { found = 1 } END { exit !found }' "$out" ||
    fail "no row counts wrong elements"

[ "$failures" = 0 ]
