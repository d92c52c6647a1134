#!/usr/bin/env bash
# Compares training on a GPU with training on the CPU: the losses of 20 updates by one rank, and by two ranks on
# the same device, which share its batch. Also checks that a resumed training has the same bits as one that was
# not interrupted.
#
#     trainer_ranks.sh HOOPRUN TRAIN [DEVICE]      (cuda:0)
set -euo pipefail
hooprun=$1 train=$2 device=${3:-cuda:0}
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
export OMP_NUM_THREADS=1

# run NAME RANKS DEVICE OPTIONS...
run() {
    local name=$1 ranks=$2 on=$3
    shift 3
    "$hooprun" -n "$ranks" --timeout 100 "$train" --device "$on" --train-samples 1280 \
        --batch-size $((64 / ranks)) --log-interval 1 --metrics "$box/$name.csv" "$@" >"$box/$name" 2>&1 ||
        { cat "$box/$name"; exit 1; }
}

same_losses() { # NAME NAME
    paste -d, "$box/$1.csv" "$box/$2.csv" | awk -F, -v what="$2 and $1" '$1 == "train" {
            n++; d = $5 - $12; d = d < 0 ? -d : d; most = d > most ? d : most
        } END { printf "%s: %d updates, losses differ by at most %.2g\n", what, n, most
                exit n != 20 || !(most <= 1e-4) }'
}

for model in mnist mnist-bn; do
    run cpu 1 cpu --model $model --epochs 1
    run one 1 "$device" --model $model --epochs 1
    same_losses cpu one
done
run cpu 1 cpu --model mnist --epochs 1
run two 2 "$device" --model mnist --epochs 1
same_losses cpu two
run two_bf16 2 "$device" --model mnist --epochs 1 --bf16

run whole 2 "$device" --optimizer adam --lr 0.001 --accumulate 2 --epochs 2 --checkpoint "$box/whole.st"
run parts 2 "$device" --optimizer adam --lr 0.001 --accumulate 2 --epochs 1 --checkpoint "$box/parts.st"
run parts 2 "$device" --optimizer adam --lr 0.001 --accumulate 2 --epochs 2 --checkpoint "$box/parts.st" --resume auto
cmp "$box/whole.st" "$box/parts.st"
grep -h '^T' "$box/one" "$box/two" | grep -v '^Train Epoch'
echo "right on $device"
