#!/usr/bin/env bash
# What only a real GPU can show, in less than 8 minutes: builds with CUDA, checks results, and measures. The output
# of each step and a short table go to stdout; BUILD/suite.json has everything.
#
#     bench/gpu_suite.sh [BUILD [BYTES]]     BUILD: a folder (build-gpu); BYTES: of the largest all_reduce (1 GiB)
#     bench/gpu_suite.sh -b ARCH [BUILD]     only builds, for another machine's GPU (such as sm_90); copied there
#                                            with BUILD it is not built again
#
# 77: no GPU, or no nvcc for it; the line before says which. Steps that have not begun after 8 minutes have failed.
set -euo pipefail
# shellcheck source=bench/help.sh
. "$(dirname "$0")/help.sh"
cd "$(dirname "$(readlink -f "$0")")/.."
export LC_ALL=C.UTF-8 PATH=$PATH:/usr/local/cuda/bin
arch=
if [ "${1:-}" = -b ]; then
    arch=${2:?expected the kind of GPU behind -b, such as sm_90}
    shift 2
fi
build=${1:-build-gpu}
bytes=${2:-$((1 << 30))}
out=$build/suite
limit=480
unset "${!HOOP_@}" RANK WORLD_SIZE LOCAL_RANK

compile() {
    local name=$1 arch=$2
    shift 2
    nvcc -std=c++17 -O3 "-arch=$arch" -diag-suppress 177 -Iinclude -Ilib "bench/gpu/$name.cu" -o "$build/$name" "$@"
}
build_all() {
    [ -f "$build/build.ninja" ] ||
        meson setup "$build" --buildtype=release -Dcuda=enabled -Dnccl=enabled -Dtests=disabled
    ninja -C "$build"
    local stubs
    stubs=$(dirname "$(command -v nvcc)")/../lib64/stubs
    compile gpu_probe "$1" "-L$stubs" -lcuda
    compile gpu_facts "$1" "-L$stubs" -lcuda
    compile gpu_ipc "$1" "-L$stubs" -lcuda
    compile reduce_kernel_perf "$1" -Xlinker "$build/libhoop_core.a" -luv -lcrypto -ldl
}

skip() { printf 'skipped: %s\n' "$*"; exit 77; }
command -v nvcc >/dev/null || [ -e "$build/built_for" ] || skip "no nvcc"
if [ -n "$arch" ]; then
    build_all "$arch"
    echo "$arch" >"$build/built_for"
    exit
fi
device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || device=
[ -n "$device" ] || skip "no GPU: nvidia-smi finds none"

failed=0
rows=() table=()
# step NAME SECONDS COMMAND...: its output goes to $out/NAME; exit code 77: skipped.
step() {
    local name=$1 most=$2 start=$SECONDS code=0 became=right text
    shift 2
    most=$((most < limit - SECONDS ? most : limit - SECONDS))
    if [ $most -gt 0 ]; then
        timeout -k 5 $most "$@" >"$out/$name" 2>&1 </dev/null || code=$?
    else
        code=124
        echo "the suite has run for $limit s" >"$out/$name"
    fi
    case $code in 0) ;; 77) became=skipped ;; *) became="failed with $code"; failed=1 ;; esac
    printf '\n## %s: %s, %d s\n' "$name" "$became" $((SECONDS - start))
    tail -n 40 "$out/$name"
    text=$(sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' "$out/$name" | tr -d '\000-\011\013-\037' | sed 's/$/\\n/' | tr -d '\n')
    rows+=("{\"name\": \"$name\", \"code\": $code, \"seconds\": $((SECONDS - start)), \"figures\": [$(figures "$name")], \"output\": \"$text\"}")
    table+=("$(printf '%-20s %4d s  %s' "$name" $((SECONDS - start)) "$became")")
}

