#!/bin/sh
# Compiles the kernels for every kind of GPU: none may spill a register, and each must move 128 bits
# at once. Needs nvcc 12.8 or later.
set -u
cd "$(dirname "$0")/../.." || exit 1
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { printf 'FAILED: %s\n' "$*"; failed=1; }

# nvcc needs a C++ compiler that it knows, and may not know some of these GPUs.
nvcc -std=c++17 -arch=sm_100 -E -x cu /dev/null >"$work/log" 2>&1 || {
    echo "skipped: nvcc does not work here: $(tail -n 1 "$work/log")"
    exit 77
}
: >"$work/log"
compile() {
    lib/compile_kernels.sh nvcc "$1" "$work/$(basename "$1" .cu)" -Xptxas -v --keep --keep-dir "$work" >>"$work/log" 2>&1 || {
        cat "$work/log"
        exit 1
    }
}
compile lib/reduce/reduce_cuda.cu
compile bench/perf/perf_kernels.cu

kernels=$(((60 + 48 + 2) * 3)) # for three kinds
compiled=$(grep -cE "Compiling entry function '(hoop_fold|hoop_told|perf)_" "$work/log")
[ "$compiled" = $kernels ] || fail "$compiled kernels were compiled, expected $kernels"
grep ' bytes spill loads' "$work/log" >"$work/spills"
clean='^ *0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads$'
if grep -v "$clean" "$work/spills" | sort | uniq -c | grep .; then
    fail "these use a stack, or spill registers"
fi
[ "$(wc -l <"$work/spills")" -ge $kernels ] || fail "the assembler says nothing of spills"
[ $failed = 0 ] || exit 1

# One line for each of the library's kernels in PTX: its name, and how many of its loads and stores
# move 128 bits of global memory.
cat "$work"/reduce_cuda.compute_*.ptx >"$work/ptx"
awk '/\.entry/ { if (name) print name, loads, stores; name = $0; loads = stores = 0 }
     /ld\.global\.v4/ { loads++ }
     /st\.global\.v4/ { stores++ }
     END { if (name) print name, loads, stores }' "$work/ptx" >"$work/wide"
kernels=$(((60 + 48) * 3))
wide=$(awk '$(NF - 1) >= 2 && $NF >= 1' "$work/wide" | wc -l)
[ "$wide" = $kernels ] || fail "$wide of $kernels kernels have loads and stores of 128 bits"
[ $failed = 0 ] && echo "none spills, the library's all load and store 128 bits"
exit $failed
