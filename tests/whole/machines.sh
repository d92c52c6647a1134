#!/usr/bin/env bash
# Jobs on several machines, which are network namespaces of this one (machines_net.sh): right
# results over IPv4 and IPv6, the right one of two interfaces, and what happens when cables are
# pulled, packets are dropped, ranks are stopped or killed, or secrets are missing or wrong.
#     machines.sh HOOPRUN ALL_REDUCE_PERF [CASE...]
# Without root, or where namespaces are not allowed: exit code 77 with the reason.
set -u

hooprun=$(readlink -f "${1:?usage: machines.sh HOOPRUN ALL_REDUCE_PERF [CASE...]}")
perf=$(readlink -f "${2:?usage: machines.sh HOOPRUN ALL_REDUCE_PERF [CASE...]}")
shift 2
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/whole/machines_net.sh
. "$here/machines_net.sh"

table=(-b 8 -e 1M -f 8 -n 3 -c 1 --no-bound)
table_rows=6                                 # for sizes 8, 64, 512, 4K, 32K, 256K
endless=(-b 8 -e 256K -f 8 -N 0 --no-bound) # until something ends it
dead_after_ms=1500
passed=0 failed=0 skipped=0
pids=() files=() # of the job: on each host a launcher, and its output

# ---- Judging: the first complaint of a case is its result ----------------------------------------

complaint='' reason=''

complain() { [ -n "$complaint" ] || complaint=$1; }
give_up() { [ -n "$reason" ] || reason=$1; }

# says FILE PATTERN WHAT: the file has a line that matches; otherwise complains of WHAT.
says() { grep -Eq -- "$2" "$1" || complain "$3"; }

# right FILE: the table is complete, and has no wrong element.
right() {
    local rows
    rows=$(awk '$1 ~ /^[0-9]+$/ { n++; if ($9 != "0" || $13 != "0") bad++ }
                END { print n + 0, bad + 0 }' "$1")
    [ "$rows" = "$table_rows 0" ] || complain "rows and wrong rows are $rows, not $table_rows 0"
}

# blames FILE RANK PATTERN: the last rank in this rank's error, which is the one that it blames,
# matches.
blames() {
    local sentence last
    sentence=$(grep -aE "^\[$2\] .*Test HOOP failure" "$1" | head -n 1)
    last=$(grep -oE 'ranks? [0-9]+' <<<"$sentence" | tail -n 1 | tr -dc 0-9)
    [[ -n $last && $last =~ ^($3)$ ]] ||
        complain "rank $2 does not blame one of $3: ${sentence:-it says nothing}"
}

# ---- Jobs ----------------------------------------------------------------------------------------

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }

# start HOST NAME COMMAND...: runs it on the host in the background; its output is $work/NAME.
start() {
    local host=$1 name=$2
    shift 2
    on "$host" "$@" >"$work/$name" 2>&1 </dev/null &
    pids+=($!)
    files+=("$work/$name")
}

