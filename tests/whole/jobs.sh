#!/usr/bin/env bash
# Two jobs with the same secret and port, on three machines (network namespaces, machines_net.sh) of
# which they share one, are started in every order. No rank ever gets into the other job: each job
# is right, or refused with an error that names the other job.
#     jobs.sh HOOPRUN JOB_RANK [ROUNDS]
# Without root, or where namespaces are not allowed: exit code 77 with the reason.
set -u

hooprun=$(readlink -f "${1:?usage: jobs.sh HOOPRUN JOB_RANK [ROUNDS]}")
program=$(readlink -f "${2:?usage: jobs.sh HOOPRUN JOB_RANK [ROUNDS]}")
rounds=${3:-5}
here=$(dirname "$(readlink -f "$0")")
# shellcheck source=tests/whole/machines_net.sh
. "$here/machines_net.sh"

passed=0 failed=0
port=0

# machine JOB HOST NODE-RANK ADDRESS [OPTIONS]: two ranks; their output and exit code are files.
machine() {
    local job=$1 host=$2 node=$3 address=$4 code=0
    shift 4
    on "$host" env "HOOP_SECRET_FILE=$work/secret" HOOP_INIT_TIMEOUT_MS=4000 "$hooprun" -n 2 \
        --nnodes 2 --node-rank "$node" --master-addr "$address" --master-port $port "$@" \
        -- "$program" "$job" >"$work/out.$job.$host" 2>&1 </dev/null || code=$?
    echo $code >"$work/code.$job.$host"
}

# together PAUSE "ARGUMENTS OF machine"...: starts them in a random order, some at once, some a
# little later.
together() {
    local start
    while IFS= read -r start; do
        # shellcheck disable=SC2086
        machine $start &
        [ $((RANDOM % 3)) = 0 ] || sleep "0.$((RANDOM % 6))"
    done < <(printf '%s\n' "$@" | shuf)
    wait
}

names_other='another job is|; (a )?process .*listens there|already runs machine'

# fate JOB: prints right, refused or the complaint.
fate() {
    local codes
    codes=$(cat "$work"/code."$1".* | sort -u | tr '\n' ' ')
    if grep -qs merged "$work"/out.*; then
        echo "merged"
    elif [ "$codes" = "0 " ]; then
        echo "right"
    elif grep -Eqs "$names_other" "$work"/out."$1".*; then
        echo "refused"
    else
        echo "job $1 ended with $codes and names no other job"
    fi
}

# judge NAME ALLOWED...: the fates of both jobs are among these.
judge() {
    local name=$1 fates
    shift
    fates="$(fate 1), $(fate 2)"
    if printf '%s\n' "$@" | grep -qxF "$fates"; then
        echo "ok $name: $fates"
        passed=$((passed + 1))
    else
        echo "FAIL $name: $fates"
        tail -n 5 "$work"/out.* | cut -c 1-300
        failed=$((failed + 1))
    fi
    rm -f "$work"/out.* "$work"/code.*
}

need_net
(
    umask 077
    od -An -tx1 -N32 /dev/urandom | tr -d ' \n' >"$work/secret"
)
hosts a b c
for ((round = 1; round <= rounds; round++)); do
    # The jobs differ in where they meet; all else is named alike on all four.
    port=$((20000 + RANDOM % 10000))
    together "1 a 0 10.77.1.1" "1 b 1 10.77.1.1" "2 b 0 10.77.1.2" "2 c 1 10.77.1.2"
    judge "$round, other addresses" "right, right"
    # The jobs differ in their run ids; only one can have the port as long as it needs it.
    port=$((20000 + RANDOM % 10000))
    together "1 a 0 10.77.1.1 --run-id alpha" "1 b 1 10.77.1.1 --run-id alpha" \
        "2 a 0 10.77.1.1 --run-id beta" "2 c 1 10.77.1.1 --run-id beta"
    judge "$round, the same address" "right, right" "right, refused" "refused, right"
done
echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ] || finish 1
finish 0
