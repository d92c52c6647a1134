#!/bin/sh
# hooprun --nccl: a program that finds its own NCCL by DT_RPATH, like PyTorch, gets the shim; if
# hoop was built without the shim, hooprun says so.
#     test_hooprun_nccl.sh HOOPRUN NCCL_VERSION LIBHOOP
set -eu
hooprun=$1
program=$2
libhoop=$3
case $(readlink -f "$libhoop") in *[' :']*) echo "skipped: the shim of this build cannot be preloaded"; exit 77 ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }
unset LD_PRELOAD
# shellcheck disable=SC2016

readelf -d "$program" | grep -q '(RPATH)' || fail "the program has no DT_RPATH"
[ "$("$hooprun" "$program")" = 1 ] || fail "without --nccl: not its own library"
[ "$("$hooprun" --nccl -n 2 "$program")" = "$(printf '23007\n23007')" ] || fail "--nccl: not the shim"

# Libraries that were preloaded before stay preloaded, behind it.
preloaded=$(LD_PRELOAD=libm.so.6 "$hooprun" --nccl sh -c 'echo "$LD_PRELOAD"')
case $preloaded in /*/libnccl.so.2:libm.so.6) ;; *) fail "LD_PRELOAD is '$preloaded'" ;; esac

# refuses LIBHOOP'S-FOLDER PATTERN: with that libhoop hooprun prints this, and runs nothing.
refuses() {
    code=0
    LD_LIBRARY_PATH=$1 "$hooprun" --nccl echo ran >"$work/out" 2>&1 || code=$?
    [ $code = 125 ] && grep -q -e "$2" "$work/out" && ! grep -q ran "$work/out" ||
        { cat "$work/out"; fail "$1: code $code"; }
}

# Like an installation: first without a shim, then with it, then where it can't be preloaded.
mkdir -p "$work/lib/hoop"
cp "$libhoop" "$work/lib/libhoop.so.0"
refuses "$work/lib" "--nccl: there is no $work/lib/hoop/libnccl.so.2.*-Dnccl=enabled"
cp "${preloaded%%:*}" "$work/lib/hoop/"
preloaded=$(LD_LIBRARY_PATH=$work/lib "$hooprun" --nccl sh -c 'echo "$LD_PRELOAD"')
[ "$preloaded" = "$work/lib/hoop/libnccl.so.2" ] || fail "installed: LD_PRELOAD is '$preloaded'"
found=$(LD_LIBRARY_PATH=$work/lib "$hooprun" --nccl "$program")
[ "$found" = 23007 ] || fail "installed: found $found"
mv "$work/lib" "$work/a folder"
refuses "$work/a folder" "without blanks and colons"
