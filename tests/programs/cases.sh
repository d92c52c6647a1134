# shellcheck shell=sh
# Sourced by tests of programs. Makes a folder, `work`; functions set `failed`.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
unset RANK WORLD_SIZE LOCAL_RANK HOOP_PROFILE NCCL_TESTS_MIN_BW NCCL_TESTS_DEVICE NCCL_TESTS_SPLIT NCCL_TESTS_SPLIT_MASK

fail() {
    echo "FAILED: $*; it said:"
    cat "$work/out" "$work/err"
    failed=1
}

# run CODE COMMAND...: it ends with this code within 100 s; its output is in out and err
run() {
    want=$1
    shift
    timeout 100 "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ $code = "$want" ] || fail "$*: exit code $code, expected $want"
}

# says FILE PATTERN: a line of the file matches
says() {
    grep -qE -- "$2" "$work/$1" || fail "$1 has no line with '$2'"
}

# rows COUNT [SECOND]: a benchmark has printed so many rows, with 0 wrong elements in the first half
# and SECOND, a pattern, in the second
rows() {
    awk -v want="$1" -v second="^(${2:-0})\$" '!/^#/ {n++; if (NF != 13 || $9 != "0" || $13 !~ second) bad++}
        END {exit !(n == want && bad == 0)}' "$work/out" || fail "expected $1 good rows"
}
