#!/usr/bin/env bash
# The program as users run it: what it refuses, and that runs have the same bits when they should.
#
#     test_train.sh HOOPRUN TRAIN MAKE_DIGITS
set -u
hooprun=$1 train=$2 make_digits=$3
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failed=0 placed=() # placed: a program in front of train
export OMP_NUM_THREADS=1
unset HOOP_ORDER HOOP_TRANSPORT

fail() {
    echo "FAILED: $1"
    failed=1
}

# run RANKS OUT OPTIONS...
run() {
    local ranks=$1 out=$2
    shift 2
    "$hooprun" -n "$ranks" --timeout 100 "${placed[@]}" "$train" --data "$box/data" "$@" >"$out" 2>&1 ||
        { fail "$ranks ranks: $*"; cat "$out"; }
}

# refused CODE WORDS OPTIONS...
refused() {
    local code=$1 words=$2 got=0
    shift 2
    "$train" "$@" >"$box/out" 2>&1 || got=$?
    [ "$got" = "$code" ] && grep -qF -- "$words" "$box/out" && return
    fail "$* returned $got and said:"
    cat "$box/out"
}

mkdir "$box/data" "$box/empty"
"$make_digits" "$box/data" 1500 300 || fail make_digits

refused 2 '--epochs 0: expected a whole number from 1 to' --epochs 0
refused 2 '--batch-size 6.5: expected a whole number' --batch-size 6.5
refused 2 '--model lenet: there is no such model' --model lenet
refused 2 '--optimizer lion: expected sgd or adam' --optimizer lion
refused 2 '--overlap maybe: expected always, never or auto' --overlap maybe
refused 2 '--gamma: no such option' --gamma 1
refused 2 'more: no argument was expected' more
refused 2 'needs --world-size and --rank below it, got 2 and 2' --init-method tcp://127.0.0.1:1 --rank 2 --world-size 2
refused 2 '--lr nan: expected a number from 0 to' --lr nan
refused 2 '--train-samples 1e30: expected a whole number' --train-samples 1e30
refused 2 '--checkpoint: expected a value that is not empty' --checkpoint ''
refused 2 '--rank and --world-size are for --init-method' --rank 0 --world-size 2
refused 2 '--resume auto needs --checkpoint FILE' --resume auto
refused 1 'no train-images-idx3-ubyte in it' --data "$box/empty"
refused 1 'the model cifar takes images of 3 x 32 x 32, the data has 1 x 28 x 28' --data "$box/data" --model cifar
cp -r "$box/data" "$box/mixed"
{ printf '\0\0\10\3\0\0\1\54\0\0\0\10\0\0\0\10' && head -c $((300 * 64)) /dev/zero; } >"$box/mixed/t10k-images-idx3-ubyte"
refused 1 'takes images of 1 x 28 x 28, the data for the test has 1 x 8 x 8' --data "$box/mixed"
refused 1 "$box/none: No such file" --data "$box/data" --resume "$box/none"
# The reason is that of the folder that cannot be made, not that what is below it is missing.
XDG_CACHE_HOME=/sys/kernel/none refused 1 '/sys/kernel/none/hoop/digits-'
grep -q 'No such file' "$box/out" && fail "the digits' folder: $(cat "$box/out")"
for path in /nonexistent/x "$box/empty"; do # before anything has been trained
    refused 1 "$path cannot be written" --data "$box/data" --checkpoint "$path"
    grep -q 'Train Epoch' "$box/out" && fail "$path was refused too late"
done
refused 1 '/dev/full: not all metrics could be written to it' --data "$box/data" --epochs 1 --train-samples 64 \
    --metrics /dev/full
for options in --help "--data $box/data --epochs 1 --train-samples 64"; do
    # shellcheck disable=SC2086
    "$train" $options >/dev/full 2>"$box/out" && fail "what is lost of $options is no failure"
    grep -q 'not all could be written to standard output' "$box/out" || fail "nothing is said of $options lost"
done
"$train" --help | grep -q 'mnist-bn' || fail "--help lists no models"

# N ranks with batches of b are like one with N * b: the same loss at each of 100 updates.
same_losses() { # A B
    paste -d, "$1" "$2" | awk -F, '$1 == "train" {
            n++; d = $5 - $12; if (d < 0) d = -d; if (d > 1e-5 || $3 != $10) { print; bad = 1 }
        } END { exit bad || n != 100 }' || fail "$2 has other losses than $1"
}
run 1 "$box/out" --batch-size 30 --epochs 2 --log-interval 1 --metrics "$box/one.csv"
run 3 "$box/out" --batch-size 10 --epochs 2 --log-interval 1 --metrics "$box/three.csv"
same_losses "$box/one.csv" "$box/three.csv"

