#!/bin/sh
# Compiles the kernels for GPUs, each for every kind: none may spill a register, and each must move
# 128 bits at once. Needs nvcc from 12.8 on; cuobjdump for the second, which is skipped without.
set -u
cd "$(dirname "$0")/../.." || exit 1
PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "skipped: no nvcc"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() { printf 'FAILED: %s\n' "$*"; failed=1; }

# It needs a C++ compiler that it knows, and may know none of these kinds.
nvcc -std=c++17 -arch=sm_100 -E -x cu /dev/null >"$work/log" 2>&1 || {
    echo "skipped: nvcc does not work here: $(tail -n 1 "$work/log")"
    exit 77
}
: >"$work/log"
compile() {
    lib/compile_kernels.sh nvcc "$1" "$work/$(basename "$1" .cu)" -Xptxas -v >>"$work/log" 2>&1 || {
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

kernels=$(((60 + 48) * 3)) # of the library
if ! cuobjdump -sass "$work/reduce_cuda.fatbin" >"$work/sass" 2>/dev/null; then
    echo "none spills; skipped: what the library's load and store (no cuobjdump)"
    exit 0
fi
# One line for each kernel: its name, and how many of its loads and stores are of 128 bits.
awk '/Function *:/ { if (name) print name, loads, stores; name = $NF; loads = stores = 0 }
     /LDG[.A-Z0-9]*\.128/ { loads++ }
     /STG[.A-Z0-9]*\.128/ { stores++ }
     END { if (name) print name, loads, stores }' "$work/sass" >"$work/wide"
wide=$(awk '$2 >= 2 && $3 >= 1' "$work/wide" | wc -l)
[ "$wide" = $kernels ] || fail "$wide of $kernels kernels have loads and stores of 128 bits"
[ $failed = 0 ] && echo "none spills, the library's all load and store 128 bits"
exit $failed