# job ADDRESS RANKS-PER-HOST HOSTS... -- OPTIONS-OF-HOOPRUN... -- OPTIONS-OF-PERF...
# Words NAME=VALUE in job_env are in every rank's environment, those in env_of[HOST] on one host.
job_env=() job_port=0
declare -A env_of=()
job() {
    local address=$1 ranks=$2 node=0 host job_hosts=() launcher=()
    shift 2
    for (( ; $# > 0; )); do
        [ "$1" = -- ] && break
        job_hosts+=("$1")
        shift
    done
    shift
    for (( ; $# > 0; )); do
        [ "$1" = -- ] && break
        launcher+=("$1")
        shift
    done
    shift
    pids=() files=()
    for host in "${job_hosts[@]}"; do
        # shellcheck disable=SC2086
        start "$host" "out.$host" env "HOOP_SECRET_FILE=$work/secret" \
            "HOOP_DEAD_AFTER_MS=$dead_after_ms" "${job_env[@]}" ${env_of[$host]-} "$hooprun" \
            -n "$ranks" --nnodes ${#job_hosts[@]} --node-rank $node --master-addr "$address" \
            --master-port $job_port "${launcher[@]}" -- "$perf" "$@"
        node=$((node + 1))
    done
}

# ended SECONDS: waits for the whole job; codes[] are its exit codes. A job that hangs is killed.
codes=()
ended() {
    local end pid at
    end=$(($(now_ms) + $1 * 1000))
    codes=()
    for at in "${!pids[@]}"; do
        pid=${pids[at]}
        while kill -0 "$pid" 2>/dev/null && [ "$(now_ms)" -lt $end ]; do
            sleep 0.05
        done
        if kill -0 "$pid" 2>/dev/null; then
            complain "${files[at]##*.} did not end within $1 s"
            kill -9 "$pid"
        fi
        wait "$pid" 2>/dev/null
        codes+=($?)
    done
}

# all_well SECONDS: all of the job has ended well, and rank 0 has printed the right table.
all_well() {
    ended "$1"
    local code
    for code in "${codes[@]}"; do
        [ "$code" = 0 ] || complain "exit codes are ${codes[*]}"
    done
    right "$work/out.a"
}

all_bad() {
    ended "$1"
    local code
    for code in "${codes[@]}"; do
        [ "$code" != 0 ] || complain "exit codes are ${codes[*]}"
    done
}

# running HOST [BYTES]: waits until rank 0, there, has printed the first row of an endless job, or that
# of a size.
running() {
    local tries
    for tries in {1..300}; do
        grep -aqE "^(\[0\])? +${2:-[0-9]+} +[0-9]+ +float" "$work/out.$1" && return 0
        kill -0 "${pids[0]}" 2>/dev/null || break
        [ "$tries" = 300 ] || sleep 0.1
    done
    complain "the job does not come to run"
    return 1
}

# A job on two hosts with two ranks each, 0 and 1 on host a, that runs until something happens.
endless_job() {
    job 10.77.1.1 2 a b -- --tag-output --on-failure=wait -- "${endless[@]}"
    running a
}

# all_blame: after what happened every rank has blamed one of the other host's ranks, in time.
all_blame() {
    local begun took
    begun=$(now_ms)
    all_bad $((dead_after_ms / 1000 + 10))
    took=$(($(now_ms) - begun))
    [ $took -le $((dead_after_ms + 2000)) ] || complain "the last rank ended after $took ms"
    blames "$work/out.a" 0 '2|3'
    blames "$work/out.a" 1 '2|3'
    blames "$work/out.b" 2 '0|1'
    blames "$work/out.b" 3 '0|1'
}

# ---- Cases: right results ------------------------------------------------------------------------

case_two_hosts() {
    hosts a b
    job 10.77.1.1 2 a b -- -- "${table[@]}"
    all_well 60
}

case_three_hosts() {
    hosts a b c
    job 10.77.1.1 1 a b c -- -- "${table[@]}"
    all_well 60
}

case_five_hosts_shared_memory_large() {
    hosts a b c d e
    job 10.77.1.1 2 a b c d e -- -- "${table[@]}" -R 2
    all_well 120
}

case_ipv6() {
    local host
    hosts a b
    for host in a b; do
        ip -n "$net_id-$host" address flush dev eth0 scope global
        ip -n "$net_id-$host" link set eth1 down
    done
    ip -n "$net_id-a" address add fd77:1::1/64 dev eth0 nodad
    ip -n "$net_id-b" address add fd77:1::2/64 dev eth0 nodad
    job fd77:1::1 2 a b -- -- "${table[@]}"
    all_well 60
}

# A host without IPv4, whose ranks are told to use sockets among themselves.
case_ipv6_on_one_machine() {
    hosts a
    ip -n "$net_id-a" address flush dev lo scope host
    ip -n "$net_id-a" address add ::1/128 dev lo nodad
    pids=() files=()
    start a out.a env HOOP_TRANSPORT=tcp "$hooprun" -n 2 "$perf" "${table[@]}"
    all_well 60
}

case_right_interface() {
    hosts a b
    job_env=(HOOP_SOCKET_IFNAME==eth0)
    job 10.77.1.1 2 a b -- -- "${table[@]}"
    all_well 60
}

# The kinds of HOOP_INIT; a file is used twice, and is gone afterwards.
case_tcp_url() {
    hosts a b
    job_env=(HOOP_INIT=tcp://10.77.1.1:"$job_port")
    job 10.77.1.1 2 a b -- -- "${table[@]}"
    all_well 60
}

case_file_url() {
    local round
    hosts a b
    mkdir "$work/meet"
    for round in 1 2; do
        pids=() files=()
        job_env=(HOOP_INIT=file://"$work/meet/here")
        job 10.77.1.1 2 a b -- -- "${table[@]}"
        all_well 60
        [ -z "$(ls -A "$work/meet")" ] || complain "round $round left $(ls -A "$work/meet")"
    done
    rm -rf "$work/meet"
}

# ---- Cases: joins that fail ----------------------------------------------------------------------

# swallow HOST PORTS: drops HOST's answers from these ports, as if a firewall dropped what came in.
swallow() {
    ip -n "$net_id-$1" rule add pref 10 ipproto tcp sport "$2" blackhole 2>/dev/null && return 0
    give_up "this kernel has no routing rules for ports"
    return 1
}

# The hosts can't reach each other: a misses ranks 2 and 3, b lists the addresses that it has tried.
apart() {
    all_bad 15
    says "$work/out.a" 'ranks 2, 3 of 4 did not arrive within 3000 ms' "a does not list ranks 2, 3"
    says "$work/out.b" "$1" "b does not say where it looked"
}

case_wrong_interface() {
    hosts a b
    job_env=(HOOP_SOCKET_IFNAME=eth1 HOOP_INIT_TIMEOUT_MS=3000)
    job 10.77.2.1 2 a b -- --on-failure=wait -- "${table[@]}"
    apart '10\.77\.2\.1'
}

case_dropped_port() {
    hosts a b
    job_env=(HOOP_INIT_TIMEOUT_MS=3000)
    swallow a "$job_port" || return
    job 10.77.1.1 2 a b -- --on-failure=wait -- "${table[@]}"
    apart '10\.77\.1\.1'
}

# Ranks find each other, but a firewall blocks connections to b's data ports.
case_firewall() {
    local begun took
    hosts a b
    swallow b 31000-31099 || return
    job_env=(HOOP_OP_TIMEOUT_MS=6000 HOOP_PORT_RANGE=31000-31099)
    begun=$(now_ms)
    job 10.77.1.1 2 a b -- --tag-output --on-failure=wait -- "${table[@]}"
    all_bad 30
    took=$(($(now_ms) - begun))
    [ $took -le 9000 ] || complain "the last rank ended after $took ms"
    says "$work/out.a" '10\.77\.1\.2:310[0-9][0-9]' "a does not name the address that it cannot reach"
}

case_refused_port() {
    hosts a b
    job_env=(HOOP_INIT_TIMEOUT_MS=3000)
    # this is b's own address, where nobody listens, and a can't serve there
    job 10.77.1.2 2 a b -- --on-failure=wait -- "${table[@]}"
    all_bad 15
    says "$work/out.a" '10\.77\.1\.2' "a does not name the address that is not its own"
    says "$work/out.b" '10\.77\.1\.2' "b does not name the address that it tried"
}

case_no_secret() {
    hosts a b
    env_of=([a]=HOOP_SECRET_FILE= [b]=HOOP_SECRET_FILE=)
    job 10.77.1.1 2 a b -- -- "${table[@]}"
    all_bad 10
    says "$work/out.a" 'HOOP_SECRET_FILE' "a does not say how to give a secret"
    says "$work/out.b" 'HOOP_SECRET_FILE' "b does not say how to give a secret"
}

case_wrong_secret() {
    hosts a b
    job_env=(HOOP_INIT_TIMEOUT_MS=3000)
    write_secret "$work/other"
    env_of=([b]=HOOP_SECRET_FILE=$work/other)
    job 10.77.1.1 2 a b -- --on-failure=wait -- "${table[@]}"
    all_bad 15
    says "$work/out.a" 'ranks 2, 3 of 4 did not arrive' "a does not list ranks 2, 3"
    says "$work/out.b" 'secret' "b does not speak of the secret"
    grep -qiE "$(cat "$work/secret")|$(cat "$work/other")" "$work/out.a" "$work/out.b" &&
        complain "a secret was printed"
}

case_open_secret_file() {
    hosts a b
    cp "$work/secret" "$work/open"
    chmod 644 "$work/open"
    env_of=([a]=HOOP_SECRET_FILE=$work/open [b]=HOOP_SECRET_FILE=$work/open)
    job 10.77.1.1 1 a b -- -- "${table[@]}"
    all_bad 10
    says "$work/out.b" 'open.*(0600|mode|chmod)' "b does not say what is wrong with the file"
}

# ---- Cases: jobs that something happens to -------------------------------------------------------

case_cable_pulled() {
    hosts a b
    endless_job || return
    ip -n "$net_id-b" link set eth0 down
    all_blame
}

case_switch_dead() {
    hosts a b
    endless_job || return
    # the hosts' own interfaces stay up, but nothing arrives
    ip -n "$net_id-sw" link set br0 down
    ip -n "$net_id-sw" link set p1 nomaster
    all_blame
}

# lost_on_the_way SINCE HOSTS: all ranks end in time, and one reports which of the hosts is silent.
lost_on_the_way() {
    local took
    all_bad $((dead_after_ms / 1000 + 10))
    took=$(($(now_ms) - $1))
    [ $took -le $((dead_after_ms * 5 / 4 + 500)) ] || complain "the last rank ended after $took ms"
    cat "$work"/out.? >"$work/out.all"
    says "$work/out.all" "rank [0-9]+ \(pid [0-9]+, host $2\) has acknowledged nothing for [0-9]+ ms" \
        "nobody says that packets are lost"
}

# Hosts b and c are not neighbours in the tree: their heartbeats go by way of a.
case_no_way_between_two() {
    hosts a b c
    job 10.77.1.1 2 a b c -- --tag-output --on-failure=wait -- "${endless[@]}"
    running a 262144 || return # so all links are open
    ip -n "$net_id-b" route add blackhole 10.77.1.3/32
    ip -n "$net_id-c" route add blackhole 10.77.1.2/32
    lost_on_the_way "$(now_ms)" '[bc]'
}

# Small packets pass, and so do heartbeats: the hosts' packets may be larger than the switch allows.
case_large_packets_vanish() {
    local host
    hosts a b
    for host in a b; do
        ip -n "$net_id-$host" link set eth0 mtu 9000 gso_max_segs 1
    done
    ip -n "$net_id-sw" link set p1 mtu 9000
    job 10.77.1.1 1 a b -- --tag-output --on-failure=wait -- "${endless[@]}" -b 4K
    lost_on_the_way "$(now_ms)" '[ab]'
    says "$work/out.all" 'MTU' "nobody mentions the MTU"
}

case_host_stopped() {
    local stopped begun took tries
    hosts a b
    endless_job || return
    stopped=$(rank_pids b "$perf")
    # shellcheck disable=SC2086
    kill -STOP $stopped
    begun=$(now_ms)
    for ((tries = 0; tries < 200; tries++)); do
        [ -z "$(rank_pids a "$perf")" ] && break
        sleep 0.05
    done
    took=$(($(now_ms) - begun))
    [ $took -le $((dead_after_ms + 2000)) ] || complain "the last rank of a ended after $took ms"
    # shellcheck disable=SC2086
    kill -CONT $stopped
    all_bad 15
    blames "$work/out.a" 0 '2|3'
    blames "$work/out.a" 1 '2|3'
}

case_rank_killed() {
    local begun took
    hosts a b
    job 10.77.1.1 2 a b -- --tag-output -- "${endless[@]}"
    running a || return
    kill -9 "$(rank_pid b "$perf" 3)"
    begun=$(now_ms)
    all_bad 10
    took=$(($(now_ms) - begun))
    [ $took -le 1000 ] || complain "the last rank ended after $took ms"
    says "$work/out.b" 'rank 3 \(pid [0-9]+\) was killed by signal 9' "hooprun on b names no rank 3"
    cat "$work/out.a" "$work/out.b" >"$work/out.both"
    says "$work/out.a" 'Test HOOP failure.*rank 3 ' "no rank of a names rank 3"
}

# ---- Cases: endpoints --------------------------------------------------------------------------------

# Nobody listens at the address that stands for all, or at one that was not chosen.
narrow() {
    local at
    for at in $(ports "$1"); do
        case $at in
        "$2":*) ;;
        *) complain "$1 listens at $at" ;;
        esac
    done
}

case_port_range() {
    hosts a b
    endless_job || return
    [ -n "$(ports a)$(ports b)" ] || complain "nobody listens at all: what was looked at?"
    narrow a 10.77.1.1
    narrow b 10.77.1.2
    kill -9 "$(rank_pid b "$perf" 3)"
    all_bad 10
}

case_no_ports_on_one_machine() {
    hosts a
    pids=() files=()
    start a out.a "$hooprun" -n 2 --tag-output "$perf" "${endless[@]}"
    running a || return
    [ -z "$(ports a)" ] || complain "a job of one machine listens at $(ports a | tr '\n' ' ')"
    kill -9 "$(rank_pid a "$perf" 1)"
    all_bad 10
}

# Sends garbage to every port of both hosts, over and over, until the job has ended.
throw_bytes() {
    local host at
    while kill -0 "${pids[0]}" 2>/dev/null; do
        for host in a b; do
            for at in $(ports "$host"); do
                ip netns exec "$net_id-c" timeout 2 bash -c \
                    'head -c 20000 /dev/urandom >"/dev/tcp/$0/$1"' "${at%:*}" "${at##*:}" \
                    2>/dev/null && echo thrown >>"$work/thrown"
            done
        done
    done
}

case_stranger() {
    hosts a b c
    : >"$work/thrown"
    job 10.77.1.1 2 a b -- -- "${table[@]}" -n 400
    throw_bytes
    all_well 120
    [ -s "$work/thrown" ] || complain "nothing was thrown"
    echo "    $(wc -l <"$work/thrown") times 20000 bytes"
}

# When b starts it has a wrong address for rank 0's machine, which is corrected while it searches.
case_name_mended() {
    hosts a b
    knows a '10.77.1.1 node0'
    knows b '10.77.1.77 node0'
    job node0 2 a b -- -- "${table[@]}"
    sleep 2
    knows b '10.77.1.1 node0'
    all_well 30
}

# ---- All of them ---------------------------------------------------------------------------------

write_secret() {
    (
        umask 077
        od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$1"
    )
}

run_case() {
    local name=$1 file
    complaint='' reason='' job_env=() env_of=() pids=() files=()
    job_port=$((20000 + RANDOM % 10000))
    "case_$name"
    unmake
    wait 2>/dev/null
    if [ -n "$reason" ]; then
        echo "skip $name: $reason"
        skipped=$((skipped + 1))
    elif [ -n "$complaint" ]; then
        for file in "$work"/out.*; do
            echo "--- ${file##*/}"
            grep -av '^$' "$file" | tail -n 40 | cut -c 1-300
        done
        echo "FAIL $name: $complaint"
        failed=$((failed + 1))
    else
        echo "ok $name"
        passed=$((passed + 1))
    fi
    rm -f "$work"/out.*
}

need_net
write_secret "$work/secret"
mapfile -t cases < <(declare -F | sed -n 's/^declare -f case_//p')
[ $# != 0 ] || set -- "${cases[@]}"
for name in "$@"; do
    if ! declare -F "case_$name" >/dev/null; then
        echo "machines.sh: there is no case $name; there are: ${cases[*]}" >&2
        finish 2
    fi
done
echo "1..$#"
for name in "$@"; do
    run_case "$name"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] || finish 1
finish 0
