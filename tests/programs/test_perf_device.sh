#!/bin/sh
# The benchmarks with buffers on devices, over the fake driver: right results, the list of devices,
# and what is printed without a device.
#     test_perf_device.sh HOOPRUN FAKE_CUDA ALL_REDUCE_PERF_FAULTY PERF...
set -u

usage="usage: test_perf_device.sh HOOPRUN FAKE_CUDA ALL_REDUCE_PERF_FAULTY PERF..."
hooprun=${1:?$usage}
export HOOP_CUDA="${2:?$usage}"
faulty=${3:?$usage}
shift 3
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

sizes="-b 4 -e 256K -f 16 -n 2 --memory device"
for perf; do
    run 0 "$perf" -t 3 $sizes
    rows 5 '0|N/A'
    says out '^#  Rank  2 Group  0 Pid +[0-9]+ on +[^ ]+ device  0 \[0000:00:00\.0\] Fake 0$'
    says out '^# Results are compared on the device$'
    run 0 "$perf" -g 2 $sizes -R 2 -u 1 -c 2
    rows 5 '0|N/A'
done
perf=$1
run 0 env FAKE_CUDA_DEVICES=2 "$perf" -t 3 $sizes -R 1 -J "$work/json"
rows 5 '0|N/A'
says out '^#  Rank  1 .* device  1 \[0000:01:00\.0\] Fake 1$'
says out '^#  Rank  2 .* device  0 \[0000:00:00\.0\] Fake 0$'
says json '"device": *1'
says json '"device_info": *"Fake 1"'
run 0 env FAKE_CUDA_DEVICES=2 "$hooprun" -n 2 "$perf" $sizes -R 2 -m 2
rows 5 '0|N/A'
says out '^#  Rank  1 .* device  1 '
run 0 env FAKE_CUDA_DEVICES=3 NCCL_TESTS_DEVICE=1 "$hooprun" -n 2 "$perf" -t 2 $sizes
for rank in 0 1 2 3; do
    says out "^#  Rank  $rank .* device  $((1 + rank % 2)) "
done
run 6 env NCCL_TESTS_DEVICE=one "$perf" $sizes
says err "^NCCL_TESTS_DEVICE is 'one': the number of a device is expected$"
for perf; do
    run 0 "$hooprun" -n 2 "$perf" $sizes -G 3 -m 2
    rows 5 '0|N/A'
    says out ' graph: 3 '
done
perf=$1
run 0 "$perf" $sizes -G 1 -z 1 -c 2
rows 5 '0|N/A'
run 5 "$perf" -t 2 $sizes -G 1
says err '^-G 1: expected one rank in a process'
run 0 env HOOP_CUDA_AHEAD=1 "$perf" -g 2 $sizes -I 1 -c 2
# Every type and operation; and errors are found, by kernels or, if there are none, by the host.
run 0 env FAKE_CUDA_DEVICES=2 "$perf" -t 3 -b 4 -e 8K -f 45 -n 1 -d all -o all --memory device -u 3
rows 216 0
run 0 env FAKE_CUDA_NO_KERNELS=1 "$perf" -t 2 $sizes -J "$work/json2"
rows 5 '0|N/A'
says out '^# Results are compared on the host$'
says json2 '"validation_by": *"host"'
for kernels in '' FAKE_CUDA_NO_KERNELS=1; do
    run 7 env $kernels HOOP_ALGO=ring HOOP_TEST_FAULT=flip:15 "$hooprun" -n 2 "$faulty" -b 1M -e 1M -n 1 -w 0 -c 3 \
        --memory device
    says out "^# Results are compared on the $([ "$kernels" ] && echo host || echo device)\$"
    awk '$1 ~ /^[0-9]+$/ && $9 + $13 > 0 { found = 1 } END { exit !found }' "$work/out" ||
        fail "no row counts wrong elements"
done
run 0 "$perf" -t 2 -b 8 -e 8 --memory auto
says out '^#  Rank  1 .* device  0 '
run 0 env HOOP_CUDA=off "$perf" -t 2 -b 8 -e 8 --memory auto -M 1
says out '^#  Rank  1 .* device host '
says out '^# Memory usage '
run 5 env HOOP_CUDA=off "$perf" -t 2 -b 8 -e 8 --memory device
says err '^--memory device: there is no device: HOOP_CUDA is off$'
run 5 env HOOP_CUDA=/nowhere "$perf" -b 8 -e 8 --memory device
says err '^--memory device: there is no device: /nowhere: '
run 255 "$perf" --memory elsewhere
says err "^invalid value 'elsewhere' for --memory: 0, 1, host, device or auto is expected$"

[ $failed = 0 ]
