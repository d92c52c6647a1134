#!/bin/sh
# Compares the latency of an 8-byte all_reduce of two ranks with the bare exchange, interleaved.
#
#     latency_ratio.sh BUILD_DIR [rounds]
#
# Both are pinned to the same two CPUs, if the process may use two. Prints the medians over the rounds and
# their ratios. Rounds during which other work runs are skipped, unless QUIET=0 is set.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

build=${1:?usage: latency_ratio.sh BUILD_DIR [rounds]}
rounds=${2:-7}
here=$(dirname "$0")
# shellcheck source=bench/peers/quiet.sh
. "$here/quiet.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cpus=$(taskset -cp $$ | sed 's/.*: //' | awk -F, '{
    for (i = 1; i <= NF; i++) { n = split($i, r, "-"); for (c = r[1]; c <= r[n]; c++) print c }
}' | head -2)
first=$(echo "$cpus" | head -1)
second=$(echo "$cpus" | tail -1)

# One rank, on the CPU that belongs to its place on this machine.
cat >"$work/rank" <<'END'
#!/bin/sh
if [ "${LOCAL_RANK:-0}" = 0 ]; then cpu=$CPU_FIRST; else cpu=$CPU_SECOND; fi
exec taskset -c "$cpu" "$@"
END
chmod +x "$work/rank"
export CPU_FIRST="$first" CPU_SECOND="$second"

# The times in the JSON file in ns: odd lines out of place, even ones in place.
json_ns() {
    grep -o '"time": [0-9.e+-]*' "$1" | awk -v half="$2" 'NR % 2 == half % 2 {print $2 * 1000}'
}

for round in $(seq "$rounds"); do
    if [ "${QUIET:-1}" != 0 ] && ! quiet_wait 20; then
        continue
    fi
    "$build/bench/exchange_bare" -c "$first,$second" |
        awk '/ns per exchange/{print $1}' >>"$work/bare"
    "$build/tools/hooprun" -n 2 "$work/rank" "$build/bench/all_reduce_perf" -b 8 -e 8 -R 2 \
        -N 101 -n 2000 -w 2000 -c 0 --no-bound -J "$work/$round.json" >"$work/out" || {
        cat "$work/out" >&2
        exit 1
    }
    json_ns "$work/$round.json" 1 | quiet_median >>"$work/apart"
    json_ns "$work/$round.json" 2 | quiet_median >>"$work/in_place"
done

touch "$work/bare" "$work/apart" "$work/in_place"
bare=$(quiet_median <"$work/bare")
echo "# cpus $first and $second, $(wc -l <"$work/bare") of $rounds rounds, medians"
echo "bare exchange of 8 bytes     $bare ns"
for half in apart in_place; do
    time=$(quiet_median <"$work/$half")
    name="out of place"
    [ "$half" = apart ] || name="in place"
    awk -v name="$name" -v time="$time" -v bare="$bare" 'BEGIN {
        printf "all_reduce, %-12s     %s ns", name, time
        if (bare + 0 > 0) printf "   ratio %.2f", time / bare
        print "" }'
done
[ "$bare" != none ]
