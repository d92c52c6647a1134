#!/bin/sh
# Dependencies point down only, and each outside header has one home (docs/inside/architecture.md).
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0

lines=$(mktemp)
all=$(mktemp)
trap 'rm -f "$lines" "$all"' EXIT
folders='include lib transports bench examples shims tools tests'
# shellcheck disable=SC2086
find $folders -name '*.[ch]' -exec grep -HnoE '^ *# *include *[<"][^>"]+[>"]' {} + |
    sed -E 's/# *include *//' >"$all"

# Lines "file:line:header" of every #include in the named folders.
includes() {
    printf '^%s/\n' "$@" | grep -f - "$all"
}

# refuse WHY: fails if there are lines on stdin, which are not allowed.
refuse() {
    found=$(cat)
    if [ -n "$found" ]; then
        printf 'FAILED: %s\n%s\n' "$1" "$found"
        failed=1
    fi
}

# home HEADERS FILES: only files that match FILES may include outside headers that match HEADERS.
home() {
    grep -E ":[<\"]($1)" "$all" | grep -vE "^($2):" >"$lines"
    refuse "<$1> has its home in $2" <"$lines"
}

# only FOLDER HEADERS: of hoop's headers, files in the folder may only include those that match.
only() {
    includes "$1" | grep -E ':"' | grep -vE ":\"($2)\"" >"$lines"
    refuse "$1 may include $2 only" <"$lines"
}

# Pairs "file included". A file, its header and its X_inside.h count as one. Without circles of
# them each can be read after those below it.
arrows() {
    includes "$@" | grep -E ':"' | sed -E 's/^lib\///; s/\.[ch]:[0-9]+:"/ /; s/\.h"$//; s/_inside//g' |
        sort -u
}

home 'uv\.h' 'lib/runtime/service\.c'
home 'openssl/' '(lib/base/crypto|lib/net/encrypt)\.c'
home 'infiniband/' '(transports/rdma/[^/]*|tests/vm/least)\.c'
home '(cuda|cublas|cudnn)[^/"]*\.h' '(tests/memory/[^/]*cuda[^/]*\.c|examples/trainer/nn/cuda/gpu\.h)'
home 'cmocka\.h' 'tests/.*'
home 'oneapi/' 'examples/trainer/nn/cpu/(affine|patches)\.c'
home 'zlib\.h' '(examples/trainer/data/idx|tests/trainer/test_data)\.c'
home 'mpi\.h' 'bench/peers/mpi_[^/]*\.c'
home 'gloo/' 'bench/peers/gloo_[^/]*\.cc'

