#!/bin/sh
# Dependencies point down only, and each outside header has one home (docs/architecture.md).
set -u
cd "$(dirname "$0")/.." || exit 1
failed=0

# Lines "file:line:header" of every #include in the named folders.
includes() {
    find "$@" -name '*.[ch]' -exec grep -HnoE '^ *# *include *[<"][^>"]+[>"]' {} + |
        sed -E 's/# *include *//'
}

# refuse WHY: the lines on stdin are not allowed.
refuse() {
    found=$(cat)
    if [ -n "$found" ]; then
        printf 'FAILED: %s\n%s\n' "$1" "$found"
        failed=1
    fi
}

# home HEADERS FILES: an outside header that matches is included only by files that match.
home() {
    includes include lib transports bench examples tools tests | grep -E ":[<\"]($1)" |
        grep -vE "^($2):" >"$lines"
    refuse "<$1> has its home in $2" <"$lines"
}

# only FOLDER HEADERS: of our own headers, the folder's files include none but those that match.
only() {
    includes "$1" | grep -E ':"' | grep -vE ":\"($2)\"" >"$lines"
    refuse "$1 may include $2 only" <"$lines"
}

lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

home 'uv\.h' 'lib/service\.c|transports/tcp[^/]*\.c'
home 'openssl/' 'lib/base/auth\.c'
home 'infiniband/' 'transports/rdma[^/]*\.c'
home 'cuda' 'lib/[^/]*cuda[^/]*\.c'
home 'cmocka\.h' 'tests/.*'
home 'mpi\.h' 'bench/mpi_[^/]*\.c'
home 'gloo/' 'bench/gloo_[^/]*\.cc'

only include 'nothing of ours'
only lib/base '(base/[a-z_]+|hoop)\.h'
only lib/algo '(algo|base)/[a-z_]+\.h'
only transports '((transports|base)/[a-z_]+|memory|signature|watch)\.h'
only examples 'hoop\.h'
only tools '(hoop|hooprun_[a-z]+)\.h'
only bench '(hoop|perf|perf_[a-z]+)\.h'
includes examples tools bench | grep -E ':<(base|algo|transports|comm|board|engine)' >"$lines"
refuse "a program looks inside the library" <"$lines"

# An algorithm is pure: no I/O, no memory, no clock, no threads.
includes lib/algo | grep -E ':<(stdio|stdlib|time|unistd|pthread|stdatomic|sys/.*)' >"$lines"
refuse "an algorithm is not pure" <"$lines"

# Only wait.c waits for ranks. board.c waits for one that is writing down a failure, which takes it a
# few instructions; service.c for its own thread.
find lib transports -name '*.c' -exec grep -HnE \
    '(^|[^_a-z])(sched_yield|nanosleep|usleep|sleep|p?poll|epoll_wait|pthread_cond_(timed)?wait) *\(' \
    {} + | grep -vE '^lib/(wait|board|service)\.c:' >"$lines"
refuse "waiting outside wait.c" <"$lines"
exit $failed
