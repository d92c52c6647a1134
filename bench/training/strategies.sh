#!/usr/bin/env bash
# Compares ways to train together (docs/strategies.md): the time of a step's communication against the number of
# ranks, and accuracy against time with a server that waits for all workers and one that does not.
#
#     strategies.sh BUILD_DIR [-o FOLDER] [-r "1 2 3 4 6 8"] [-m MBIT]
#
# On this machine, and as root also between network namespaces as machines, with cables of MBIT (200) megabits per
# second each way (tc tbf). Writes exchange.csv, and exchange and accuracy as .svg and .png, into FOLDER
# (BUILD_DIR/strategies). Takes about five minutes.
set -eu
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

usage='usage: strategies.sh BUILD_DIR [-o FOLDER] [-r "RANKS ..."] [-m MBIT]'
build=$(cd "${1:?$usage}" && pwd)
shift
out=$build/strategies all_ranks="1 2 3 4 6 8" mbit=200
while getopts o:r:m: letter; do
    case $letter in
    o) out=$OPTARG ;;
    r) all_ranks=$OPTARG ;;
    m) mbit=$OPTARG ;;
    *) exit 255 ;;
    esac
done
here=$(cd "$(dirname "$0")" && pwd)
tests=$here/../../tests/whole
# shellcheck source=tests/whole/machines_net.sh
. "$tests/machines_net.sh"
hooprun=$build/tools/hooprun programs=$build/examples/strategies
if [ ! -x "$programs/by_ring" ]; then
    echo "strategies.sh: there is no $programs/by_ring; it is built where oneDNN 2 and zlib are" >&2
    exit 77
fi
work=$(mktemp -d)
trap 'set +e; unmake; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP
unset "${!HOOP_@}" "${!OMP_@}" RANK WORLD_SIZE
export OMP_NUM_THREADS=1
mkdir -p "$out"
"$programs/by_threads" --threads 1 --steps 1 >/dev/null # draws the digits if they are missing
LAYERS=4 # layers with weights: the net can't be cut into more parts

# ---- Exchange ------------------------------------------------------------------------------------

# command STRATEGY: the program for a line of the picture, and its options.
command_of() {
    case $1 in
    server) echo "$programs/by_server" ;;
    "server, async") echo "$programs/by_server --async" ;;
    model) echo "$programs/by_model" ;;
    ring) echo "env HOOP_ALGO=ring $programs/by_ring" ;;
    "all_reduce as hoop chooses") echo "$programs/by_ring" ;;
    esac
}

# row PLACE STRATEGY RANKS FILE: from the program's last line.
row() {
    local ms
    ms=$(sed -n 's/.* steps, \([0-9.]*\) ms a step$/\1/p' "$4")
    [ -n "$ms" ] || { echo "strategies.sh: $2 with $3 ranks failed:" >&2; cat "$4" >&2; return 1; }
    echo "\"$1\",\"$2\",$3,$ms" | tee -a "$out/exchange.csv"
}

# Can the strategy have that many ranks? A server without workers communicates nothing.
possible() { [ "$1" != model ] || [ "$2" -le $LAYERS ]; }

# here_run STRATEGY RANKS STEPS
here_run() {
    # shellcheck disable=SC2046
    "$hooprun" -n "$2" --timeout 100 $(command_of "$1") --exchange --steps "$3" >"$work/out" 2>&1 || true
}

# between_run STRATEGY RANKS STEPS: rank k in namespace hk. Only one of them prints.
between_run() {
    local k pids=() commands
    commands=$(command_of "$1")
    : >"$work/out"
    for k in $(seq 0 $(($2 - 1))); do
        # shellcheck disable=SC2086
        on "h$k" timeout 100 "$hooprun" --nnodes "$2" --node-rank "$k" --master-addr 10.77.1.1 \
            --secret-file "$work/secret" -n 1 $commands --exchange --steps "$3" >>"$work/out" 2>&1 &
        pids+=($!)
    done
    for k in "${pids[@]}"; do wait "$k" || true; done
}

# measure PLACE RUN STEPS STRATEGIES...
measure() {
    local place=$1 run=$2 steps=$3 strategy ranks
    shift 3
    for strategy in "$@"; do
        for ranks in $all_ranks; do
            possible "$strategy" "$ranks" || continue
            "$run" "$strategy" "$ranks" "$steps"
            row "$place" "$strategy" "$ranks" "$work/out" || failed=1
        done
    done
}

failed=0
echo place,strategy,ranks,ms >"$out/exchange.csv"
measure "one machine" here_run 50 ring server "server, async" model "all_reduce as hoop chooses"
for ranks in $all_ranks; do
    "$programs/by_threads" --threads "$ranks" --exchange --steps 50 >"$work/out" 2>&1 || true
    row "one machine" threads "$ranks" "$work/out" || failed=1
done

# Limits the cables' rate each way: what a host sends is limited at its eth0, what it receives at the switch.
limit() {
    local k ns
    for k in "${!net_hosts[@]}"; do
        ns=$net_id-${net_hosts[k]}
        tc -n "$ns" qdisc add dev eth0 root tbf rate "${mbit}mbit" burst 128kb latency 200ms &&
            tc -n "$net_id-sw" qdisc add dev "p$((k + 1))" root tbf rate "${mbit}mbit" burst 128kb latency 200ms ||
            return 1
    done
}

refusal=$(net_refusal)
command -v tc >/dev/null || refusal="tc is not installed (iproute2)"
most=$(tr ' ' '\n' <<<"$all_ranks" | sort -n | tail -n 1)
if [ -z "$refusal" ]; then
    # shellcheck disable=SC2046
    hosts $(seq -f 'h%.0f' 0 $((most - 1)))
    limit 2>"$work/limit" || refusal="tc tbf is refused: $(tail -n 1 "$work/limit")"
fi
if [ -z "$refusal" ]; then
    (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
    measure "machines, $mbit Mbit/s each" between_run 4 ring server "server, async" model
else
    echo "skip: machines with limited cables: $refusal"
fi

# ---- Accuracy ------------------------------------------------------------------------------------

# learn NAME OPTIONS...: a server and three workers.
learn() {
    local name=$1
    shift
    "$hooprun" -n 4 --timeout 300 "$programs/by_server" --steps 250 --test-every 10 --test-samples 1000 \
        --metrics "$work/$name.csv" "$@" >"$work/out" 2>&1 || { failed=1; cat "$work/out" >&2; }
}

learn equal-sync
learn equal-async --async
learn slow-sync --slow-ms 100
learn slow-async --slow-ms 100 --async

[ $failed = 0 ] || exit 1
plot=("$here/../../examples/plot.py")
[ ! -x /usr/bin/python3 ] || plot=(/usr/bin/python3 "${plot[@]}")
"${plot[@]}" exchange "$out/exchange" "$out/exchange.csv"
"${plot[@]}" accuracy "$out/accuracy" \
    "equal workers" "synchronous=$work/equal-sync.csv" "asynchronous=$work/equal-async.csv" \
    "one worker 100 ms slower" "synchronous=$work/slow-sync.csv" "asynchronous=$work/slow-async.csv"
echo "$out: exchange and accuracy, .svg and .png"
