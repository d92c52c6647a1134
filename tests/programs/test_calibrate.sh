#!/bin/sh
# hoopinfo --calibrate: its profile is read, compared and refused as it should be; with one CPU, few
# descriptors, an interruption.
#
#     test_calibrate.sh HOOPINFO
set -u
hoopinfo=$1
PATH=$(dirname "$hoopinfo"):$PATH
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

# explain WHAT...: what --explain says about them
explain() {
    python3 - "$work/out" "$@" <<'END' || failed=1
import json, sys
said = json.load(open(sys.argv[1]))["plan"]
for pair in sys.argv[2:]:
    key, value = pair.split("=", 1)
    assert said[key] == value, (key, said)
END
}

profile=$work/profile
cat >"$profile" <<'END'
# as --calibrate writes it
#
version = 2
machine = a machine
date = 2026-11-22T12:00:00Z
hoop = 0.1.0
memory_sync_ns = 113
memory_sync_ns_per_rank = 40
memory_barrier_ns = 230
memory_barrier_ns_per_rank = 50
memory_moved_ns_per_kib = 3
memory_folded_ns_per_kib = 19
memory_call_ns = 700
memory_read_ns_per_kib = 40
oversubscribed_sync_ns = 1200
oversubscribed_sync_ns_per_rank = 700
oversubscribed_barrier_ns = 9000
oversubscribed_barrier_ns_per_rank = 3000
oversubscribed_moved_ns_per_kib = 3
oversubscribed_folded_ns_per_kib = 60
oversubscribed_call_ns = 700
oversubscribed_read_ns_per_kib = 40
END

# The profile is read if the setting names it, and only then.
run 0 "$hoopinfo" --explain all_reduce --ranks 2 --json
explain profile= profile_digest=
run 0 env HOOP_PROFILE="$profile" "$hoopinfo" --explain all_reduce --ranks 2 --json
explain profile="$profile"
mine=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["plan"]["profile_digest"])' <"$work/out")
run 0 env HOOP_PROFILE="$profile" "$hoopinfo"
says out "profile_digest +$mine\$"

# The choice of algorithms uses its numbers.
sed -E 's/^(memory|oversubscribed)_(.*) = .*/\1_\2 = default/; s/^(.*_barrier_ns) = .*/\1 = 1/
        s/^(.*_sync_ns) = .*/\1 = 9000/' "$profile" >"$work/slow"
run 0 "$hoopinfo" --explain all_reduce --ranks 2 --bytes 4096 --json
explain algo=oneshot
run 0 env HOOP_PROFILE="$work/slow" "$hoopinfo" --explain all_reduce --ranks 2 --bytes 4096 --json
explain algo=direct

# All ranks must have the same numbers, or none joins.
HOOP_PROFILE=$profile; export HOOP_PROFILE
run 1 hooprun -n 2 sh -c '[ $RANK = 0 ] || unset HOOP_PROFILE; exec "$0" --test-rank' "$hoopinfo"
says err "HOOP_PROFILE must be the same on all ranks: it is ($mine on rank 0 .* unset on rank 1 |unset on rank 1 .* $mine on rank 0 )"
run 1 hooprun -n 2 sh -c '[ $RANK = 0 ] || HOOP_PROFILE=$1; exec "$0" --test-rank' "$hoopinfo" "$work/slow"
says err "HOOP_PROFILE must be the same on all ranks: it is .*$mine on rank 0 "
run 0 hooprun -n 2 "$hoopinfo" --test-rank

# A file that is no profile is refused, with file, line, value and what was expected.
# broken WHAT SED-COMMAND
broken() {
    sed -E "$2" "$profile" >"$work/broken"
    run 1 env HOOP_PROFILE="$work/broken" "$hoopinfo" --explain all_reduce --ranks 2
    says err "HOOP_PROFILE $work/broken,? $1"
}
broken 'line [0-9]+: memory_sync_ns is "-7", expected default or a whole number from 1 to' 's/^(memory_sync_ns) =.*/\1 = -7/'
broken 'line [0-9]+: memory_moved_ns_per_kib is "nan", expected' 's/^(memory_moved.*) =.*/\1 = nan/'
broken 'line [0-9]+: oversubscribed_folded_ns_per_kib is "1e300", expected' 's/^(over.*folded.*) =.*/\1 = 1e300/'
broken 'line 3: version is "\.\.\.", expected 2, which this hoop reads' 's/^version.*/version = 1/'
broken 'ends after line [0-9]+, expected oversubscribed_read_ns_per_kib as well' '$d'
# refused FILE WHAT
refused() {
    run 1 env HOOP_PROFILE="$1" "$hoopinfo" --explain all_reduce --ranks 2
    says err "HOOP_PROFILE $1: $2, expected a file that hoopinfo --calibrate wrote"
    run 0 env HOOP_PROFILE="$1" "$hoopinfo" # the page for a bug report comes all the same
    says out "profile_error +HOOP_PROFILE $1: $2"
}
refused "$work/none" ENOENT
refused "$work" 'no regular file'
refused /dev/zero 'no regular file'
mkfifo "$work/pipe"
refused "$work/pipe" 'no regular file'
head -c 20000 /dev/zero >"$work/large"
refused "$work/large" 'more than 16 KiB'

