#!/bin/sh
# The benchmarks with buffers on devices, over the fake driver: right results, the devices in the list,
# and what is said where there is none.
#     test_perf_device.sh HOOPRUN FAKE_CUDA PERF...
set -u

hooprun=${1:?usage: test_perf_device.sh HOOPRUN FAKE_CUDA PERF...}
export HOOP_CUDA="${2:?usage: test_perf_device.sh HOOPRUN FAKE_CUDA PERF...}"
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK NCCL_TESTS_MIN_BW NCCL_TESTS_SPLIT NCCL_TESTS_SPLIT_MASK
failures=0

fail() {
    echo "FAILED: $*"
    cat "$work/out" "$work/err"
    failures=$((failures + 1))
}

# run CODE COMMAND...: it must return CODE.
run() {
    want=$1
    shift
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" = "$want" ] || fail "$* returned $got, expected $want"
}

# rows COUNT: so many rows, without wrong elements in either half.
rows() {
    awk -v want="$1" '!/^#/ {n++; if (NF != 13 || $9 != "0" || ($13 != "0" && $13 != "N/A")) bad++}
        END {exit !(n == want && bad == 0)}' "$work/out" || fail "expected $1 good rows"
}

# has PATTERN [FILE]: a line matches.
has() {
    grep -Eq -- "$1" "$work/${2:-out}" || fail "no line matches: $1"
}

sizes="-b 4 -e 256K -f 16 -n 2 --memory device"
for perf; do
    run 0 "$perf" -t 3 $sizes
    rows 5
    has '^#  Rank  2 Group  0 Pid +[0-9]+ on +[^ ]+ device  0 \[0000:00:00\.0\] Fake 0$'
    run 0 "$perf" -g 2 $sizes -R 2 -u 1 -c 2
    rows 5
done
perf=$1
run 0 env FAKE_CUDA_DEVICES=2 "$perf" -t 3 $sizes -R 1 -J "$work/json"
rows 5
has '^#  Rank  1 .* device  1 \[0000:01:00\.0\] Fake 1$'
has '^#  Rank  2 .* device  0 \[0000:00:00\.0\] Fake 0$'
has '"device": *1' json
has '"device_info": *"Fake 1"' json
run 0 env FAKE_CUDA_DEVICES=2 "$hooprun" -n 2 "$perf" $sizes -R 2 -m 2
rows 5
has '^#  Rank  1 .* device  1 '
for perf; do
    run 0 "$hooprun" -n 2 "$perf" $sizes -G 3 -m 2
    rows 5
    has ' graph: 3 '
done
perf=$1
run 0 "$perf" $sizes -G 1 -z 1 -c 2
rows 5
run 5 "$perf" -t 2 $sizes -G 1
has '^-G 1: expected one rank in a process' err
run 0 env HOOP_CUDA_AHEAD=1 "$perf" -g 2 $sizes -I 1 -c 2
run 0 env FAKE_CUDA_NO_KERNELS=1 "$perf" -t 2 $sizes
rows 5
run 0 "$perf" -t 2 -b 8 -e 8 --memory auto
has '^#  Rank  1 .* device  0 '
run 0 env HOOP_CUDA=off "$perf" -t 2 -b 8 -e 8 --memory auto -M 1
has '^#  Rank  1 .* device host '
has '^# Memory usage '
run 5 env HOOP_CUDA=off "$perf" -t 2 -b 8 -e 8 --memory device
has '^--memory device: there is no device: HOOP_CUDA is off$' err
run 5 env HOOP_CUDA=/nowhere "$perf" -b 8 -e 8 --memory device
has '^--memory device: there is no device: /nowhere: ' err
run 255 "$perf" --memory elsewhere
has "^invalid value 'elsewhere' for --memory: 0, 1, host, device or auto is expected$" err

[ $failures = 0 ]
