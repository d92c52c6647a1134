#!/bin/sh
# Is there a size S where 2 S takes much more than twice the time? A table of time(2 S) / time(S).
#
#     cliffs.sh BUILD_DIR [-r rounds] [-R 0|1|2] [-n "2 3 4 8"] [-c "all_reduce ..."] [-e MiB]
#
# In each round every benchmark runs at all sizes from 64 bytes (so that all ranks have elements) to 256 MiB, out
# of place; for each size the fastest round counts. For each number of ranks and collective it prints the largest
# ratio with its S, and the ratios above the aim. Rounds wait for a quiet moment, unless QUIET=0 is set.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/help.sh"

usage='usage: cliffs.sh BUILD_DIR [-r rounds] [-R 0|1|2] [-n "2 3 4 8"] [-c "all_reduce ..."] [-e MiB]'
build=${1:?$usage}
shift
rounds=5 memory=0 ranks='2 3 4 8' collectives='all_reduce all_gather broadcast' last=256 aim=2.6
while getopts r:R:n:c:e: letter; do
    case $letter in
    r) rounds=$OPTARG ;;
    R) memory=$OPTARG ;;
    n) ranks=$OPTARG ;;
    c) collectives=$OPTARG ;;
    e) last=$OPTARG ;;
    *) echo "$usage" >&2 && exit 255 ;;
    esac
done

# shellcheck source=bench/peers/quiet.sh
. "$(dirname "$0")/peers/quiet.sh"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# row RANKS COLLECTIVE BYTES: "bytes microseconds". One size per run, so that the buffers have that size: a
# benchmark uses the whole buffers for all sizes, and larger ones may not fit the same cache.
row() {
    iterations=$((67108864 / $3))
    most=$([ "$1" -le "$(nproc)" ] && echo 20000 || echo 1000) # small sizes, too, take milliseconds
    [ $iterations -le "$most" ] || iterations=$most
    [ $iterations -ge 6 ] || iterations=6
    "$build/tools/hooprun" -n "$1" "$build/bench/$2_perf" -b "$3" -e "$3" -w $iterations -n $iterations -c 0 \
        -R "$memory" --no-bound >"$work/out" || { echo "cliffs.sh: $1 ranks, $2, $3 bytes: it failed" >&2; exit 1; }
    awk -v bytes="$3" '$1 ~ /^[0-9]+$/ && NF > 10 {print bytes, $6}' "$work/out"
}

for _ in $(seq "$rounds"); do
    [ "${QUIET:-1}" = 0 ] || quiet_wait 20 || continue
    for n in $ranks; do
        for collective in $collectives; do
            bytes=64
            while [ $bytes -le $((last << 20)) ]; do
                row "$n" "$collective" $bytes >>"$work/$n.$collective"
                bytes=$((bytes * 2))
            done
        done
    done
done

echo "| ranks | collective | largest time(2 S) / time(S) | at S | above $aim |"
echo "|---:|---|---:|---:|---|"
for n in $ranks; do
    for collective in $collectives; do
        [ -s "$work/$n.$collective" ] || { echo "cliffs.sh: no quiet round" >&2 && exit 1; }
        sort -n "$work/$n.$collective" | awk -v n="$n" -v c="$collective" -v aim="$aim" '
            !($1 in best) {order[++count] = $1; best[$1] = $2}
            $2 < best[$1] {best[$1] = $2}
            END {
                for (i = 1; i < count; i++) {
                    ratio = best[order[i + 1]] / best[order[i]]
                    if (ratio > most) {most = ratio; at = order[i]}
                    if (ratio > aim) above = above sprintf(" %d (%.1f)", order[i], ratio)
                }
                printf "| %d | %s | %.2f | %d |%s |\n", n, c, most, at, above == "" ? " none" : above
            }'
    done
done
