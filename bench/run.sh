#!/bin/sh
# The figures of docs/performance.md, one after the other.
#
#     run.sh BUILD_DIR
#
# Returns 1 if a figure could not be measured. Without an MPI, or Gloo, the comparison with it is left out.
set -u
# shellcheck source=bench/help.sh
. "$(dirname "$0")/help.sh"

build=${1:?usage: run.sh BUILD_DIR}
here=$(dirname "$0")
failures=0

# figure TITLE COMMAND...
figure() {
    printf '\n## %s\n\n$ ' "$1"
    shift
    printf '%s\n' "$*"
    "$@" && return
    echo "run.sh: this command returned $?" >&2
    failures=$((failures + 1))
}

for program in tools/hooprun bench/all_reduce_perf bench/exchange_bare bench/stream_bare \
    bench/init_cost; do
    if [ ! -x "$build/$program" ]; then
        echo "run.sh: there is no $build/$program; ./dev bench builds it" >&2
        exit 1
    fi
done

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
echo "# $(uname -srm), $(nproc) usable CPUs: ${cpu:-unknown}"

figure "2 ranks, 8 bytes, against a bare exchange" "$here/peers/latency_ratio.sh" "$build"

if command -v mpicc >/dev/null && command -v mpirun >/dev/null; then
    figure "2 ranks, memory from hoop_mem_alloc, against MPI" \
        "$here/peers/compare.sh" mpi "$build" -n 2 -r 2 -R 2 8 64K 1M 64M
else
    printf '\n## 2 ranks, against MPI\n\n'
    echo "left out: there is no mpicc and mpirun (bench/peers/make-mpi-env.sh DIR gets them)"
fi

for bytes in 65536 1048576 67108864; do
    figure "TCP over loopback allows" "$build/bench/stream_bare" -b "$bytes"
done
if [ -e /usr/include/gloo/allreduce.h ]; then
    export HOOP_TRANSPORT=tcp
    figure "2 ranks over TCP loopback, against Gloo" \
        "$here/peers/compare.sh" gloo "$build" -n 2 -r 2 -R 2 64K 1M 16M 64M
    unset HOOP_TRANSPORT
else
    printf '\n## 2 ranks over TCP loopback, against Gloo\n\n'
    echo "left out: there is no Gloo (Debian: libgloo-dev)"
fi

for ranks in 8 64; do
    START_NS=$(date +%s%N)
    export START_NS
    figure "$ranks ranks: init and what it costs" "$build/tools/hooprun" -n "$ranks" \
        "$build/bench/init_cost" 10
done

for ranks in 4 8; do
    figure "$ranks ranks, 8 bytes" "$build/tools/hooprun" -n "$ranks" \
        "$build/bench/all_reduce_perf" -b 8 -e 8 -R 2 -n 20000 -w 2000 --no-bound
done
[ "$failures" = 0 ]
