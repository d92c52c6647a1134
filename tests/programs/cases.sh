# shellcheck shell=sh
# Sourced by tests of programs, after `work` (a folder) is set: run and says, which count in `failed`.
failed=0

# run CODE ARGUMENTS...: it ends with this code within 100 s; what it says is in out and err
run() {
    want=$1
    shift
    timeout 100 "$@" >"$work/out" 2>"$work/err" </dev/null
    code=$?
    [ $code = "$want" ] || {
        echo "FAILED: $*: exit code $code, expected $want"
        cat "$work/out" "$work/err"
        failed=1
    }
}

# says FILE PATTERN
says() {
    grep -qE -- "$2" "$work/$1" || {
        echo "FAILED: no line with '$2' in:"
        cat "$work/$1"
        failed=1
    }
}
