#!/bin/sh
# A rank whose cgroup has no more memory is killed by a signal that anybody could have sent: hooprun
# says who may have done it.
#
#     test_hooprun_memory.sh HOOPRUN
set -u
hooprun=$1
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

# group_in ROOT LIMIT: makes a cgroup with this memory limit there, of version 1 or 2
group_in() {
    group=$1/hooprun-test-$$
    mkdir "$group" 2>/dev/null || return 1
    echo 200M 2>/dev/null >"$group/$2" && return
    rmdir "$group"
    return 1
}

group_in /sys/fs/cgroup/memory memory.limit_in_bytes || group_in /sys/fs/cgroup memory.max || exit 77
trap 'rm -rf "$work"; rmdir "$group"' EXIT
[ ! -e "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
# shellcheck disable=SC2016
run 137 sh -c 'echo 0 >"$0/cgroup.procs" && exec "$1" --timeout 30 -n 1 tail /dev/zero' "$group" "$hooprun"
says err '^hooprun: rank 0 \(pid [0-9]+\) was killed by signal 9 \(Killed\): since the start the kernel has killed processes for lack of memory'
run 137 "$hooprun" -n 1 sh -c 'kill -9 $$'
says err '\(Killed\)$'
exit $failed