# The same for the CIFAR-10 model, with patterns as images: from noise it would learn nothing, and
# differences in rounding would grow with every update.
mkdir "$box/cifar"
for file in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    python3 -c 'import random, sys
random.seed(sys.argv[1])
for i in range(60):
    c = random.randrange(10)
    noise = enumerate(random.randbytes(3072))
    image = ((b & 63) + (c * 19 + k // 32 * (c % 3)) % 192 for k, b in noise)
    sys.stdout.buffer.write(bytes([c, *image]))' $file >"$box/cifar/$file.bin"
done
cifar=(--data "$box/cifar" --lr 0.002 --epochs 1 --log-interval 1)
run 1 "$box/out" "${cifar[@]}" --batch-size 3 --metrics "$box/cifar1.csv"
run 3 "$box/out" "${cifar[@]}" --batch-size 1 --metrics "$box/cifar3.csv"
same_losses "$box/cifar1.csv" "$box/cifar3.csv"

# The same bits with every transport, during backward or after it, and wherever the ranks are: here
# ranks 0 and 2 are on one machine, and 1 is on another.
cat >"$box/placed" <<'TEXT'
#!/bin/sh
HOOP_HOSTID=$((RANK % 2)) exec "$@"
TEXT
chmod +x "$box/placed"
bits=(--model linear --batch-size 25 --epochs 1 --train-samples 900)
for transport in auto tcp; do
    HOOP_ORDER=rank HOOP_TRANSPORT=$transport run 3 "$box/out" "${bits[@]}" --checkpoint "$box/$transport"
done
for overlap in always never; do
    HOOP_ORDER=rank run 3 "$box/out" "${bits[@]}" --overlap $overlap --checkpoint "$box/$overlap"
done
placed=("$box/placed")
HOOP_ORDER=rank run 3 "$box/out" "${bits[@]}" --checkpoint "$box/places"
placed=()
for other in tcp always never places; do
    cmp "$box/auto" "$box/$other" || fail "$other has other bits"
done

# With or without a restart in between the file is the same. Accumulation and warm-up continue, too.
same=(--optimizer adam --lr 0.001 --batch-size 40 --accumulate 2 --warmup 2 --scale-lr --train-samples 800)
run 2 "$box/out" "${same[@]}" --epochs 3 --checkpoint "$box/whole"
run 2 "$box/out" "${same[@]}" --epochs 1 --checkpoint "$box/parts"
run 2 "$box/out" "${same[@]}" --epochs 3 --checkpoint "$box/parts" --resume auto
cmp "$box/whole" "$box/parts" || fail "a training in parts has other bits"
grep -q 'Train Epoch: 1 ' "$box/out" && fail "the training began again"
run 2 "$box/out" "${same[@]}" --epochs 3 --checkpoint "$box/parts" --resume auto
grep -q 'Nothing to train: the checkpoint has 3 epochs, and --epochs is 3' "$box/out" &&
    cmp "$box/whole" "$box/parts" || { fail "a training that was over went on"; cat "$box/out"; }

# A rank is killed in the middle; the job restarts, and goes on from the last checkpoint.
cat >"$box/once" <<'TEXT'
#!/bin/sh
# once FLAG COMMAND...: the first rank 1 that finds no FLAG is killed while it is training.
flag=$1
shift
[ "$RANK" = 1 ] && [ ! -e "$flag" ] || exec "$@"
"$@" &
until grep -q . "$flag.checkpoint" 2>/dev/null; do sleep 0.05; done
: >"$flag"
kill -9 $!
wait $!
TEXT
chmod +x "$box/once"
"$hooprun" -n 2 --timeout 100 --max-restarts 1 "$box/once" "$box/flag" "$train" --data "$box/data" \
    "${same[@]}" --epochs 3 --checkpoint "$box/flag.checkpoint" --checkpoint-every 2 --resume auto \
    --metrics "$box/flag.csv" --log-interval 1 \
    >"$box/out" 2>&1 || { fail "the restarted job"; cat "$box/out"; }
[ -e "$box/flag" ] || fail "no rank was killed"
cmp "$box/whole" "$box/flag.checkpoint" || fail "the restarted job has other bits"
[ "$(grep -c kind "$box/flag.csv")" = 1 ] && awk -F, '$1 == "train" { if ($3 <= last) exit 1; last = $3 }' "$box/flag.csv" ||
    { fail "the metrics of the restarted job come twice"; cat "$box/flag.csv"; }

# Simulates an end after the test of an epoch, but before the checkpoint that says that it is over.
for kind in csv jsonl; do
    once=(--model linear --batch-size 160 --train-samples 800 --epochs 1 --log-interval 1 --metrics "$box/test.$kind")
    run 1 "$box/out" "${once[@]}" --checkpoint "$box/tested"
    LC_ALL=C sed -i 's/"epoch":"1","batches":"0"/"epoch":"0","batches":"5"/' "$box/tested"
    run 1 "$box/out" "${once[@]}" --resume "$box/tested"
    [ "$(grep -c test "$box/test.$kind")" = 1 ] && [ "$(grep -c train "$box/test.$kind")" = 5 ] ||
        { fail "the test comes twice, or what was before it is gone"; cat "$box/test.$kind"; }
done

# Another number of ranks with another batch size goes on from the same image. This simulates that
# the first 400 of 800 images were done.
run 2 "$box/out" --model linear --batch-size 40 --train-samples 800 --epochs 1 --checkpoint "$box/some"
LC_ALL=C sed -i 's/"epoch":"1","batches":"0"/"epoch":"0","batches":"5"/' "$box/some"
run 1 "$box/out" --model linear --batch-size 50 --train-samples 800 --epochs 1 --log-interval 1 --resume "$box/some"
[ "$(grep -c 'Train Epoch: 1 ' "$box/out")" = 8 ] && grep -q 'Train Epoch: 1 \[450/800' "$box/out" ||
    { fail "other ranks do not go on where the first stopped"; cat "$box/out"; }

# With a url instead of a launcher; with unequal ranks, which wait for nothing; with bf16; and what
# is printed and kept.
for rank in 0 1; do
    "$train" --data "$box/data" --init-method "file://$box/place" --rank $rank --world-size 2 \
        --train-samples 999 --batch-size 4 --epochs 1 --model mnist-bn --bf16 --lr 0.05 \
        --metrics "$box/url.jsonl" >"$box/url$rank" 2>&1 &
done
wait
[ -s "$box/url1" ] && fail "rank 1 speaks"
for line in '^Train Epoch: 1 \[8/999 (0%)\]	Loss: [0-9.]*$' '^Train Epoch: 1 \[960/999 (96%)\]	Loss:' \
    '^Test set: Average loss: [0-9.]*, Accuracy: [0-9]*/300 ([0-9.]*%)$' '^Epoch 1 of 1 took [0-9.]*s$' \
    '^Time of rank 0: .* waiting for gradients ' '^Total time= [0-9.]*s$'; do
    grep -q "$line" "$box/url0" || { fail "there is no line $line"; cat "$box/url0"; }
done
[ "$(tail -n 1 "$box/url.jsonl" | python3 -c 'import json, sys; print(json.loads(input())["accuracy"] > 0.6)')" = True ] ||
    { fail "nothing was learnt"; tail -n 3 "$box/url.jsonl"; }

# A rank with fewer batches ends with the same parameters, also where the others add some up. All
# images are the same one, so it does not matter which rank has fewer.
cp -r "$box/data" "$box/same"
python3 - "$box/same" <<'END'
import sys
for name, head, size in ("images-idx3", 16, 28 * 28), ("labels-idx1", 8, 1):
    path = f"{sys.argv[1]}/train-{name}-ubyte"
    data = open(path, "rb").read()
    open(path, "wb").write(data[:head] + data[head:head + size] * ((len(data) - head) // size))
END
for fewer in 0 1; do
    for rank in 0 1; do
        batch=20
        [ $rank != $fewer ] || batch=200
        "$train" --data "$box/same" --init-method "file://$box/place" --rank $rank --world-size 2 --model linear \
            --train-samples 400 --batch-size $batch --accumulate 4 --epochs 1 --lr 0.1 --momentum 0 \
            --checkpoint "$box/fewer$fewer" >"$box/out$rank" 2>&1 || { fail "fewer batches"; cat "$box/out$rank"; } &
    done
    wait
done
python3 - "$box/fewer0" "$box/fewer1" <<'END' || fail "ranks with unequal batches end with other parameters"
import json, struct, sys
def values(path):
    data = open(path, "rb").read()
    head = 8 + struct.unpack("<Q", data[:8])[0]
    begin, end = json.loads(data[8:head])["fc.bias"]["data_offsets"]
    return struct.unpack(f"<{(end - begin) // 4}f", data[head + begin:head + end])
pairs = list(zip(*map(values, sys.argv[1:])))
sys.exit(not pairs or any(abs(a - b) > 1e-5 for a, b in pairs))
END
[ "$failed" = 0 ] && echo "all right"
exit $failed
