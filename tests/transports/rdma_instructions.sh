#!/usr/bin/env bash
# Counts the instructions that a chunk of 8 bytes costs the sender's and the receiver's end of an rdma
# link, with header, check sum, words and credits, without the device's calls, which are a fake's. By
# callgrind: the load of the machine is of no account.
#     tests/transports/rdma_instructions.sh PROGRAM [MOST]
# PROGRAM: tests/rdma_chunks of a release build. More than MOST at either end is a failure.
set -eu
program=${1:?usage: rdma_instructions.sh PROGRAM [MOST]}
most=${2:-}
command -v valgrind >/dev/null || { echo "skip    valgrind is not installed"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# count FUNCTION CHUNKS: instructions within it, all in all.
count() {
    valgrind --tool=callgrind --callgrind-out-file="$work/out" --collect-atstart=no --separate-callers1='*mem*' \
        --toggle-collect="$1*" "$program" "$2" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    callgrind_annotate --threshold=100 "$work/out" |
        awk '/^ *[0-9,]+ \(.*:/ && !/[:'\'']fake_|pthread_mutex/ { gsub(",", "", $1); sum += $1 }
             END { print sum + 0 }'
}

failed=0
for end in send receive; do
    few=$(count chunks_$end 100)
    many=$(count chunks_$end 1100)
    each=$(((many - few) / 1000))
    echo "$end: $each instructions a chunk${most:+, expected at most $most}"
    if [ "$each" -le 0 ] || [ "$each" -gt "${most:-$each}" ]; then failed=1; fi
done
exit $failed
