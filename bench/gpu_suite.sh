#!/usr/bin/env bash
# What only a real GPU can show, in some 10 minutes: builds with CUDA in build-gpu/, looks whether results
# are right, measures. A short table to stdout; build-gpu/suite.json has it too, with all output.
#
#     bench/gpu_suite.sh        77: no GPU, or no nvcc for it; the line before says which
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
export LC_ALL=C.UTF-8 PATH=$PATH:/usr/local/cuda/bin
build=build-gpu
out=$build/suite
unset "${!HOOP_@}" RANK WORLD_SIZE LOCAL_RANK

skip() { printf 'skipped: %s\n' "$*"; exit 77; }
device=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1) || device=
[ -n "$device" ] || skip "no GPU: nvidia-smi finds none"
command -v nvcc >/dev/null || skip "no nvcc"

failed=0
rows=()
# step NAME SECONDS COMMAND...: what it says goes to $out/NAME; 77 is a skip.
step() {
    local name=$1 most=$2 start=$SECONDS code=0 became=right text
    shift 2
    timeout "$most" "$@" >"$out/$name" 2>&1 </dev/null || code=$?
    case $code in 0) ;; 77) became=skipped ;; *) became="failed with $code"; failed=1 ;; esac
    printf '\n## %s: %s, %d s\n' "$name" "$became" $((SECONDS - start))
    tail -n 40 "$out/$name"
    text=$(sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' "$out/$name" | tr -d '\000-\011\013-\037' | sed 's/$/\\n/' | tr -d '\n')
    rows+=("{\"name\": \"$name\", \"code\": $code, \"seconds\": $((SECONDS - start)), \"output\": \"$text\"}")
}

mkdir -p "$out"
[ -f $build/build.ninja ] || meson setup $build --buildtype=release -Dcuda=enabled -Dtests=disabled \
    >"$out/setup" 2>&1 || { cat "$out/setup"; exit 1; }
step build 240 ninja -C $build
compile=(nvcc -std=c++17 -O3 -arch=native -diag-suppress 177 -Iinclude -Ilib)
step build_probe 60 "${compile[@]}" bench/gpu/gpu_probe.cu -o $build/gpu_probe -lcuda
step build_kernels 180 "${compile[@]}" bench/gpu/reduce_kernel_perf.cu -o $build/reduce_kernel_perf \
    -Xlinker $build/libhoop_core.a -luv -lcrypto -ldl

step probe 130 $build/gpu_probe
step kernels 90 $build/reduce_kernel_perf
# The rate of a copy, which every row of it has: what the rest is compared with.
copy=$(awk '$1 == "float" && $2 == 2 { print $5 }' "$out/kernels")
hooprun=$build/tools/hooprun
cost=($build/bench/gpu/device_cost -e $((1 << 28)) ${copy:+-c "$copy"})
for ranks in 1 2 4 8; do
    step "processes_$ranks" 60 $hooprun -n $ranks --timeout 55 "${cost[@]}"
done
for ranks in 2 4 8; do
    step "threads_$ranks" 60 "${cost[@]}" -t $ranks
done
# One rank on each GPU, where there are several.
gpus=$(nvidia-smi --list-gpus | wc -l)
gpus=$((gpus > 8 ? 8 : gpus > 1 ? gpus : 2))
step "gpus_processes_$gpus" 60 $hooprun -n $gpus --timeout 55 "${cost[@]}" -g $gpus
step "gpus_threads_$gpus" 60 "${cost[@]}" -t $gpus -g $gpus
step all_reduce_perf 40 $hooprun -n 2 --timeout 35 $build/bench/all_reduce_perf -b 8 -e 128M -f 16 --memory device -R 2
step graphs 40 $hooprun -n 2 --timeout 35 $build/bench/all_reduce_perf -b 8 -e 128M -f 16 --memory device -G 5
step alltoall_perf 40 $build/bench/alltoall_perf -t 2 -b 8 -e 32M -f 16 --memory device
step ahead 60 env HOOP_CUDA_AHEAD=1 $hooprun -n 2 --timeout 55 "${cost[@]}"
step one_queue 60 env CUDA_DEVICE_MAX_CONNECTIONS=1 $hooprun -n 2 --timeout 55 "${cost[@]}"
step faults 160 bench/gpu/faults.sh $hooprun $build/bench/gpu/device_faults $((1 << 26))
# The trainer, where oneDNN, cuDNN and cuBLAS are, too.
trainer=$build/examples/trainer
if [ -e $trainer/train_cuda.so ]; then
    step trainer_parts 120 $trainer/compare_gpu
    step trainer_ranks 240 bench/gpu/trainer_ranks.sh $hooprun $trainer/train
fi
if command -v compute-sanitizer >/dev/null; then
    step memcheck 90 compute-sanitizer --error-exitcode 9 $build/bench/gpu/device_cost -t 2 -e 4096
    [ ! -e $trainer/train_cuda.so ] ||
        step trainer_memcheck 120 compute-sanitizer --error-exitcode 9 $trainer/compare_gpu
fi

{
    printf '{"device": "%s", "commit": "%s", "steps": [\n' "$device" "$(git rev-parse --short HEAD 2>/dev/null)"
    (IFS=$'\n'; printf '%s\n' "${rows[*]}") | sed '$!s/$/,/'
    printf ']}\n'
} >$build/suite.json
printf '\n%s, %d s: %s\n' "$device" $SECONDS "$([ $failed = 0 ] && echo "all right" || echo "something failed")"
exit $failed
