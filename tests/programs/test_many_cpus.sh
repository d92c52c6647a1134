#!/bin/sh
# Programs where there may be more than 1024 CPUs: those that are usable are seen, and used.
#
#     test_many_cpus.sh MANY_CPUS HOOPINFO PERF [DDP_RANK]
set -u
fake=$1 hoopinfo=$2 perf=$3
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"
shift 3

# many NAME COMMAND...: runs it there; a line of the file NAME for each set that it binds to, or that
# is refused
many() {
    note=$work/$1
    shift
    run 0 env LD_PRELOAD="$fake" MANY_CPUS="$note" "$@"
}

many page "$hoopinfo"
says out '^ +may run on +2$'
many perf "$perf" -b 8 -e 8
says out '^#  Rank  0 .* device host \[cpus 3,1400\]$'
for program in "$@"; do
    many other "$program"
done
! cat "$work/page" "$work/perf" "$work/other" 2>/dev/null | grep refused || fail "no room for all CPUs"

# Whatever it finds: ranks that are to outnumber the CPUs are bound to few.
env LD_PRELOAD="$fake" MANY_CPUS="$work/bound" timeout 100 \
    "$hoopinfo" --calibrate "$work/profile" >"$work/out" 2>"$work/err"
says bound '^bound: CPUs 2$'
exit $failed