# figures NAME: the figures of the rows that kernels and device_cost print.
figures() {
    awk -v kernels="$([ "$1" = kernels ] && echo 1)" '
        kernels && NF == 6 && /^[a-z]/ {
            printf "%s{\"type\": \"%s\", \"sources\": %d, \"bytes\": %d, \"fold_gbps\": %s, \"copy_gbps\": %s, \"share\": %s}",
                (n++ ? ", " : ""), $1, $2, $3, $4, $5, $6
        }
        /^# *bytes +call us/ { costs = 1; next }
        costs && NF >= 4 && NF <= 5 && !/[^0-9. ]/ {
            printf "%s{\"bytes\": %d, \"call_us\": %s, \"us\": %s, \"gbps\": %s, \"of_bound\": %s}",
                (n++ ? ", " : ""), $1, $2, $3, $4, (NF > 4 ? $5 : "null")
        }' "$out/$1"
}

mkdir -p "$out"
if [ ! -e "$build/built_for" ]; then
    export -f build_all compile
    export build
    step build 240 bash -euc 'build_all native'
fi

step probe 130 "$build/gpu_probe"
step facts 60 "$build/gpu_facts"
step ipc 60 "$build/gpu_ipc"
step kernels 90 "$build/reduce_kernel_perf"
# The rate of a copy, which is in every row; other rates are compared with it.
copy=$(awk '$1 == "float" && $2 == 2 { print $5 }' "$out/kernels")
hooprun=$build/tools/hooprun
cost=("$build/bench/gpu/device_cost" -e "$bytes" ${copy:+-c "$copy"})
for ranks in 1 2 4 8; do
    step "processes_$ranks" 60 "$hooprun" -n $ranks --timeout 55 "${cost[@]}"
done
for ranks in 2 4 8; do
    step "threads_$ranks" 60 "${cost[@]}" -t $ranks
done
# One rank on each GPU, if there are several.
gpus=$(nvidia-smi --list-gpus | wc -l)
each=$((gpus > 8 ? 8 : gpus > 1 ? gpus : 2))
step "gpus_processes_$each" 60 "$hooprun" -n $each --timeout 55 "${cost[@]}" -g $each
step "gpus_threads_$each" 60 "${cost[@]}" -t $each -g $each
step "gpus_launched_$each" 60 "$hooprun" -n $each --timeout 55 "${cost[@]}" -g $each -S
perf=("$build/bench/all_reduce_perf" -b 8 -e $((bytes / 8)) -f 16 --memory device)
step all_reduce_perf 40 "$hooprun" -n 2 --timeout 35 "${perf[@]}" -R 2
step checked_there 5 grep -x '# Results are compared on the device' "$out/all_reduce_perf"
step every_type 60 "$build/bench/all_reduce_perf" -t 2 -b $((bytes / 64)) -e $((bytes / 64)) -d all -o all -n 2 --memory device
step many_elements 60 "$build/bench/all_reduce_perf" -t 2 -b $((bytes * 5)) -e $((bytes * 5)) -d int8 -n 2 --memory device
step graphs 40 "$hooprun" -n 2 --timeout 35 "${perf[@]}" -G 5
for name in all_gather reduce_scatter broadcast gather alltoall sendrecv; do
    step "graph_$name" 20 "$hooprun" -n 3 --timeout 15 "$build/bench/${name}_perf" -b $((bytes / 16384)) -e $((bytes / 128)) -f 8 -d all -n 2 --memory device -G 3
done
step alltoall_perf 40 "$build/bench/alltoall_perf" -t 2 -b 8 -e $((bytes / 32)) -f 16 --memory device
step ahead 60 env HOOP_CUDA_AHEAD=1 "$hooprun" -n 2 --timeout 55 "${cost[@]}"
# On the device, where processes_2 waits for the same; every type; and through the host.
step launched_there 60 "$hooprun" -n 2 --timeout 55 "${cost[@]}" -S
step launched_types 60 "$hooprun" -n 2 --timeout 55 "$build/bench/all_reduce_perf" -b $((bytes / 64)) -e $((bytes / 64)) -d all -o all -n 2 --memory device
for name in all_gather reduce_scatter broadcast gather scatter; do
    step "launched_$name" 20 "$hooprun" -n 3 --timeout 15 "$build/bench/${name}_perf" -b $((bytes / 16384)) -e $((bytes / 128)) -f 8 -d all -n 2 --memory device
