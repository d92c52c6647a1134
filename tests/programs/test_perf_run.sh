#!/bin/sh
# Whole runs of all_reduce_perf with threads as ranks: the table's shape, the JSON file, the
# exit codes. Usage: test_perf_run.sh ALL_REDUCE_PERF
set -u

perf=${1:?usage: test_perf_run.sh ALL_REDUCE_PERF}
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

run 0 "$perf" -t 3 -b 4 -e 64K -f 16 -n 3
rows 4
says out '^# hoop version [0-9.]+ hoop-headers=[0-9]+ hoop-library=[0-9]+$'
says out '^# Collective test starting: all_reduce_perf$'
says out '^# nThread 3 nGpus 1 minBytes 4 maxBytes 65536 step: 16\(factor\) warmup iters: 1 iters: 3 agg iters: 1 validation: 1 graph: 0 unalign: 0$'
says out '^#  Rank  2 Group  0 Pid +[0-9]+ on +[^ ]+ device host '
says out '^       16384          4096     float     sum      -1 '
says out '^# Out of bounds values : 0 OK$'
says out '^# Avg bus bandwidth    : [0-9.e+-]+ $'
says out '^# Collective test concluded: all_reduce_perf$'

run 0 "$perf" -b 8 -e 1K -f 4
rows 4
run 0 "$perf" -t 2 -g 2 -m 3 -z 1 -u 1 -b 4 -e 4K -f 8 -n 3
rows 4
run 0 "$perf" -t 3 -p 1 -R 1 -a 3 -N 2 -b 0 -e 12 -i 4 -n 2
rows 8
run 0 "$perf" -t 5 -b 12 -e 12 -d all -o all -n 2 -R 2
awk '!/^#/ && ($9 != 0 || $13 != 0)' "$work/out" | grep -q . && fail "wrong elements"
[ "$(grep -cEv '^#' "$work/out")" -ge 60 ] || fail "12 types and 5 operations make 60 rows"
run 0 "$perf" -t 2 -b 8 -e 8 -c 0
says out 'N/A .*N/A$'
run 0 "$perf" -t 2 -b 8 -e 8 -I 1 -K 2 -S 1 -C 1 -M 1 -T 60
says out ' cputime +algbw +busbw +#wrong +i_min +i_max +i_p99 +i_cv% .* timestamp$'
says out '^# Memory usage'
run 0 "$perf" -t 2 -b 1M -e 1M -n 2
says out '^# bound      1048576     float     sum  out-of-place +[0-9.]+ %  in-place +[0-9.]+ %'
run 0 "$perf" -t 2 -b 1M -e 1M -n 2 --no-bound
grep -q '^# bound' "$work/out" && fail "--no-bound measured a bound"
run 0 "$perf" -t 2 -b 8 -e 8 -d fish
says out '^invalid type fish, defaulting to float \.\. $'

run 0 "$perf" -t 2 -b 8 -e 16 -f 2 -n 3 -I 1 -J "$work/o.json"
says out "^# Writing JSON output to $work/o.json\$"
for key in version start_time args env nccl_version config devices results out_of_place \
    in_place_per_iter times_us out_of_bounds average_bus_bandwidth errors end_time; do
    grep -q "\"$key\":" "$work/o.json" || fail "no $key in the JSON file"
done
run 0 "$perf" -t 2 -b 8 -e 8 -n 2 -J "$work/o.json"
[ -s "$work/o.json.1" ] || fail "no second JSON file"
if command -v python3 >/dev/null; then
    python3 -c "import json, sys; json.load(open(sys.argv[1]))" "$work/o.json" ||
        fail "the JSON file does not parse"
fi

run 0 "$perf" -h
run 0 "$perf" --unheard-of
run 255 "$perf" -b x
run 255 "$perf" -b 8 -e 4
run 255 "$perf" -b 8 M
says err "^unexpected argument 'M'"
run 3 env ASAN_OPTIONS="${ASAN_OPTIONS:-}:allocator_may_return_null=1" "$perf" -b 8 -e 8 -u 99999999999999999
says err 'out of memory / cannot allocate [0-9]+ bytes of plain memory'
run 5 "$perf" -G 1
run 5 "$perf" -D 1
NCCL_TESTS_SPLIT='MOD 2' run 5 "$perf" -b 8 -e 8
WORLD_SIZE=2 RANK=2 run 6 "$perf" -b 8 -e 8
run 6 "$perf" -t 2 -g 2049 -b 8 -e 8
says err '^1 processes, -t 2, -g 2049, -r 0: these are more ranks than the 4096 of a comm$'
run 0 env WORLD_SIZE= RANK= "$perf" -t 2 -b 8 -e 8 -n 2
NCCL_TESTS_MIN_BW=1000000 run 7 "$perf" -t 2 -b 8 -e 8 -n 2
says out '^# Avg bus bandwidth    : .* FAILED$'
NCCL_TESTS_MIN_BW=0 run 0 "$perf" -t 2 -b 8 -e 8 -n 2
says out '^# Avg bus bandwidth    : .* OK$'

# On a terminal it shows its progress; the table is the same.
if command -v script >/dev/null; then
    TERM=xterm script -qec "$perf -t 2 -b 8 -e 32 -f 2 -n 2" /dev/null >"$work/out" 2>"$work/err" </dev/null ||
        fail "a run on a terminal failed"
    says out 'row 2 of 3: timing'
    sed -E 's/\x1b(7|8|\[J)|  row [0-9]+ of [0-9]+: [a-z ]+//g; s/\r//g' "$work/out" >"$work/plain"
    mv "$work/plain" "$work/out"
    rows 3
fi

# A file that can't be written is noticed, even if it is only the JSON.
run 1 "$perf" -b 8 -e 8 -n 1 -J /nowhere/o.json
says out '^# skipping JSON output: /nowhere/o.json: No such file or directory$'
says err 'the output could not be written$'
# shellcheck disable=SC2016
run 1 sh -c 'exec "$0" -b 8 -e 8 -n 1 -J "$1" >&-' "$perf" "$work/closed.json"
says err 'the output could not be written$'
[ ! -e "$work/closed.json" ] || fail "a closed standard output was taken for the file of -J"
# shellcheck disable=SC2016
run 0 env HOOP_DEBUG=info sh -c 'exec "$0" -b 8 -e 8 -n 1 -J "$1" 2>&-' "$perf" "$work/closed.json"
python3 -m json.tool "$work/closed.json" >/dev/null || fail "the log is in the JSON file"
if [ -w /dev/full ]; then
    "$perf" -b 8 -e 8 -n 1 >/dev/full 2>"$work/err"
    got=$?
    [ "$got" = 1 ] || fail "a full disk returned $got, expected 1"
    grep -q 'could not be written' "$work/err" || fail "a full disk was not named"
    "$perf" --help >/dev/full 2>"$work/err" && fail "--help on a full disk succeeded"
    grep -q 'could not be written' "$work/err" || fail "a full disk was not named by --help"
fi

[ $failed = 0 ] || exit 1
echo "all runs were as expected"
