#!/bin/sh
# Does twice the bytes take much more than twice the time anywhere? A table of time(2 S) / time(S).
#
#     cliffs.sh BUILD_DIR [-r rounds] [-R 0|1|2] [-n "2 3 4 8"] [-c "all_reduce ..."] [-e last size]
#
# In each round every benchmark runs once over all sizes from 8 bytes on; of each size the fastest round
# counts, out of place. For each number of ranks and collective: the largest ratio, at which S, and what
# lies above the aim. Rounds wait for a quiet moment (QUIET=0 in the environment: they do not).
set -eu

usage='usage: cliffs.sh BUILD_DIR [-r rounds] [-R 0|1|2] [-n "2 3 4 8"] [-c "all_reduce ..."] [-e last size]'
build=${1:?$usage}
shift
rounds=5 memory=0 ranks='2 3 4 8' collectives='all_reduce all_gather broadcast' last=256M aim=2.6
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

# rows RANKS COLLECTIVE FIRST LAST ITERATIONS: "bytes microseconds" each.
rows() {
    "$build/tools/hooprun" -n "$1" "$build/bench/$2_perf" -b "$3" -e "$4" -f 2 -w 3 -n "$5" -c 0 \
        -R "$memory" --no-bound | awk '$1 ~ /^[0-9]+$/ && NF > 10 {print $1, $6}'
}

for _ in $(seq "$rounds"); do
    [ "${QUIET:-1}" = 0 ] || quiet_wait 20 || continue
    for n in $ranks; do
        for collective in $collectives; do
            { rows "$n" "$collective" 8 512K 200; rows "$n" "$collective" 1M "$last" 5; } \
                >>"$work/$n.$collective"
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
