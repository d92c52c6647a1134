#!/bin/sh
# Tests check_layers.sh: the tree passes, and a copy with a mistake of any kind fails.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failures=0

# check WHAT: the copy fails with these words or, without any, passes.
check() {
    "$copy/tests/hygiene/check_layers.sh" >"$copy/out" 2>&1
    got=$?
    if [ -z "$1" ]; then
        [ "$got" = 0 ] && return
    else
        [ "$got" = 1 ] && grep -q "$1" "$copy/out" && return
    fi
    echo "FAILED: returned $got, expected ${1:-a pass}:"
    cat "$copy/out"
    failures=$((failures + 1))
}

# add FILE LINE WHAT: with this line at the end of the file the copy fails.
add() {
    cp "$copy/$1" "$copy/saved"
    echo "$2" >>"$copy/$1"
    check "$3"
    cp "$copy/saved" "$copy/$1"
}

for folder in include lib transports bench examples shims tools tests; do
    cp -R "$root/$folder" "$copy"
done
check ''
add lib/base/clock.h '#include "runtime/service.h"' 'lib/base may include'
add lib/algo/ring.c '#include "exec/engine.h"' 'lib/algo may include'
add lib/net/address.c '#include "control/frame.h"' 'lib/net may include'
add transports/shm.c '#include "membership/membership.h"' 'transports may include'
add examples/hello_allreduce.c '#include "comm/comm.h"' 'examples may include'
add examples/trainer/nn/net.c '#include "ddp.h"' 'examples/trainer/nn may include'
add examples/trainer/nn/cpu/pool.c '#include "nn/cuda/gpu.h"' 'examples/trainer/nn/cpu may include'
add examples/trainer/nn/net.c '#include <cudnn.h>' 'has its home in'
add shims/nccl/nccl_calls.c '#include "base/clock.h"' 'shims may include'
add bench/perf/perf_main.c '#include "base/clock.h"' 'bench may include'
add lib/exec/engine.c '#include <openssl/evp.h>' 'has its home in'
add lib/algo/ring.c '#include <stdio.h>' 'an algorithm is not pure'
add lib/comm/comm.c 'static void nap(void) { sleep(1); }' 'waiting outside'

# A circle within a folder, which the order of the folders does not prevent.
echo '#include "base/there.h"' >"$copy/lib/base/here.h"
echo '#include "base/here.h"' >"$copy/lib/base/there.h"
check 'in a circle'
rm "$copy/lib/base/here.h" "$copy/lib/base/there.h"

# A folder with 13 files.
touch "$copy/lib/base/twelve.h" "$copy/lib/base/thirteen.h"
check 'lib/base has 1[34] files'
rm "$copy/lib/base/twelve.h" "$copy/lib/base/thirteen.h"
check ''
[ "$failures" = 0 ]
