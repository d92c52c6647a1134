#!/bin/sh
# The GPU programs that bench/gpu_suite.sh builds compile and link, and report a missing GPU. Exit
# code 77: there is no nvcc.
#     check_gpu_programs.sh LIBHOOP_CORE.A
set -eu
core=$(readlink -f "$1")
cd "$(dirname "$0")/../.."
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "${core%/*}" "$work/build" # nvcc takes no blanks, which the build's path may have
stubs=$(dirname "$(command -v nvcc)")/../lib64/stubs
# Only PTX: what the assembler makes of the kernels is checked by reduce/check_cuda_code.sh.
compile="nvcc -std=c++17 -O1 -gencode arch=compute_90,code=compute_90 -diag-suppress 177 -Iinclude -Ilib"
$compile -E -x cu /dev/null >"$work/log" 2>&1 || {
    echo "skipped: nvcc does not work here: $(tail -n 1 "$work/log")"
    exit 77
}
for program in gpu_probe gpu_facts gpu_ipc; do
    $compile bench/gpu/$program.cu -o "$work/$program" -L"$stubs" -lcuda
done
$compile bench/gpu/reduce_kernel_perf.cu -o "$work/reduce_kernel_perf" -Xlinker "$work/build/${core##*/}" -luv -lcrypto -ldl
[ ! -e /dev/nvidiactl ] || exit 0
code=0
"$work/reduce_kernel_perf" >"$work/out" || code=$?
[ $code = 77 ] && grep -q '^skipped: no GPU' "$work/out" || { cat "$work/out"; exit 1; }
code=0
bench/gpu_suite.sh >"$work/out" || code=$?
[ $code = 77 ] && grep -q '^skipped: no GPU' "$work/out" || { cat "$work/out"; exit 1; }
