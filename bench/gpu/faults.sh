#!/usr/bin/env bash
# Runs device_faults and checks how it ends: the last rank is killed, all others are right. With calls that wait,
# with calls ahead of their stream, and with graphs.
#
#     faults.sh HOOPRUN DEVICE_FAULTS [BYTES of a sum] [RANKS]      (4 MiB, 3)
set -uo pipefail
hooprun=$1 faults=$2 bytes=${3:-4194304} ranks=${4:-3}
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0

# by WORDS COMMAND...
by() {
    local words=$1 code=0
    shift
    "$@" -e "$bytes" >"$out" 2>&1 || code=$?
    [ $code != 77 ] || { cat "$out"; exit 77; }
    if [ $code = 137 ] && [ "$(grep -c ': right$' "$out")" = $((ranks - 1)) ]; then
        printf '%s: ' "$words"
        grep -m 1 ': right$' "$out"
    else
        printf '%s: exit code %d\n' "$words" $code
        cat "$out"
        failed=1
    fi
}

run=("$hooprun" --on-failure=wait -n "$ranks" --timeout 50 "$faults")
by "calls" env HOOP_CUDA_AHEAD=0 "${run[@]}"
by "calls, launched" env HOOP_ALGO=slab "${run[@]}"
by "calls ahead" env HOOP_CUDA_AHEAD=1 "${run[@]}"
by "graphs" "${run[@]}" -G
by "calls, behind a kernel that fails" env HOOP_CUDA_AHEAD=0 "${run[@]}" -B
by "calls, behind a kernel that has failed" env HOOP_CUDA_AHEAD=0 "${run[@]}" -BB
exit $failed
