#!/bin/sh
# Shows what processes that hang are doing, as far as it can be seen: their threads, system calls,
# comms and streams.
#     show_hang.sh PID...
set -u

for pid in "$@"; do
    echo "---- process $pid"
    for thread in "/proc/$pid/task"/*; do
        echo "thread ${thread##*/} $(cat "$thread/comm"): $(cat "$thread/wchan") $(cat "$thread/syscall")"
        cat "$thread/stack" # readable by root only
    done 2>/dev/null
    if command -v gdb >/dev/null; then
        timeout 60 gdb --batch --nx -p "$pid" -ex 'thread apply all backtrace' 2>/dev/null |
            grep -e '^Thread' -e '^#'
    fi
done
# This comes last: a process that is asked waits for the lock of its streams.
hoopinfo=$(dirname "$(readlink "/proc/$1/exe")")/../tools/hoopinfo
[ ! -x "$hoopinfo" ] || timeout 30 "$hoopinfo" --job --json
