#!/usr/bin/env bash
# Every strategy learns with three workers, and those that differ only in where they add find the
# same.
#
#     test_strategies.sh HOOPRUN MAKE_DIGITS BY_RING BY_SERVER BY_MODEL BY_THREADS
set -u
hooprun=$1 make_digits=$2 ring=$3 server=$4 model=$5 threads=$6
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failed=0
export OMP_NUM_THREADS=1
unset "${!HOOP_@}"
"$make_digits" "$box" 1500 300 || exit 1
options=(--data "$box" --batch-size 16 --steps 25 --lr 0.05 --momentum 0.9)

fail() {
    echo "FAILED: $1"
    failed=1
}

# learns NAME COMMAND...: its last test has at least 50 %; leaves that test's line in $box/NAME.
learns() {
    local name=$1
    shift
    "$@" "${options[@]}" >"$box/out" 2>&1 || fail "$*"
    grep '^Test set' "$box/out" | tail -n 1 >"$box/$name"
    awk -F'[(%]' '{ good = $2 >= 50 } END { exit !good }' "$box/$name" || { fail "$name learnt little"; cat "$box/out"; }
}

# same A B: equal, except for rounding in another order.
same() {
    sed 's/.*loss: \([0-9.]*\),.*/\1/' "$box/$1" "$box/$2" |
        awk '{ d = $1 - d } END { exit !(NR == 2 && d < 0.01 && d > -0.01) }' || fail "$1 finds something else than $2"
}

run=("$hooprun" --timeout 100)

HOOP_ORDER=rank learns ring "${run[@]}" -n 3 "$ring"
learns threads "$threads" --threads 3
learns server "${run[@]}" -n 4 "$server"
same server threads
same ring threads
options+=(--batch-size 48) # of all
learns model "${run[@]}" -n 3 "$model"
learns whole "$model"
cmp "$box/model" "$box/whole" || fail "a net that is cut finds something else than a whole one"
same whole threads

# With one worker no gradient is outdated.
options+=(--batch-size 16 --steps 90 --momentum 0.5)
learns async "${run[@]}" -n 2 "$server" --async
learns alone "$server"
cmp "$box/async" "$box/alone" || fail "a server with one worker finds something else than training alone"

options+=(--steps 5)
# Only the exchange; several workers that do not wait for each other, one of them slow; what is
# refused.
"${run[@]}" -n 3 "$server" "${options[@]}" --exchange | grep -q '^by_server: 3 ranks, 5 steps, ' || fail "--exchange"
"${run[@]}" -n 4 "$server" "${options[@]}" --async --slow-ms 5 | grep -q '^by_server --async: 4 ranks, 5 steps, ' || fail "--slow-ms"
"$ring" "${options[@]}" --model mnist-bn 2>&1 | grep -q 'mnist-bn: running averages are not shared' || fail mnist-bn
"${run[@]}" -n 5 "$model" "${options[@]}" 2>&1 | grep -q 'cannot be cut into 5 parts: it has 4 layers' || fail "5 parts"
"$ring" --steps 5 -lr 0.1 2>&1 | grep -q -- '-lr: no such option' || fail "-lr"
"$ring" "${options[@]}" --metrics /dev/full >/dev/null 2>"$box/err" && fail "metrics that are lost are no failure"
grep -q '/dev/full: not all metrics could be written to it' "$box/err" || fail "nothing is said of metrics that are lost"
"$ring" --steps none 2>&1 | grep -q -- '--steps none: expected a whole number' || fail "--steps"
[ $failed = 0 ] && echo "all right"
exit $failed
