#!/bin/sh
# The descriptors that a communicator of n local ranks may cost a rank: an eventfd, one for each
# other rank, and a connection to the leader. The leader's process has a connection with each other
# rank instead, and none with itself.
#     test_comm_cost.sh HOOPRUN COMM_COST
set -u
comms=20 n=3 own=20 # own: what a process opens once
out=$("$1" -n $n --timeout 60 "$2" $comms) || exit 1
echo "$out"
# shellcheck disable=SC2046 # two numbers
set -- $(echo "$out" | sed -n 's/.*a rank: \([0-9]*\) to \([0-9]*\) descriptors.*/\1 \2/p')
[ "$1" -le $((comms * (n + 1) + own)) ] && [ "$2" -le $((comms * (2 * n - 1) + own)) ]
