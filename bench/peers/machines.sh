#!/usr/bin/env bash
# Collectives over several machines, which are network namespaces of this one, with cables of a given rate:
# compares algorithms of hoop, and Open MPI if its mpicc and mpirun are in PATH.
#
#     machines.sh BUILD_DIR [-m machines] [-n ranks of each] [-l rate|0] [-a "ring auto"] [-c collective]
#                 [-r rounds] [size ...]
#
# Prints the median time of the rounds in microseconds, out of place; the sides are interleaved. rate: for tc, such
# as 1gbit; 0: no limit. Only root can make namespaces. All ranks share the CPUs of this machine: with a rate the
# network is measured, without one the CPUs' work.
set -u
# shellcheck source=bench/help.sh
. "$(dirname "$0")/../help.sh"

usage='usage: machines.sh BUILD_DIR [-m machines] [-n ranks] [-l rate] [-a "ring auto"] [-c collective] [-r rounds] [size ...]'
build=$(readlink -f "${1:?$usage}")
shift
machines=2 each=2 rate=1gbit algos='ring auto' collective=all_reduce rounds=5
while getopts m:n:l:a:c:r: letter; do
    case $letter in
    m) machines=$OPTARG ;;
    n) each=$OPTARG ;;
    l) rate=$OPTARG ;;
    a) algos=$OPTARG ;;
    c) collective=$OPTARG ;;
    r) rounds=$OPTARG ;;
    *) echo "$usage" >&2 && exit 255 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- 1K 16K 64K 256K 1M 4M 16M

here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/whole/machines_net.sh
. "$here/../../tests/whole/machines_net.sh"
need_net
names=()
for ((k = 1; k <= machines; k++)); do names+=("m$k"); done
hosts "${names[@]}"
for ((k = 1; k <= machines; k++)); do
    knows "m$k" "$(for ((j = 1; j <= machines; j++)); do echo "10.77.1.$j m$j"; done)"
    [ "$rate" = 0 ] ||
        ip netns exec "$net_id-m$k" tc qdisc add dev eth0 root tbf rate "$rate" burst 256k latency 50ms || finish 1
done
secret=$(openssl rand -hex 32)
sides=$algos

# Open MPI's launcher reaches a machine by this program in place of ssh.
if command -v mpicc >/dev/null && mpirun --version 2>/dev/null | grep -q 'Open MPI) 5'; then
    mpicc -std=c11 -D_GNU_SOURCE -O2 "$here/mpi_perf.c" -o "$work/mpi_perf" || finish 1
    sides="$algos mpi"
    cat >"$work/agent" <<EOF
#!/bin/bash
while [[ \$1 == -* ]]; do shift; done
host=\$1
shift
exec ip netns exec $net_id-\$host unshare --uts sh -c "echo \$host >/proc/sys/kernel/hostname; \$*"
EOF
    chmod +x "$work/agent"
fi

# one SIDE SIZE: a table, whose last line is used. Small sizes, too, are measured for some milliseconds.
# Fails if a machine does, with the output of all.
one() {
    local k pids=() bytes iterations failed=0
    bytes=$(numfmt --from=iec "$2") && [ "$bytes" -gt 0 ] || return 1
    iterations=$((33554432 / bytes))
    iterations=$((iterations > 10000 ? 10000 : iterations < 10 ? 10 : iterations))
    local table=(-b "$2" -e "$2" -n "$iterations" -w "$((iterations / 3))")
    if [ "$1" = mpi ]; then
        on m1 timeout 100 mpirun --allow-run-as-root --prtemca plm_ssh_agent "$work/agent" --map-by slot \
            --host "$(printf "m%d:$each," $(seq "$machines") | sed 's/,$//')" -n $((machines * each)) \
            --mca btl_tcp_if_include eth0 --mca mpi_yield_when_idle 1 \
            "$work/mpi_perf" -c "$collective" "${table[@]}"
        return
    fi
    for ((k = machines; k >= 1; k--)); do
        HOOP_ALGO=$1 HOOP_SECRET=$secret on "m$k" timeout 100 "$build/tools/hooprun" --nnodes "$machines" \
            --node-rank $((k - 1)) -n "$each" --master-addr 10.77.1.1 "$build/bench/${collective}_perf" \
            "${table[@]}" -c 0 --no-bound >"$work/m$k" 2>&1 </dev/null &
        pids+=($!)
    done
    for k in "${pids[@]}"; do wait "$k" || failed=$?; done
    cat "$work/m1"
    [ $failed = 0 ] && return
    for ((k = 2; k <= machines; k++)); do cat "$work/m$k"; done
    return $failed
}

for ((round = 0; round < rounds; round++)); do
    for bytes in "$@"; do
        for side in $sides; do
            one "$side" "$bytes" >"$work/out" 2>&1 &&
                awk -v key="$bytes $side" '$1 ~ /^[0-9]+$/ && NF > 10 { print key, $6; found = 1 }
                    END { exit !found }' "$work/out" && continue
            echo "machines.sh: $side of $bytes bytes failed, or gave no figure:" >&2
            cat "$work/out" >&2
            finish 1
        done
    done
done >"$work/all"

echo "# $collective, us, $machines machines of $each ranks, cables of $rate"
printf '%10s' bytes
# shellcheck disable=SC2086
printf ' %11s' $sides
echo
for bytes in "$@"; do
    printf '%10s' "$bytes"
    for side in $sides; do
        grep "^$bytes $side " "$work/all" | sort -k3,3n | awk '{ v[NR] = $3 }
            END { printf " %11s", NR ? v[int((NR + 1) / 2)] : "-" }'
    done
    echo
done
finish 0
