#!/bin/sh
# Whole runs of all_reduce_perf with threads as ranks: the table's shape, the JSON file, the
# exit codes. Usage: test_perf_run.sh ALL_REDUCE_PERF
set -u

perf=${1:?usage: test_perf_run.sh ALL_REDUCE_PERF}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK NCCL_TESTS_MIN_BW NCCL_TESTS_SPLIT NCCL_TESTS_SPLIT_MASK
failures=0

fail() {
    echo "FAILED: $*"
    cat "$work/out" "$work/err"
    failures=$((failures + 1))
}

# run CODE OPTIONS...: the program must return CODE.
run() {
    want=$1
    shift
    "$perf" "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] || fail "$* returned $got, expected $want"
}

# has PATTERN: a line of the output matches.
has() {
    grep -Eq -- "$1" "$work/out" || fail "no line matches: $1"
}

# rows COUNT: so many rows, all with 13 columns and without wrong elements.
rows() {
    awk -v want="$1" '!/^#/ {n++; if (NF != 13 || $9 != 0 || $13 != 0) bad++}
        END {exit !(n == want && bad == 0)}' "$work/out" || fail "expected $1 good rows"
}

run 0 -t 3 -b 4 -e 64K -f 16 -n 3
rows 4
has '^# hoop version [0-9.]+ hoop-headers=[0-9]+ hoop-library=[0-9]+$'
has '^# Collective test starting: all_reduce_perf$'
has '^# nThread 3 nGpus 1 minBytes 4 maxBytes 65536 step: 16\(factor\) warmup iters: 1 iters: 3 agg iters: 1 validation: 1 graph: 0 unalign: 0$'
has '^#  Rank  2 Group  0 Pid +[0-9]+ on +[^ ]+ device host '
has '^       16384          4096     float     sum      -1 '
has '^# Out of bounds values : 0 OK$'
has '^# Avg bus bandwidth    : [0-9.e+-]+ $'
has '^# Collective test concluded: all_reduce_perf$'

run 0 -b 8 -e 1K -f 4
rows 4
run 0 -t 2 -g 2 -m 3 -z 1 -u 1 -b 4 -e 4K -f 8 -n 3
rows 4
run 0 -t 3 -p 1 -R 1 -a 3 -N 2 -b 0 -e 12 -i 4 -n 2
rows 8
run 0 -t 5 -b 12 -e 12 -d all -o all -n 2 -R 2
awk '!/^#/ && ($9 != 0 || $13 != 0)' "$work/out" | grep -q . && fail "wrong elements"
[ "$(grep -cEv '^#' "$work/out")" -ge 60 ] || fail "12 types and 5 operations make 60 rows"
run 0 -t 2 -b 8 -e 8 -c 0
has 'N/A .*N/A$'
run 0 -t 2 -b 8 -e 8 -I 1 -K 2 -S 1 -C 1 -M 1 -T 60
has ' cputime +algbw +busbw +#wrong +i_min +i_max +i_p99 +i_cv% .* timestamp$'
has '^# Memory usage'
run 0 -t 2 -b 1M -e 1M -n 2
has '^# bound      1048576     float     sum  out-of-place +[0-9.]+ %  in-place +[0-9.]+ %'
run 0 -t 2 -b 1M -e 1M -n 2 --no-bound
grep -q '^# bound' "$work/out" && fail "--no-bound measured a bound"
run 0 -t 2 -b 8 -e 8 -d fish
has '^invalid type fish, defaulting to float \.\. $'

run 0 -t 2 -b 8 -e 16 -f 2 -n 3 -I 1 -J "$work/o.json"
has "^# Writing JSON output to $work/o.json\$"
for key in version start_time args env nccl_version config devices results out_of_place \
    in_place_per_iter times_us out_of_bounds average_bus_bandwidth errors end_time; do
    grep -q "\"$key\":" "$work/o.json" || fail "no $key in the JSON file"
done
run 0 -t 2 -b 8 -e 8 -n 2 -J "$work/o.json"
[ -s "$work/o.json.1" ] || fail "no second JSON file"
if command -v python3 >/dev/null; then
    python3 -c "import json, sys; json.load(open(sys.argv[1]))" "$work/o.json" ||
        fail "the JSON file does not parse"
fi

run 0 -h
run 0 --unheard-of
run 255 -b x
run 255 -b 8 -e 4
run 5 -G 1
run 5 -D 1
NCCL_TESTS_SPLIT='MOD 2' run 5 -b 8 -e 8
WORLD_SIZE=2 RANK=2 run 6 -b 8 -e 8
NCCL_TESTS_MIN_BW=1000000 run 7 -t 2 -b 8 -e 8 -n 2
has '^# Avg bus bandwidth    : .* FAILED$'
NCCL_TESTS_MIN_BW=0 run 0 -t 2 -b 8 -e 8 -n 2
has '^# Avg bus bandwidth    : .* OK$'

# On a terminal it says where it is; the table is the same.
if command -v script >/dev/null; then
    TERM=xterm script -qec "$perf -t 2 -b 8 -e 32 -f 2 -n 2" /dev/null >"$work/out" 2>"$work/err" </dev/null ||
        fail "a run on a terminal failed"
    has 'row 2 of 3: timing'
    sed -E 's/\x1b(7|8|\[J)|  row [0-9]+ of [0-9]+: [a-z ]+//g; s/\r//g' "$work/out" >"$work/plain"
    mv "$work/plain" "$work/out"
    rows 3
fi

# A disk that is full is noticed.
if [ -w /dev/full ]; then
    "$perf" -b 8 -e 8 -n 1 >/dev/full 2>"$work/err"
    got=$?
    [ "$got" = 1 ] || fail "a full disk returned $got, expected 1"
    grep -q 'could not be written' "$work/err" || fail "a full disk was not named"
fi

[ "$failures" = 0 ] || exit 1
echo "all runs were as expected"
