# shellcheck shell=bash
# Several machines on one: network namespaces whose cables end in a switch, a namespace too. Nothing
# of the machine's own network is touched: every interface is born inside a namespace.
#
#     hosts a b ...       makes them: eth0 10.77.1.K and fd77:1::K on the switch; eth1 10.77.2.K on a
#                         cable that leads nowhere. K: 1, 2, ... in this order
#     knows HOST TEXT     its table of names (/etc/hosts); before the first process there, or again
#     on HOST COMMAND...  runs a command there, with host name HOST and processes of its own
#     need_net            ends the script with 77 and the reason where there can be no hosts
#     finish CODE         ends it, and what runs in the hosts, and removes them; so does any end
#
# For whoever sources it: a folder $work, and nothing in the environment that decides about a job.

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

# Why there can be no hosts here; nothing when there can.
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

# net_host NAME K
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

# A switch needs a moment before it forwards.
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

# Outside numbers of the processes of a host.
net_pids() { ip netns pids "$net_id-$1" 2>/dev/null; }

# rank_pids HOST PROGRAM: of those, the ranks.
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

# ports HOST: what is listened at there, "ADDRESS:PORT" each.
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
