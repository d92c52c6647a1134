#!/bin/sh
# If a machine's ranks can't start, the job on the other one ends at once, whichever came first.
#
#     test_hooprun_refusal.sh HOOPRUN HELLO_ALLREDUCE
set -eu
hooprun=$1
program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HOOP_SECRET=5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed5eed

# machine NUMBER PORT PROGRAM: two ranks
machine() {
    HOOP_HOSTID=$1 "$hooprun" --nnodes 2 --node-rank "$1" --master-addr 127.0.0.1 \
        --master-port "$2" -n 2 "$3" >"$work/out$1" 2>"$work/err$1"
}

# trial GOOD BAD: numbers of the machines; the bad one starts a second later, then earlier
trial() {
    for early in "$1" "$2"; do
        port=$((20000 + $$ % 9000 + $1 * 2 + early))
        start=$(date +%s)
        if [ "$early" = "$1" ]; then good_after=0 bad_after=1; else good_after=1 bad_after=0; fi
        (sleep $good_after; machine "$1" $port "$program") & good=$!
        (sleep $bad_after; machine "$2" $port /no/such/program) & bad=$!
        code=0
        wait $good || code=$?
        [ "$code" = 1 ] || { echo "the good machine's code is $code"; cat "$work/err$1"; exit 1; }
        code=0
        wait $bad || code=$?
        [ "$code" = 127 ] || { echo "the bad machine's code is $code"; exit 1; }
        took=$(($(date +%s) - start))
        [ "$took" -lt 20 ] || { echo "the job took $took s"; exit 1; }
        grep -q "cannot run '/no/such/program': No such file or directory" "$work/err$2"
        grep -q "rank [0-3] (pid" "$work/err$1" || { cat "$work/err$1"; exit 1; }
    done
}

trial 0 1
trial 1 0
