#!/usr/bin/env bash
# The GPU backend on machines that may have no GPU: it runs over miniatures of CUDA's libraries, and
# is compared with the host's backend; and what users are told without module, driver, device or
# memory.
#
#     test_gpu.sh COMPARE_GPU FAKE_MODULE TRAIN MAKE_DIGITS HOOPRUN FAKE_DRIVER
set -u
compare=$1 fake=$2 train=$3 make_digits=$4 hooprun=$5 driver=$6
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failed=0
export OMP_NUM_THREADS=1
unset HOOP_CUDA

fail() {
    echo "FAILED: $1"
    cat "$box/out"
    failed=1
}

# refused CODE WORDS COMMAND...
refused() {
    local code=$1 words=$2 got=0
    shift 2
    "$@" >"$box/out" 2>&1 || got=$?
    [ "$got" = "$code" ] && grep -qF -- "$words" "$box/out" || fail "$* returned $got, expected $code and: $words"
}

mkdir "$box/data" "$box/elsewhere"
"$make_digits" "$box/data" 100 20 || fail make_digits
few=(--data "$box/data" --epochs 1)

"$compare" "$fake" >"$box/out" 2>&1 || fail "the backend over the fake libraries"
# The same with streams that have random delays.
HOOP_CUDA=$driver FAKE_CUDA_SEEN=1 "$compare" "$fake" >"$box/out" 2>&1 || fail "the backend's own streams"
refused 77 'skipped: --device cuda: CUDA finds no device here: cudaErrorNoDevice' env FAKE_GPUS=0 "$compare" "$fake"
FAKE_GPU_MUCH=1 "$compare" "$fake" >"$box/out" 2>&1 || fail "an algorithm that wants much room"
refused 1 'of the 1 algorithms that cuDNN proposes for its forward pass with a batch of' \
    env FAKE_GPU_NO_ALGORITHM=1 "$compare" "$fake"

for wrong in gpu cuda: cuda:x cuda:-1 cuda:1x cuda:9999; do
    refused 2 "--device $wrong: expected cpu, cuda or cuda:N" "$train" --device "$wrong"
done
refused 1 '--device cuda:2: expected a device from 0 to 1' \
    env TRAIN_CUDA="$fake" FAKE_GPUS=2 "$train" "${few[@]}" --device cuda:2
refused 1 'cuda:0 has compute capability 7, expected 8' env TRAIN_CUDA="$fake" FAKE_GPU_MAJOR=7 "$train" "${few[@]}" --device cuda
refused 1 'no memory on cuda:0 for a batch of 65536 images' \
    env TRAIN_CUDA="$fake" "$train" "${few[@]}" --device cuda --batch-size 65536
refused 1 "there is no $box/none.so: it is built where nvcc, cuDNN and cuBLAS are" \
    env TRAIN_CUDA="$box/none.so" "$train" "${few[@]}" --device cuda
cp "$train" "$box/elsewhere/train"
refused 1 "there is no $box/elsewhere/train_cuda.so" env LD_LIBRARY_PATH="$(dirname "$train")/../.." \
    "$box/elsewhere/train" "${few[@]}" --device cuda
: >"$box/empty.so"
refused 1 'empty.so' env TRAIN_CUDA="$box/empty.so" "$train" "${few[@]}" --device cuda
# Without a CUDA driver for hoop, gradients can't be on the device.
refused 1 'not supported by this version' env TRAIN_CUDA="$fake" HOOP_CUDA=off "$train" "${few[@]}" --device cuda

# Whole trainings over both fakes have the losses of the CPU, with one rank and with two; a resumed
# one has the same bits.
run() { # NAME RANKS OPTIONS...
    local name=$1 ranks=$2
    shift 2
    TRAIN_CUDA=$fake HOOP_CUDA=$driver FAKE_CUDA_SEEN=1 "$hooprun" -n "$ranks" --timeout 100 "$train" --data "$box/data" \
        --log-interval 1 --train-samples 48 --test-batch-size 20 --metrics "$box/$name.csv" "$@" >"$box/out" 2>&1 || fail "$name: $*"
}
run cpu 1 --epochs 1 --batch-size 16
for ranks in 1 2; do
    run "gpu$ranks" $ranks --epochs 1 --batch-size $((16 / ranks)) --device cuda
    paste -d, "$box/cpu.csv" "$box/gpu$ranks.csv" | awk -F, '$1 == "train" { n++ }
            $1 ~ /^t/ { d = $5 - $12; if (d > 1e-5 || d < -1e-5) { print; bad = 1 } }
            END { exit bad || n != 3 }' || fail "$ranks ranks on a device have other losses than the CPU"
done
# Ranks are spread evenly over devices.
TRAIN_CUDA=$fake FAKE_GPUS=2 FAKE_GPU_MAJOR=7 "$hooprun" -n 3 --on-failure=wait --timeout 100 "$train" "${few[@]}" \
    --device cuda >"$box/out" 2>&1 && fail 'a device that is too old'
for rank in 0 1 2; do
    grep -q "rank $rank: --device cuda: cuda:$((rank % 2)) has" "$box/out" || fail "rank $rank has another device"
done
same=(--model mnist-bn --optimizer adam --lr 0.001 --batch-size 8 --accumulate 2 --bf16 --device cuda)
run whole 2 "${same[@]}" --epochs 2 --checkpoint "$box/whole"
run parts 2 "${same[@]}" --epochs 1 --checkpoint "$box/parts"
run parts 2 "${same[@]}" --epochs 2 --checkpoint "$box/parts" --resume auto
cmp "$box/whole" "$box/parts" || fail "a training in parts has other bits"

# The real module: without a driver it reports that, and nothing else.
if [ ! -e /dev/nvidiactl ]; then
    refused 1 'CUDA finds no device here: cudaError' "$train" "${few[@]}" --device cuda
    refused 77 'skipped: --device cuda: CUDA finds no device here' "$compare" "$(dirname "$train")/train_cuda.so"
fi
"$train" "${few[@]}" --device cpu --dry-run >"$box/out" 2>&1 || fail "train on the CPU"
exit $failed
