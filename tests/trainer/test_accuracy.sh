#!/usr/bin/env bash
# The promised accuracy for the built-in digits: 98 % after 3 epochs with 2 ranks and default
# options, far more than a linear classifier reaches. They are drawn into FOLDER, and kept there.
#
#     test_accuracy.sh HOOPRUN TRAIN FOLDER
set -eu
hooprun=$1 train=$2
export XDG_CACHE_HOME=$3

# accuracy OPTIONS...: that of the last test.
accuracy() {
    "$hooprun" -n 2 "$train" --epochs 3 --log-interval 100 "$@" | tee /dev/stderr |
        sed -n 's/^Test set: .* (\([0-9.]*\)%)$/\1/p' | tail -n 1
}

mkdir -p "$XDG_CACHE_HOME"
linear=$(accuracy --model linear --lr 0.1)
net=$(accuracy)
echo "the net has $net %, a linear classifier $linear %"
awk "BEGIN { exit !($net >= 98 && $linear < 93 && $linear > 60) }"