done
step launched_alltoall 20 "$hooprun" -n 2 --timeout 15 "$build/bench/alltoall_perf" -b $((bytes / 16384)) -e $((bytes / 128)) -f 8 -d all -n 2 --memory device
# One thread calls for several ranks in a group; also of two processes.
for ranks in 2 4 8; do
    step "launched_group_$ranks" 60 "${cost[@]}" -t $ranks -S
done
step group_types 60 "$build/bench/all_reduce_perf" -g 3 -b 8 -e $((bytes / 64)) -f 64 -d all -o all -n 2 -w 1 --memory device
for name in all_gather reduce_scatter broadcast reduce gather scatter alltoall sendrecv; do
    step "group_$name" 20 "$build/bench/${name}_perf" -g 3 -b 8 -e $((bytes / 128)) -f 64 -d all -n 2 -w 1 --memory device
done
step group_processes 20 "$hooprun" -n 2 --timeout 15 "$build/bench/all_reduce_perf" -g 2 -b 8 -e $((bytes / 16)) -f 64 --memory device
step launched 60 env HOOP_ALGO=slab "$hooprun" -n 2 --timeout 55 "${cost[@]}" -S
step one_queue 60 env CUDA_DEVICE_MAX_CONNECTIONS=1 "$hooprun" -n 2 --timeout 55 "${cost[@]}"
step faults 160 bench/gpu/faults.sh "$hooprun" "$build/bench/gpu/device_faults" $((bytes / 16))
# PyTorch, if there is one for CUDA: over hoop's libnccl.so.2; with a GPU for each rank over NCCL itself, too.
torch=(--timeout 115 python3 bench/gpu/torch_nccl.py)
step torch_2 120 "$hooprun" --nccl -n 2 "${torch[@]}"
step torch_4 120 "$hooprun" --nccl -n 4 "${torch[@]}"
[ "$gpus" -lt 2 ] || step "torch_nccl_$each" 120 "$hooprun" -n $each "${torch[@]}"
# The trainer, if oneDNN, cuDNN and cuBLAS are installed.
trainer=$build/examples/trainer
if [ -e "$trainer/train_cuda.so" ]; then
    step trainer_parts 120 "$trainer/compare_gpu"
    step trainer_ranks 240 bench/gpu/trainer_ranks.sh "$hooprun" "$trainer/train"
fi
if command -v compute-sanitizer >/dev/null; then
    step memcheck 90 compute-sanitizer --error-exitcode 9 "$build/bench/gpu/device_cost" -t 2 -e 4096
    step memcheck_launched 90 "$hooprun" -n 2 --timeout 85 compute-sanitizer --error-exitcode 9 "$build/bench/all_reduce_perf" -b 256K -e 1M -f 2 -n 2 --memory device
    step memcheck_graph 90 "$hooprun" -n 2 --timeout 85 compute-sanitizer --error-exitcode 9 "$build/bench/all_reduce_perf" -b 256K -e 1M -f 2 -n 2 --memory device -G 2
    [ ! -e "$trainer/train_cuda.so" ] ||
        step trainer_memcheck 120 compute-sanitizer --error-exitcode 9 "$trainer/compare_gpu"
fi

{
    printf '{"device": "%s", "gpus": %d, "commit": "%s", "seconds": %d, "steps": [\n' "$device" "$gpus" \
        "$(git rev-parse --short HEAD 2>/dev/null)" $SECONDS
    (IFS=$'\n'; printf '%s\n' "${rows[*]}") | sed '$!s/$/,/'
    printf ']}\n'
} >"$build/suite.json"
printf '\n'
printf '%s\n' "${table[@]}"
printf '\n%s, %d s: %s\n' "$device" $SECONDS "$([ $failed = 0 ] && echo "all right" || echo "something failed")"
exit $failed
