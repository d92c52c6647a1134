#!/usr/bin/env bash
# How long it takes until a loss is noticed. Jobs run on three hosts, a to c (machines_net.sh), with
# two ranks each, 0 to 5. In each case one thing happens, and the time from that to every survivor's
# error is measured.
#     detection.sh HOOPRUN ALL_REDUCE_PERF [CASE...]
# HOOP_DEAD_AFTER_MS applies to the jobs (default: 5000). Prints a table. Fails if a survivor blames
# the wrong rank or takes more than 1.25 times as long as that or, if a rank was killed, a second.
set -u

hooprun=$(readlink -f "${1:?usage: detection.sh HOOPRUN ALL_REDUCE_PERF [CASE...]}")
perf=$(readlink -f "${2:?usage: detection.sh HOOPRUN ALL_REDUCE_PERF [CASE...]}")
shift 2
dead_after_ms=${HOOP_DEAD_AFTER_MS:-5000}
# shellcheck source=tests/whole/machines_net.sh
. "$(dirname "$(readlink -f "$0")")/machines_net.sh"

all_hosts=(a b c)
failed=0

# ---- A job ---------------------------------------------------------------------------------------

# Puts the time in ms in front of every line, when it comes.
stamp() {
    local line
    while IFS= read -r line; do
        echo "$((${EPOCHREALTIME/./} / 1000)) $line"
    done
}

# job BYTES: starts endless sums, and returns when they run.
job() {
    local host node=0 tries port=$((20000 + RANDOM % 10000))
    for host in "${all_hosts[@]}"; do
        on "$host" env HOOP_SECRET_FILE="$work/secret" HOOP_DEAD_AFTER_MS="$dead_after_ms" \
            "$hooprun" --tag-output --on-failure=wait -n 2 --nnodes 3 --node-rank $node \
            --master-addr 10.77.1.1 --master-port $port -- \
            "$perf" -b "$1" -e "$1" -n 5 -N 0 --no-bound \
            </dev/null > >(stamp >"$work/out.$host") 2>&1 &
        node=$((node + 1))
    done
    for tries in {1..300}; do
        grep -aqE '^[0-9]+ (\[0\])? +[0-9]+ +[0-9]+ +float' "$work/out.a" 2>/dev/null && return
        sleep 0.1
    done
    echo "the job did not come to run ($tries looks)"
    return 1
}

pid_of() { rank_pid "${all_hosts[$1 / 2]}" "$perf" "$1"; }

# ---- Cases: what happens to which ranks, and whom the others may blame --------------------------

# happens COMMAND ARGUMENTS...: does what happens; $moment is the time before.
moment=0
happens() {
    moment=$((${EPOCHREALTIME/./} / 1000))
    "$@"
}

# error_of RANK: its error, in which the last rank is the one that is blamed, and when it came.
error_of() {
    grep -ah "^[0-9]* \[$1\] .*Test HOOP failure" "$work/out.${all_hosts[$1 / 2]}" | head -n 1
}

