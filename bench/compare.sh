#!/bin/sh
# all_reduce_perf against MPI_Allreduce or gloo::allreduce on this machine, interleaved.
#
#     compare.sh mpi|gloo BUILD_DIR [-n ranks] [-r rounds] [-R 0|1|2] [size ...]
#
# Builds bench/mpi_allreduce.c with mpicc, or bench/gloo_allreduce.cc with c++. In each round every
# size is measured once with either; rounds during which other work runs are skipped (QUIET=0 in the
# environment turns that off). Prints medians and ratios; a ratio above 1 means that hoop is faster.
# Neither side is pinned beyond what its launcher does by itself. Gloo runs over TCP loopback: set
# HOOP_TRANSPORT=tcp to compare like with like.
set -eu

usage='usage: compare.sh mpi|gloo BUILD_DIR [-n ranks] [-r rounds] [-R 0|1|2] [size ...]'
peer=${1:?$usage}
build=${2:?$usage}
shift 2
ranks=2
rounds=5
memory=2
while getopts n:r:R: letter; do
    case $letter in
    n) ranks=$OPTARG ;;
    r) rounds=$OPTARG ;;
    R) memory=$OPTARG ;;
    *) exit 255 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 8 1K 16K 256K 1M 16M 64M

here=$(dirname "$0")
# shellcheck source=bench/quiet.sh
. "$here/quiet.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mpi_options=
case $peer in
mpi)
    if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
        echo "compare.sh: mpicc and mpirun are needed (Debian: openmpi-bin, libopenmpi-dev)" >&2
        exit 77
    fi
    mpicc -std=c11 -D_GNU_SOURCE -O2 "$here/mpi_allreduce.c" -o "$work/mpi_allreduce"
    if mpirun --version | grep -q 'Open MPI'; then
        [ "$(id -u)" != 0 ] || mpi_options="--allow-run-as-root"
        [ "$ranks" -le "$(nproc)" ] || mpi_options="$mpi_options --oversubscribe"
    fi
    version=$(mpirun --version | head -1)
    ;;
gloo)
    if ! c++ -O2 "$here/gloo_allreduce.cc" -o "$work/gloo_allreduce" -lgloo -lpthread; then
        echo "compare.sh: a C++ compiler and libgloo are needed (Debian: g++, libgloo-dev)" >&2
        exit 77
    fi
    version="Gloo $(dpkg-query -W -f '${Version}' libgloo-dev 2>/dev/null || true), ring, TCP"
    ;;
*)
    echo "compare.sh: '$peer': expected mpi or gloo" >&2
    exit 255
    ;;
esac

# Bytes of a size like 16K.
bytes_of() {
    echo "$1" | awk '{u = substr($0, length($0)); n = $0 + 0
        print n * (u == "K" ? 1024 : u == "M" ? 1048576 : u == "G" ? 1073741824 : 1)}'
}

# Iterations for a size: about the same work each, 10 at least.
iterations() {
    bytes_of "$1" | awk '{n = int(268435456 / ($1 + 4096)); print (n < 10 ? 10 : n > 20000 ? 20000 : n)}'
}

# The peer's row for a size and a number of iterations.
peer_row() {
    if [ "$peer" = mpi ]; then
        # shellcheck disable=SC2086
        mpirun $mpi_options -n "$ranks" "$work/mpi_allreduce" -b "$1" -e "$1" -n "$2" -w 5
    else
        "$work/gloo_allreduce" -r "$ranks" -b "$(bytes_of "$1")" -n "$2" -w 5
    fi
}

measure_peer() {
    peer_row "$1" "$2" >"$work/out" || return 1
    awk '!/^#/ && NF > 10 {print $6}' "$work/out" >>"$work/peer.apart.$1"
    awk '!/^#/ && NF > 10 {print $10}' "$work/out" >>"$work/peer.in_place.$1"
}

measure_hoop() {
    rm -f "$work/json"
    "$build/tools/hooprun" -n "$ranks" "$build/bench/all_reduce_perf" -b "$1" -e "$1" -n "$2" \
        -w 5 -c 0 -R "$memory" --no-bound -J "$work/json" >"$work/out" || return 1
    grep -o '"time": [0-9.e+-]*' "$work/json" | awk '{print $2}' >"$work/times"
    sed -n 1p "$work/times" >>"$work/hoop.apart.$1"
    sed -n 2p "$work/times" >>"$work/hoop.in_place.$1"
}

done_rounds=0
for round in $(seq "$rounds"); do
    if [ "${QUIET:-1}" != 0 ] && ! quiet_wait 20; then
        continue
    fi
    for size in "$@"; do
        n=$(iterations "$size")
        if ! measure_peer "$size" "$n" || ! measure_hoop "$size" "$n"; then
            cat "$work/out" >&2
            echo "compare.sh: round $round, size $size: the run failed" >&2
            exit 1
        fi
    done
    done_rounds=$((done_rounds + 1))
done
if [ "$done_rounds" = 0 ]; then
    echo "compare.sh: no quiet round; QUIET=0 measures anyhow" >&2
    exit 1
fi

echo "# $version; hoop with -R $memory; $ranks ranks, float sum"
echo "# medians of $done_rounds of $rounds rounds, us; ratio = $peer / hoop"
printf '#       size  %17s         hoop   ratio  %17s         hoop   ratio\n' \
    "out-of-place: $peer" "in-place: $peer"
for size in "$@"; do
    set -- "$size"
    for half in apart in_place; do
        for who in peer hoop; do
            set -- "$@" "$(quiet_median <"$work/$who.$half.$size")"
        done
    done
    echo "$@" | awk '{printf "%12s  %17.2f  %11.2f  %6.2f  %17.2f  %11.2f  %6.2f\n",
        $1, $2, $3, $2 / $3, $4, $5, $4 / $5}'
done
