#!/bin/sh
# Compares a benchmark with the same collective of an MPI, of Gloo, or of another build of hoop, interleaved.
#
#     compare.sh mpi|gloo|OTHER_BUILD_DIR BUILD_DIR [-c collective] [-n ranks] [-r rounds]
#                [-i iterations] [-m] [-R 0|1|2] [size ...]
#
# Builds mpi_perf.c with the mpicc in PATH (make-mpi-env.sh installs one), or gloo_allreduce.cc with c++. In each
# round every size is measured once with each side, with the same buffers, iterations and warm-up. Rounds during
# which other work runs are skipped, unless QUIET=0 is set. Prints medians and ratios; a ratio above 1 means that
# BUILD_DIR's hoop is faster. -m prints the fastest round of each side instead: with many short rounds (-i limits
# the iterations) that is meaningful even on a busy machine. Neither side is pinned, except by its launcher. Gloo
# is compared by all_reduce only, and runs over TCP loopback: set HOOP_TRANSPORT=tcp to compare like with like.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

usage='usage: compare.sh mpi|gloo|OTHER_BUILD_DIR BUILD_DIR [-c collective] [-n ranks] [-r rounds] [-i iterations] [-m] [-R 0|1|2] [size ...]'
peer=${1:?$usage}
build=${2:?$usage}
shift 2
collective=all_reduce
ranks=2
rounds=5
memory=2
most=20000
statistic=median
while getopts c:n:r:i:mR: letter; do
    case $letter in
    c) collective=$OPTARG ;;
    n) ranks=$OPTARG ;;
    r) rounds=$OPTARG ;;
    i) most=$OPTARG ;;
    m) statistic=fastest ;;
    R) memory=$OPTARG ;;
    *) exit 255 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 8 1K 16K 256K 1M 16M 64M

here=$(dirname "$0")
# shellcheck source=bench/peers/quiet.sh
. "$here/quiet.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# needs_build DIR: fails unless the build has the program that is measured.
needs_build() {
    if [ ! -x "$1/bench/${collective}_perf" ]; then
        echo "compare.sh: there is no $1/bench/${collective}_perf" >&2
        exit 255
    fi
}

needs_build "$build"
mpi_options=
name=$peer
case $peer in
mpi)
    if ! command -v mpicc >/dev/null || ! command -v mpirun >/dev/null; then
        echo "compare.sh: mpicc and mpirun are needed (make-mpi-env.sh, or Debian: openmpi-bin, libopenmpi-dev)" >&2
        exit 77
    fi
    mpicc -std=c11 -D_GNU_SOURCE -O2 "$here/mpi_perf.c" -o "$work/mpi_perf"
    if mpirun --version | grep -q 'Open MPI'; then
        [ "$(id -u)" != 0 ] || mpi_options="--allow-run-as-root"
        [ "$ranks" -le "$(nproc)" ] || mpi_options="$mpi_options --oversubscribe"
    fi
    # MPICH prints it in its second line
    version=$(mpirun --version 2>&1 | grep -m 1 -E '[0-9]+[.][0-9]+' | tr -s ' ')
    ;;
gloo)
    if [ "$collective" != all_reduce ]; then
        echo "compare.sh: -c $collective: of Gloo only all_reduce is measured" >&2
        exit 255
    fi
    if ! c++ -O2 "$here/gloo_allreduce.cc" -o "$work/gloo_allreduce" -lgloo -lpthread; then
        echo "compare.sh: a C++ compiler and libgloo are needed (Debian: g++, libgloo-dev)" >&2
        exit 77
    fi
    version="Gloo $(dpkg-query -W -f '${Version}' libgloo-dev 2>/dev/null || true), ring, TCP"
    ;;
*)
    needs_build "$peer"
    name=other
    version="$peer"
    ;;
esac

# The bytes of a size like 16K.
bytes_of() {
    echo "$1" | awk '{u = substr($0, length($0)); n = $0 + 0
        print n * (u == "K" ? 1024 : u == "M" ? 1048576 : u == "G" ? 1073741824 : 1)}'
}

# The iterations for a size: about the same work for each size, but at least 10.
iterations() {
    bytes_of "$1" | awk -v most="$most" \
        '{n = int(268435456 / ($1 + 4096)); n = n < 10 ? 10 : n; print (n > most ? most : n)}'
}

# hoop_times BUILD SIDE SIZE ITERATIONS: the times in the JSON file, out of place and in place.
hoop_times() {
    rm -f "$work/json"
    "$1/tools/hooprun" -n "$ranks" "$1/bench/${collective}_perf" -b "$3" -e "$3" -n "$4" \
        -w 5 -c 0 -R "$memory" --no-bound -J "$work/json" >"$work/out" 2>&1 || return 1
    grep -o '"time": [0-9.e+-]*' "$work/json" | awk '{print $2}' >"$work/times"
    sed -n 1p "$work/times" >>"$work/$2.apart.$3"
    sed -n 2p "$work/times" >>"$work/$2.in_place.$3"
}

# peer_times SIZE ITERATIONS: the same, from the row's columns; N/A if the peer can't do it in place.
peer_times() {
    case $peer in
    mpi)
        # shellcheck disable=SC2086
        mpirun $mpi_options -n "$ranks" "$work/mpi_perf" -c "$collective" -b "$1" -e "$1" -n "$2" \
            -w 5 >"$work/out" 2>&1 || return 1
        ;;
    gloo) "$work/gloo_allreduce" -r "$ranks" -b "$(bytes_of "$1")" -n "$2" -w 5 >"$work/out" || return 1 ;;
    *)
        hoop_times "$peer" peer "$1" "$2"
        return
        ;;
    esac
    awk '$1 ~ /^[0-9]+$/ && NF > 10 {print $6}' "$work/out" >>"$work/peer.apart.$1"
    awk '$1 ~ /^[0-9]+$/ && NF > 10 && $10 != "N/A" {print $10}' "$work/out" >>"$work/peer.in_place.$1"
}

done_rounds=0
for round in $(seq "$rounds"); do
    if [ "${QUIET:-1}" != 0 ] && ! quiet_wait 20; then
        continue
    fi
    for size in "$@"; do
        n=$(iterations "$size")
        if ! peer_times "$size" "$n" || ! hoop_times "$build" hoop "$size" "$n"; then
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

echo "# $version; hoop with -R $memory; $collective, $ranks ranks, float"
echo "# $statistic of $done_rounds of $rounds rounds, us; ratio = $name / hoop"
printf '#       size  %17s         hoop   ratio  %17s         hoop   ratio\n' \
    "out-of-place: $name" "in-place: $name"
for size in "$@"; do
    set -- "$size"
    for half in apart in_place; do
        for who in peer hoop; do
            set -- "$@" "$(quiet_$statistic <"$work/$who.$half.$size")"
        done
    done
    echo "$@" | awk '{
        printf "%12s", $1
        for (i = 2; i <= 4; i += 2) {
            if ($i == "none" || $(i + 1) == "none") printf "  %17s  %11s  %6s", "N/A", "N/A", "N/A"
            else printf "  %17.2f  %11.2f  %6.2f", $i, $(i + 1), $i / $(i + 1)
        }
        print ""
    }'
done
