# shellcheck shell=bash
# Several machines on one: network namespaces whose cables lead to a switch, also a namespace. The
# machine's own network is not touched, because every interface is made inside a namespace.
#
#     hosts a b ...       makes hosts: eth0 10.77.1.K and fd77:1::K on the switch; eth1 10.77.2.K on
#                         a cable that leads nowhere. K: 1, 2, ... in this order
#     knows HOST TEXT     sets its /etc/hosts, before its first process starts, or later again
#     on HOST COMMAND...  runs a command there, with host name HOST and its own process namespace
#     need_net            ends the script with 77 and the reason if there can be no hosts
#     finish CODE         ends the script and what runs on the hosts, and removes them; any end does
#
# The script that sources this needs a folder $work, and no environment variables that affect jobs.

net_id=hoop$$
net_hosts=()
work=$(mktemp -d)
unset "${!HOOP_@}" "${!SLURM_@}" "${!PMI_@}" "${!OMPI_@}"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RUN_ID

finish() {
    trap - EXIT
    unmake
    rm -rf "$work"
    exit "$1"
}
trap 'finish 1' EXIT INT TERM HUP

# Prints why there can be no hosts here; nothing if there can.
net_refusal() {
    local program
    if [ "$(id -u)" != 0 ]; then
        echo "network namespaces need root"
        return
    fi
    for program in ip ss unshare timeout; do
        if ! command -v "$program" >/dev/null; then
            echo "$program is not installed (iproute2, util-linux, coreutils)"
            return
        fi
    done
    if ! ip netns add "$net_id-try" 2>/dev/null; then
        echo "this container makes no network namespaces"
        return
    fi
    if ! ip link add eth0 netns "$net_id-try" type veth peer name eth1 netns "$net_id-try" \
        2>/dev/null; then
        echo "this kernel makes no pairs of interfaces (veth)"
    elif ! ip -n "$net_id-try" link add br0 type bridge 2>/dev/null; then
        echo "this kernel makes no bridges"
    elif ! on try true; then
        echo "this container makes no process namespaces"
    fi
    ip netns del "$net_id-try"
}

need_net() {
    local refusal
    refusal=$(net_refusal)
    [ -n "$refusal" ] || return 0
    echo "skipped: $refusal"
    finish 77
}

knows() {
    mkdir -p "/etc/netns/$net_id-$1"
    echo "$2" >"/etc/netns/$net_id-$1/hosts"
}

on() {
    local host=$1
    shift
    ip netns exec "$net_id-$host" unshare --uts --pid --fork --kill-child --mount-proc sh -c '
        echo "$0" >/proc/sys/kernel/hostname
        "$@"
        exit $?' "$host" "$@"
}

net_switch() {
    ip netns add "$net_id-sw"
    ip -n "$net_id-sw" link add br0 type bridge
    ip -n "$net_id-sw" link set br0 up
}

# net_host NAME K: makes a host.
net_host() {
    local ns=$net_id-$1
    ip netns add "$ns"
    net_hosts+=("$1")
    ip -n "$ns" link set lo up
    ip link add eth0 netns "$ns" type veth peer name "p$2" netns "$net_id-sw"
    ip link add eth1 netns "$ns" type veth peer name "q$2" netns "$net_id-sw"
    ip -n "$net_id-sw" link set "p$2" master br0 up
    ip -n "$net_id-sw" link set "q$2" up
    ip -n "$ns" address add "10.77.1.$2/24" dev eth0
    ip -n "$ns" address add "fd77:1::$2/64" dev eth0 nodad
    ip -n "$ns" address add "10.77.2.$2/24" dev eth1
    ip -n "$ns" link set eth0 up
    ip -n "$ns" link set eth1 up
}

# Waits, because a switch needs a moment before it forwards.
net_await() {
    local host tries
    for host in "${net_hosts[@]:1}"; do
        for tries in {1..50}; do
            [ "$tries" = 1 ] || sleep 0.1
            ip netns exec "$net_id-$host" timeout 1 bash -c 'echo >/dev/tcp/10.77.1.1/1' 2>&1 |
                grep -q 'refused' && break
        done
    done
}

hosts() {
    local host k=0
    net_hosts=()
    net_switch
    for host in "$@"; do
        k=$((k + 1))
        net_host "$host" $k
    done
    net_await
}

# The pids of a host's processes, as seen from outside.
net_pids() { ip netns pids "$net_id-$1" 2>/dev/null; }

# rank_pids HOST PROGRAM: those of its ranks.
rank_pids() {
    local pid
    for pid in $(net_pids "$1"); do
        [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$2" ] && echo "$pid"
    done
}

# rank_pid HOST PROGRAM RANK
rank_pid() {
    local pid
    for pid in $(rank_pids "$1" "$2"); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "RANK=$3" && echo "$pid"
    done
}

# ports HOST: the ports at which somebody listens there, as "ADDRESS:PORT".
ports() { ip netns exec "$net_id-$1" ss -Hltn | awk '{ print $4 }'; }

unmake() {
    local host pids
    for host in "${net_hosts[@]}" sw; do
        pids=$(net_pids "$host")
        # shellcheck disable=SC2086
        [ -z "$pids" ] || kill -9 $pids 2>/dev/null
        ip netns del "$net_id-$host" 2>/dev/null
        rm -rf "/etc/netns/$net_id-$host"
    done
    rmdir /etc/netns 2>/dev/null
    net_hosts=()
}
