# shellcheck shell=sh
# Sourced by scripts that compare: is this machine quiet enough to measure now?

# The steal and busy time of all CPUs so far, in ticks: "steal busy".
quiet_ticks() {
    awk '/^cpu /{print $9 + 0, $2 + $3 + $4 + $7 + $8 + $9; exit}' /proc/stat
}

# True if nothing else runs: in 0.3 s there are no other runnable tasks, no stolen time and no busy CPUs.
quiet_now() {
    # shellcheck disable=SC2046
    set -- $(quiet_ticks)
    quiet_steal=$1
    quiet_busy=$2
    sleep 0.3
    # shellcheck disable=SC2046
    set -- $(quiet_ticks)
    quiet_running=$(awk '{split($4, n, "/"); print n[1]}' /proc/loadavg)
    [ $(($1 - quiet_steal)) -le 1 ] && [ $(($2 - quiet_busy)) -le 6 ] && [ "$quiet_running" -le 2 ]
}

# Waits for a quiet moment, at most the given number of seconds. If none comes prints that and returns 1.
quiet_wait() {
    quiet_left=$(($1 * 3))
    while [ "$quiet_left" -gt 0 ]; do
        if quiet_now; then
            return 0
        fi
        quiet_left=$((quiet_left - 1))
    done
    echo "# a round was skipped: other work is running on this machine" >&2
    return 1
}

# The median of the numbers on stdin, one per line; "none" if there are none.
quiet_median() {
    sort -g | awk '{v[NR] = $1} END {
        if (NR == 0) print "none"
        else if (NR % 2) print v[(NR + 1) / 2]
        else print (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# The smallest of the numbers on stdin.
quiet_fastest() {
    sort -g | awk 'NR == 1 {print; some = 1} END {if (!some) print "none"}'
}