# A path of any length that the system accepts; the page shows its beginning.
long=$work$(printf '/.%.0s' $(seq 1900))/profile
run 0 env HOOP_PROFILE="$long" "$hoopinfo" --explain all_reduce --ranks 2 --json
explain profile_digest="$mine"

# measured WHAT COMMAND...: writes a profile that can be read, and whose "measured" contains WHAT. A
# machine may be too busy to be measured, or have so many CPUs that the one which may be used can't
# crowd them: then it says so, and writes none.
mkdir "$work/here"
made=$work/here/profile
measured() {
    what=$1
    shift
    rm -f "$made"
    timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    says err 'up to 30 s$'
    if [ $code = 1 ] && grep -q 'is the machine busy' "$work/err"; then
        echo "not measured: $what: $(grep busy "$work/err")"
        [ -z "$(ls "$work/here")" ] || failed=1
        return
    fi
    [ $code = 0 ] || { cat "$work/out" "$work/err"; failed=1; }
    python3 - "$work/out" "$made" "$what" <<'END' || { cat "$work/out" "$work/err"; failed=1; }
import json, sys
said = json.load(open(sys.argv[1]))
assert said["profile"]["file"] == sys.argv[2] and len(said["measured"]) == 16, said
lines = dict(line.split(" = ", 1) for line in open(sys.argv[2]).read().splitlines() if " = " in line)
assert all(lines[key] == value for key, value in said["measured"].items()), (lines, said)
assert lines["version"] == "2" and lines["hoop"].count(".") == 2 and lines["date"][10] == "T", lines
assert any(key.startswith(sys.argv[3]) and int(value) >= 0 for key, value in said["measured"].items()
           if value != "default"), said
END
    [ "$(ls "$work/here")" = profile ] || { ls -l "$work/here"; failed=1; }
    run 0 env HOOP_PROFILE="$made" "$hoopinfo" --explain all_reduce --ranks 2 --json
    explain profile="$made"
}
HOOP_PROFILE=$work/broken # no hindrance to a new one
# With sanitizers one measurement is enough.
[ -n "${HOOP_TEST_SAMPLE:-}" ] || measured '' "$hoopinfo" --calibrate "$made" --json
measured oversubscribed taskset -c 0 sh -c "ulimit -n 64; exec '$hoopinfo' --calibrate '$made' --json"

# refuses CODE WHAT ARGUMENTS...: before it measures
refuses() {
    want=$1
    what=$2
    shift 2
    run "$want" "$@"
    says err "$what"
    grep -q 'up to 30 s' "$work/err" && { cat "$work/err"; failed=1; }
}
refuses 1 'none/x: No such file or directory' "$hoopinfo" --calibrate "$work/none/x"
refuses 1 'expected a new name or a regular file' "$hoopinfo" --calibrate "$work"
refuses 1 'expected a new name or a regular file' "$hoopinfo" --calibrate /dev/stdout
refuses 2 'expected to be started by itself' hooprun -n 2 "$hoopinfo" --calibrate "$work/x"
refuses 2 'requires an argument' "$hoopinfo" --calibrate
refuses 2 '--calibrate --json: expected the name of a file' "$hoopinfo" --calibrate --json "$work/x"

# lives PID: it runs; a zombie does not, which stays if process 1 reaps nothing
lives() {
    grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null
}

# An interrupted calibration leaves no file, and no ranks. These don't inherit settings that would
# change what is measured.
cp "$profile" "$made"
env HOOP_CMA=0 HOOP_SPIN_US=0 HOOP_SLEEP_AFTER_US=0 HOOP_NONTEMPORAL=0 "$hoopinfo" --calibrate "$made" >"$work/out" 2>&1 </dev/null &
pid=$!
ranks=
for _ in $(seq 100); do
    ranks=$(cut -d ' ' -f 1 "/proc/$pid/task/$pid/children")
    [ -z "$ranks" ] || ! grep -q hooprun "/proc/$ranks/cmdline" || break
    sleep 0.05
done
grep -zqE '^HOOP_(CMA|SPIN_US|SLEEP_AFTER_US|NONTEMPORAL)=' "/proc/$ranks/environ" && {
    echo "FAILED: settings that change the measurement are in force"; failed=1; }
kill -TERM "$pid"
wait "$pid"
[ $? = 143 ] || { cat "$work/out"; failed=1; }
for _ in $(seq 100); do
    lives "$ranks" || break
    sleep 0.1
done
{ [ -n "$ranks" ] && ! lives "$ranks"; } || { echo "FAILED: ranks '$ranks'"; failed=1; }
cmp "$profile" "$made" || failed=1
[ "$(ls "$work/here")" = profile ] || { ls -l "$work/here"; failed=1; }
exit $failed
