#!/bin/sh
# If one of its two processes is killed the other ends with an error.
#
#     test_stream_bare.sh STREAM_BARE
set -u
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

run 0 "$1" -b 100000 -n 3 -c 3
says out '^99999 bytes each way over 3 connections: '

# child PID: waits for its child and prints that
child() {
    tries=0
    until pgrep -P "$1" || [ $((tries += 1)) = 500 ]; do
        sleep 0.02
    done
}

# runs PID: it does, and is not dead and only waits to be reaped
runs() {
    ps -o stat= -p "$1" | grep -q '^[^Z]'
}

# first PROGRAM WHICH: kills one of the two when both have begun; code: how the first one ended
first() {
    timeout 60 "$1" -b 1000000 -n 1000000000 >"$work/out" 2>"$work/err" &
    waits=$!
    parent=$(child $waits)
    other=$(child "$parent")
    kill -9 "$(eval echo "\$$2")"
    wait $waits
    code=$?
}

first "$1" other
[ $code = 1 ] || fail "the second process was killed: exit code $code, expected 1"
says err '^stream_bare: '
first "$1" parent
tries=0
while runs "$other" && [ $((tries += 1)) -lt 1000 ]; do
    sleep 0.02
done
! runs "$other" || { fail "the second process goes on without the first"; kill -9 "$other"; }
exit $failed
