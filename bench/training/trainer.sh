#!/usr/bin/env bash
# Compares the trainer with PyTorch: the same net, data and batch, one thread for each rank, interleaved.
#
#     trainer.sh BUILD_DIR [-r rounds] [-s steps]
#
# PyTorch is PyPI's newest (installed by python/torch_env.sh) in both memory layouts, and Debian's python3-torch if
# it is installed. Prints medians, and each aim as met or not met. Rounds during which other work runs are skipped,
# unless QUIET=0 is set. Five rounds take about six minutes.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

usage='usage: trainer.sh BUILD_DIR [-r rounds] [-s steps]'
build=$(cd "${1:?$usage}" && pwd)
shift
rounds=5 steps=150 batch=64
while getopts r:s: letter; do
    case $letter in
    r) rounds=$OPTARG ;;
    s) steps=$OPTARG ;;
    *) exit 255 ;;
    esac
done
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=bench/peers/quiet.sh
. "$here/../peers/quiet.sh"
train=$build/examples/trainer/train hooprun=$build/tools/hooprun
if [ ! -x "$train" ]; then
    echo "trainer.sh: there is no $train; it is built where oneDNN 2 and zlib are" >&2
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset "${!HOOP_@}" "${!OMP_@}" RANK WORLD_SIZE
export OMP_NUM_THREADS=1

# ---- The sides: each appends the milliseconds of its step to $work/NAME.RANKS --------------------

# ours RANKS OUT: trains for $steps steps, without threads that prepare batches.
ours() {
    "$hooprun" -n "$1" "$train" --train-samples $((steps * batch * $1)) --batch-size $batch --workers 0 \
        --epochs 1 --log-interval 1000000 >"$work/$2"
}

# step_ms RANKS OUT: the milliseconds of a step, from the images per second of all ranks.
step_ms() { awk -v images=$((batch * $1)) '/^Training:/ { print images * 1000 / $2 }' "$work/$2"; }

hoop_side() {
    ours "$1" out
    step_ms "$1" out >>"$work/hoop.$1"
    awk '/^Training:/ { print $6 }' "$work/out" >>"$work/gflops.$1"
    # The share of the training time that communication took and was not hidden.
    sed -n 's/^Time of rank 0: //p' "$work/out" | tr ',' '\n' | awk '{ v = $NF + 0; sub(/ *[0-9.]+%$/, "") }
        /communication|gradients/ { seen += v } !/tests/ { all += v } END { print 100 * seen / all }' >>"$work/unhidden.$1"
}

# Two independent trainings at once: the milliseconds in which both do a step.
apart_side() {
    ours 1 apart &
    ours 1 beside
    wait $!
    { step_ms 1 apart; step_ms 1 beside; } | awk '{ rate += 1 / $1 } END { print 2 / rate }' >>"$work/apart.2"
}

# torch_side NAME RANKS LAYOUT PYTHON
torch_side() {
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 10000)) "$hooprun" -n "$2" "$4" \
        "$here/../peers/torch_ddp.py" "$data" "$steps" $batch "$3" >"$work/out"
    awk 'NF == 2 { print $1 }' "$work/out" | tail -n 1 >"$work/$1.version"
    awk 'NF == 2 { print $2 }' "$work/out" | tail -n 1 >>"$work/$1.$2"
}

# The newest torch, in an environment of its own.
torch_newest() { (. "$newest/env.sh" && torch_side "$1" "$2" "$3" python); }

# ---- Rounds --------------------------------------------------------------------------------------

newest=$("$here/../../python/torch_env.sh" 2>&1 | tail -n 1)
case $newest in skip:*) echo "# PyPI's torch is left out: $newest" newest= ;; esac
debian=/usr/bin/python3
$debian -c 'import torch, numpy' 2>/dev/null || debian=
[ -n "$debian" ] || echo "# Debian's torch is left out: no python3-torch"
"$train" --dry-run >/dev/null # draws the digits if they are missing
data=$(echo "${XDG_CACHE_HOME:-$HOME/.cache}"/hoop/digits-*)
peak=$("$build/bench/core_peak")

for round in $(seq "$rounds"); do
    [ "${QUIET:-1}" = 0 ] || quiet_wait 20 || continue
    for ranks in 1 2; do
        hoop_side $ranks
        if [ -n "$newest" ]; then
            torch_newest newest_last $ranks channels_last
            torch_newest newest $ranks default
        fi
        [ -z "$debian" ] || torch_side debian $ranks default $debian
    done
    apart_side
    hoop_side 2
    echo "# round $round of $rounds" >&2
done
[ -s "$work/hoop.2" ] || { echo "trainer.sh: no round was quiet (QUIET=0 measures anyhow)" >&2; exit 1; }

# ---- The table -----------------------------------------------------------------------------------

median() { quiet_median <"$work/$1"; }

# row NAME TEXT
row() {
    [ -s "$work/$1.2" ] || return 0
    printf '| %s | %.2f | %.2f | %.2f | %.2f |\n' "$2" "$(median "$1.1")" "$(ratio "$1.1" hoop.1)" \
        "$(median "$1.2")" "$(ratio "$1.2" hoop.2)"
}

# ratio A B: the ratio of medians.
ratio() { awk -v a="$(median "$1")" -v b="$(median "$2")" 'BEGIN { print a / b }'; }

# aim VALUE least|most BOUND WHAT
aim() {
    awk -v v="$1" -v kind="$2" -v bound="$3" -v what="$4" 'BEGIN {
        printf "%-7s  %s: %.3g (aim: at %s %s)\n", (kind == "least" ? v >= bound : v <= bound) ? "met" : "not met",
            what, v, kind, bound }'
}

# The layout with which the newest torch is faster with that many ranks.
faster() {
    awk -v a="$(median "newest.$1")" -v b="$(median "newest_last.$1")" \
        -v n="$1" 'BEGIN { print (a < b ? "newest." : "newest_last.") n }'
}

printf '| ms a step, batch %d a rank | 1 rank | ratio | 2 ranks | ratio |\n|---|---:|---:|---:|---:|\n' $batch
row hoop "hoop's trainer"
[ -z "$newest" ] || row newest_last "torch $(cat "$work/newest.version"), channels_last"
[ -z "$newest" ] || row newest "torch $(cat "$work/newest.version"), default layout"
[ -z "$debian" ] || row debian "torch $(cat "$work/debian.version"), default layout"
echo
if [ -n "$newest" ]; then
    aim "$(ratio "$(faster 1)" hoop.1)" least 1.25 "1 rank, newest torch in its faster layout"
    aim "$(ratio "$(faster 2)" hoop.2)" least 1.5 "2 ranks, newest torch in its faster layout"
fi
if [ -n "$debian" ]; then
    aim "$(ratio debian.1 hoop.1)" least 2 "1 rank, Debian's torch in its default layout"
    aim "$(ratio debian.2 hoop.2)" least 2.5 "2 ranks, Debian's torch in its default layout"
fi
aim "$(ratio apart.2 hoop.2)" least 0.97 "2 ranks, of the speed of two runs at once that know nothing of each other"
aim "$(median unhidden.2)" most 3 "2 ranks, per cent of a step not hidden behind backward"
awk -v g="$(median gflops.1)" -v peak="$peak" 'BEGIN {
    printf "         1 rank computes with %.1f GFLOP/s, %.0f %% of the %.1f that the core has\n", g, 100 * g / peak, peak }'