# The library's folders from the ground up: each may use itself and those to its right.
only include 'nothing of ours'
only lib/base '(base/[a-z_]+|hoop)\.h'
only lib/reduce '((reduce|base)/[a-z_]+|hoop)\.h'
only lib/runtime '(runtime|base)/[a-z_]+\.h'
only lib/memory '(memory|runtime|base)/[a-z_]+\.h'
only lib/algo '(algo|base)/[a-z_]+\.h'
only lib/cost '(cost|algo|runtime|base)/[a-z_]+\.h'
only lib/net '(net|runtime|base)/[a-z_]+\.h'
only lib/control '(control|net|runtime|base)/[a-z_]+\.h'
only lib/rendezvous '(rendezvous|control|net|runtime|base)/[a-z_]+\.h'
only transports '(transports(/check|/tcp|/rdma)?|memory|net|runtime|reduce|base)/[a-z_]+\.h'
only lib/tree '(tree|rendezvous|control|net|memory|runtime|base)/[a-z_]+\.h'
only lib/membership '(membership|tree|rendezvous|control|net|transports|memory|runtime|base)/[a-z_]+\.h'
only lib/survivors '(survivors|membership|tree|rendezvous|control|net|runtime|base)/[a-z_]+\.h'
only lib/exec '(exec|membership|cost|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/transfer '(transfer|exec|membership|cost|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/staging '(staging|transfer|exec|membership|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/plan '(plan|staging|transfer|exec|membership|cost|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/operation '(operation|plan|staging|transfer|exec|membership|cost|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/comm '(comm|operation|plan|staging|transfer|exec|membership|rendezvous|algo|transports|memory|reduce|net|runtime|base)/[a-z_]+\.h'
only lib/stream '(stream|comm|operation|plan|staging|transfer|exec|membership|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/device '(device|stream|comm|operation|plan|staging|transfer|exec|membership|algo|transports|memory|reduce|runtime|base)/[a-z_]+\.h'
only lib/birth '(birth|stream|comm|operation|plan|staging|transfer|exec|survivors|membership|rendezvous|transports|net|runtime|base)/[a-z_]+\.h'
only lib/inspect '(inspect|stream|comm|operation|plan|staging|transfer|exec|membership|rendezvous|cost|algo|transports|memory|reduce|net|runtime|base)/[a-z_]+\.h'
only lib/api '(api|inspect|birth|device|stream|comm|operation|plan|staging|transfer|exec|membership|rendezvous|cost|algo|transports|memory|reduce|net|runtime|base)/[a-z_]+\.h'
only examples '(hoop|problem|device|module|bf16|ddp|options|report|peers|study|(data|nn|nn/cpu|nn/cuda|checkpoint)/[a-z_]+)\.h'
only examples/trainer/data '(problem|data/[a-z_]+)\.h'
only examples/trainer/nn '(problem|device|(nn|nn/cpu|nn/cuda|data)/[a-z_]+)\.h'
only examples/trainer/nn/cpu '(nn|nn/cpu)/[a-z_]+\.h'
only examples/trainer/nn/cuda '(nn|nn/cuda)/[a-z_]+\.h'
only examples/trainer/checkpoint '(problem|(checkpoint|nn|data)/[a-z_]+)\.h'
only shims '(hoop|nccl/nccl_[a-z]+)\.h'
only tools '(hoop|hooprun/hooprun_[a-z]+|hoopinfo/[a-z]+)\.h'
only bench '(hoop|perf/perf|perf/perf_[a-z]+)\.h'
includes examples shims tools bench | grep -E ':<(base|algo|transports|comm|exec)/' >"$lines"
refuse "a program looks inside the library" <"$lines"

includes examples/trainer examples/strategies | grep -E ':[<"]hoop\.h' |
    grep -vE '^examples/(trainer/ddp|strategies/peers)\.c:' >"$lines"
refuse "of the trainer only ddp.c knows hoop, of the strategies only peers.c" <"$lines"

# tsort(1) prints the members of every circle that it finds; a name that is paired with itself is
# not a circle.
arrows lib transports |
    tsort 2>&1 >/dev/null | sed 's/^tsort: //' >"$lines"
refuse "files include each other in a circle" <"$lines"

# An algorithm is pure: no I/O, no memory, no clock, no threads.
includes lib/algo | grep -E ':<(stdio|stdlib|time|unistd|pthread|stdatomic|sys/.*)' >"$lines"
refuse "an algorithm is not pure" <"$lines"

# Only runtime/wait.c waits for ranks. board.c waits for one that is writing a failure down, which
# takes a few instructions, and service.c for its own thread.
find lib transports -name '*.c' -exec grep -HnE \
    '(^|[^_a-z])(sched_yield|nanosleep|usleep|sleep|p?poll|epoll_wait|pthread_cond_(timed)?wait) *\(' \
    {} + | grep -vE '^lib/(runtime/wait|exec/board|runtime/service)\.c:' >"$lines"
refuse "waiting outside runtime/wait.c" <"$lines"

# A folder must be small enough to be read as a whole.
for folder in lib/* transports transports/*; do
    files=$(find "$folder" -maxdepth 1 -name '*.[ch]' 2>/dev/null | wc -l)
    [ "$files" -le 12 ] || echo "$folder has $files files"
done >"$lines"
refuse "more than 12 files in one folder" <"$lines"
exit $failed
