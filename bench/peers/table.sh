#!/bin/sh
# Compares every collective with the best of three MPIs, in one table: aims met or not met.
#
#     table.sh MPI_DIR BUILD_DIR [-r rounds] [-R 0|1|2] [-n "2 4"] [-c "all_reduce ..."] [-p "impi ..."] [-m]
#              [-b none|core]
#
# MPI_DIR was made by make-mpi-env.sh. In each round every program runs over the small sizes, over one of the middle,
# and over the large ones, each for at least 10 ms before it counts. The table has the ratio of medians out of place,
# best MPI / hoop; above 1 hoop is faster. Rounds are skipped while other work runs, unless QUIET=0 is set. -p: only
# these MPIs (MPICH takes minutes if ranks outnumber CPUs). -m: the fastest round of each side, which is meaningful
# even on a busy machine.
# -b: hooprun's --bind-to (none); Intel MPI binds its ranks, as core does, MPICH none, Open MPI if each has a CPU.
# Sizes are in bytes, for collectives with parts of all parts together: 64 has a float for each of 16 ranks. Aims:
# ranks that have a CPU each, 1.3 from 64 KiB on (plain memory; 2 with -R 2) and for all_reduce, else 1; more, 1.2 for
# all_reduce, else 1.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

usage='usage: table.sh MPI_DIR BUILD_DIR [-r rounds] [-R 0|1|2] [-n "2 4"] [-c "all_reduce ..."] [-p "impi ..."] [-m] [-b none|core]'
mpis=${1:?$usage}
build=${2:?$usage}
shift 2
rounds=9
memory=0
bind=none
ranks='2 4'
statistic=median
peers='openmpi mpich impi'
collectives='all_reduce all_gather reduce_scatter broadcast reduce gather scatter alltoall sendrecv'
while getopts r:R:n:c:p:b:m letter; do
    case $letter in
    r) rounds=$OPTARG ;;
    R) memory=$OPTARG ;;
    n) ranks=$OPTARG ;;
    c) collectives=$OPTARG ;;
    p) peers=$OPTARG ;;
    b) bind=$OPTARG ;;
    m) statistic=fastest ;;
    *) echo "$usage" >&2 && exit 255 ;;
    esac
done

here=$(dirname "$0")
# shellcheck source=bench/peers/quiet.sh
. "$here/quiet.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sizes='64 512 4096 32768 262144 2097152'

for mpi in $peers; do
    "$mpis/$mpi/bin/mpicc" -std=c11 -D_GNU_SOURCE -O2 "$here/mpi_perf.c" -o "$work/$mpi"
done

# take WHO RANKS COLLECTIVE ROW: stores the times on stdin, one for each size, beginning with row ROW.
take() {
    awk '$1 ~ /^[0-9]+$/ && NF > 10 {print $6}' >"$work/times"
    row=$4
    while read -r time; do
        echo "$time" >>"$work/$1.$2.$3.$row"
        row=$((row + 1))
    done <"$work/times"
}

# mpi WHICH RANKS COLLECTIVE RANGE
mpi() {
    options=
    if [ "$1" = openmpi ]; then
        [ "$(id -u)" != 0 ] || options="--allow-run-as-root"
        [ "$2" -le "$(nproc)" ] || options="$options --oversubscribe"
    fi
    # shellcheck disable=SC2086
    timeout 60 "$mpis/$1/bin/mpirun" $options -n "$2" "$work/$1" -c "$3" $4 2>/dev/null || true
}

# hoop RANKS COLLECTIVE RANGE
hoop() {
    # shellcheck disable=SC2086
    timeout 60 "$build/tools/hooprun" -n "$1" --bind-to "$bind" "$build/bench/${2}_perf" $3 -c 0 -R "$memory" --no-bound
}

# measure_range RANKS COLLECTIVE RANGE ROW
measure_range() {
    for which in $peers; do
        mpi "$which" "$1" "$2" "$3" | take "$which" "$1" "$2" "$4"
    done
    hoop "$1" "$2" "$3" | take hoop "$1" "$2" "$4"
}

# measure RANKS COLLECTIVE: for so long that the first 10 ms, in which cores wake up and pages are met, do not count.
measure() {
    small='-n 50000 -w 20000' middle='-n 10000 -w 3000' large='-n 1000 -w 200'
    [ "$1" -le "$(nproc)" ] || small='-n 2000 -w 2000' middle='-n 2000 -w 500' large='-n 300 -w 60'
    measure_range "$1" "$2" "-b 64 -e 4096 -f 8 $small" 1
    measure_range "$1" "$2" "-b 32768 -e 32768 $middle" 4
    measure_range "$1" "$2" "-b 262144 -e 2097152 -f 8 $large" 5
}

done_rounds=0
for _ in $(seq "$rounds"); do
    if [ "${QUIET:-1}" != 0 ] && ! quiet_wait 20; then
        continue
    fi
    for n in $ranks; do
        for collective in $collectives; do
            measure "$n" "$collective"
        done
    done
    done_rounds=$((done_rounds + 1))
done
[ "$done_rounds" -gt 0 ] || { echo "table.sh: no quiet round; QUIET=0 measures anyhow" >&2 && exit 1; }

# statistic_of WHO RANKS COLLECTIVE ROW
statistic_of() {
    [ ! -f "$work/$1.$2.$3.$4" ] || "quiet_$statistic" <"$work/$1.$2.$3.$4"
}

# aim RANKS COLLECTIVE SIZE
aim() {
    if [ "$1" -gt "$(nproc)" ]; then
        [ "$2" = all_reduce ] && echo 1.2 || echo 1
    elif [ "$3" -ge 65536 ]; then
        [ "$memory" = 2 ] && echo 2 || echo 1.3
    else
        [ "$2" = all_reduce ] && echo 1.3 || echo 1
    fi
}

missing=''
echo "$statistic of $done_rounds rounds, hoop with -R $memory; best MPI / hoop, out of place, by bytes:"
echo
echo "| ranks | collective | $(echo "$sizes" | sed 's/ / | /g') | aims |"
echo "|---:|---|$(echo "$sizes" | sed 's/[0-9]* */---:|/g')---|"
for n in $ranks; do
    for collective in $collectives; do
        cells='' row=0 missed=''
        for size in $sizes; do
            row=$((row + 1))
            ratio=$(for mpi in $peers; do statistic_of "$mpi" "$n" "$collective" "$row"; done |
                sort -g | awk -v hoop="$(statistic_of hoop "$n" "$collective" "$row")" '
                    $1 + 0 > 0 && hoop > 0 {printf "%.2f", $1 / hoop; exit}')
            cells="$cells ${ratio:-n/a} |"
            for who in $peers hoop; do
                [ -f "$work/$who.$n.$collective.$row" ] || missing="$missing, $who $n $collective $size"
            done
            awk -v r="${ratio:-0}" -v a="$(aim "$n" "$collective" "$size")" 'BEGIN {exit r >= a}' ||
                continue
            missed="$missed $size"
        done
        verdict=met
        [ -z "$missed" ] || verdict="not met:$missed"
        echo "| $n | $collective |$cells $verdict |"
    done
done
[ -z "$missing" ] || printf '\nNo times, as these failed or took a minute: %s\n' "${missing#, }"
