#!/bin/sh
# hoopinfo: its page and JSON, a plan, the check of a machine that has all, one CPU, few
# descriptors or no network, a wrong sum, and what it refuses.
#
#     test_hoopinfo.sh HOOPINFO HOOPINFO-WITH-FAULTS
set -u
hoopinfo=$1
faulty=$2
PATH=$(dirname "$hoopinfo"):$PATH # hooprun, for the faulty one
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# run CODE ARGUMENTS...: it ends with this code; what it says is in out and err
run() {
    want=$1
    shift
    timeout 100 "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ $code = "$want" ] || {
        echo "FAILED: $*: exit code $code, expected $want"
        cat "$work/out" "$work/err"
        failed=1
    }
}

# says FILE PATTERN
says() {
    grep -qE -- "$2" "$work/$1" || {
        echo "FAILED: no line with '$2' in:"
        cat "$work/$1"
        failed=1
    }
}

run 0 "$hoopinfo"
for line in '^hoop$' 'transports +inproc shm tcp' '^interfaces$' '^cpus$' 'open files +[0-9u]' \
            'shared memory +works'; do
    says out "$line"
done
run 0 "$hoopinfo" --json
python3 -m json.tool "$work/out" >/dev/null || failed=1
run 0 env HOOP_ALGO=ring "$hoopinfo"
says out 'HOOP_ALGO +ring'

run 0 "$hoopinfo" --explain all_reduce --bytes 8 --ranks 3
says out 'algo +oneshot'
says out 'ranks +3'
run 0 "$hoopinfo" --explain broadcast --bytes 64M --ranks 2 --json
python3 -m json.tool "$work/out" >/dev/null || failed=1
run 1 "$hoopinfo" --explain all_produce
says err "'all_produce'"

run 2 "$hoopinfo" --ranks 0
says err '0: expected a number of ranks from 1 to 512'
run 2 "$hoopinfo" --bytes 12Q
says err '12Q: expected a number'
run 2 "$hoopinfo" please
run 1 sh -c "'$hoopinfo' --settings >/dev/full"

run 0 "$hoopinfo" --test --ranks 3
[ "$(grep -c ' right ' "$work/out")" = 18 ] || { cat "$work/out"; failed=1; }
says out 'hoop works here\.'
export HOOP_TRANSPORT=auto
run 0 taskset -c 0 "$hoopinfo" --test --ranks 2
run 0 sh -c "ulimit -n 64; '$hoopinfo' --test --ranks 3"
run 1 sh -c "ulimit -n 12; '$hoopinfo' --test --ranks 3"
says err 'EMFILE \(raise ulimit -n\)'
run 7 env HOOP_ALGO=ring HOOP_TEST_FAULT=flip:3 "$faulty" --test --ranks 2
says out 'WRONG'
says out 'hoop does NOT work here'
unset HOOP_TRANSPORT
if unshare -n true 2>/dev/null; then
    run 1 unshare -n "$hoopinfo" --test --ranks 2
    says out 'over TCP it does NOT'
    says err 'no way to 127.0.0.1: ENETUNREACH'
fi
exit $failed