# survive LIMIT-MS RANK=PATTERN...: these ranks fail in time, and blame a rank that matches.
survive() {
    local limit=$1 pair rank line took last least=999999 most=0 blamed=''
    local end=$((SECONDS + 20 + $1 / 500))
    shift
    for pair in "$@"; do
        rank=${pair%%=*}
        while line=$(error_of "$rank") && [ -z "$line" ] && [ $SECONDS -lt $end ]; do
            sleep 0.1
        done
        took=$((${line%% *} - moment))
        last=${line%% bytes are on the way*}
        last=$(grep -oE 'ranks? [0-9]+' <<<"$last" | tail -n 1 | tr -dc 0-9)
        if [ -z "$line" ] || ! [[ $last =~ ^(${pair#*=})$ ]] || [ $took -gt "$limit" ]; then
            echo "FAILED: rank $rank, $took of $limit ms, expected ${pair#*=}: ${line:-nothing}"
            failed=$((failed + 1))
        fi
        least=$((took < least ? took : least)) most=$((took > most ? took : most))
        [[ " $blamed " == *" $last "* ]] || blamed+=" $last"
    done
    blamed=$(tr ' ' '\n' <<<"${blamed# }" | sort -n | xargs)
    printf '| %s | %d .. %d | %s |\n' "${name//_/ }" $least $most "$blamed"
}

killed_ms=1000
silent_ms=$((dead_after_ms * 5 / 4))

case_kill_rank_5() { happens kill -9 "$(pid_of 5)" && survive $killed_ms {0,1,2,3,4}=5; }
case_kill_rank_0() { happens kill -9 "$(pid_of 0)" && survive $killed_ms {1,2,3,4,5}=0; }
case_kill_leader_of_b() { happens kill -9 "$(pid_of 2)" && survive $killed_ms {0,1,3,4,5}=2; }
case_kill_both_of_b() {
    happens kill -9 "$(pid_of 2)" "$(pid_of 3)" && survive $killed_ms {0,1,4,5}='2|3'
}
case_stop_rank_5() { happens kill -STOP "$(pid_of 5)" && survive $silent_ms {0,1,2,3,4}=5; }
case_stop_leader_of_b() { happens kill -STOP "$(pid_of 2)" && survive $silent_ms {0,1,3,4,5}=2; }
case_stop_rank_0() { happens kill -STOP "$(pid_of 0)" && survive $silent_ms {1,2,3,4,5}=0; }
case_stop_both_of_b() {
    happens kill -STOP "$(pid_of 2)" "$(pid_of 3)" && survive $silent_ms {0,1,4,5}='2|3'
}
case_cable_of_b() {
    happens ip -n "$net_id-b" link set eth0 down
    survive $silent_ms {0,1,4,5}='2|3' {2,3}='0|1|4|5'
}
case_cable_of_a() {
    happens ip -n "$net_id-a" link set eth0 down
    survive $silent_ms {0,1}='[2-5]' {2,3,4,5}='0|1'
}
case_switch_drops_b() {
    happens ip -n "$net_id-sw" link set p2 nomaster
    survive $silent_ms {0,1,4,5}='2|3' {2,3}='0|1|4|5'
}
part() {
    ip -n "$net_id-$1" route add blackhole "10.77.1.$4/32"
    ip -n "$net_id-$2" route add blackhole "10.77.1.$3/32"
}
case_no_way_between_a_and_b() { happens part a b 1 2 && survive $silent_ms {0,1,2,3,4,5}='[0-3]'; }
# In the tree these two are not neighbours: their heartbeats go by way of a.
case_no_way_between_b_and_c() { happens part b c 2 3 && survive $silent_ms {0,1,2,3,4,5}='[2-5]'; }
# Small packets pass, and so do heartbeats.
case_large_packets_to_b_vanish() {
    happens ip -n "$net_id-sw" link set p2 mtu 1500
    survive $silent_ms {0,1,2,3,4,5}='[0-5]'
}

# ---- All of them ---------------------------------------------------------------------------------

run_case() {
    local host bytes=32
    hosts "${all_hosts[@]}"
    if [ "$name" = large_packets_to_b_vanish ]; then
        bytes=4M
        for host in 1 2 3; do
            ip -n "$net_id-${all_hosts[host - 1]}" link set eth0 mtu 9000 gso_max_segs 1
            ip -n "$net_id-sw" link set "p$host" mtu 9000
        done
    fi
    if job $bytes; then
        "case_$name"
    else
        cat "$work"/out.?
        failed=$((failed + 1))
    fi
    unmake
    wait 2>/dev/null
    rm -f "$work"/out.?
}

need_net
(umask 077 && od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$work/secret")
mapfile -t cases < <(sed -n 's/^case_\([a-z_0-9]*\)().*/\1/p' "$0")
[ $# != 0 ] || set -- "${cases[@]}"
echo "| what happens | ms to the first and last error | blamed |"
echo "|---|---|---|"
for name in "$@"; do
    run_case
done
finish $((failed != 0))
