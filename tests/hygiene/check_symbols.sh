#!/bin/sh
# libhoop exports just the functions that its map lists and that hoop.h declares. Global symbols of
# the static library begin with hoop_. It has little thread-local data, because dlopen() has room
# for less than 2 KiB for all libraries.
#     check_symbols.sh LIBHOOP.SO LIBHOOP_CORE.A
set -u
shared=$(readlink -f "$1") archive=$(readlink -f "$2")
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

nm -D --defined-only "$shared" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | grep '^hoop_' |
    sort >"$work/exported"
sed -n 's/^ *\(hoop_[a-z0-9_]*\);$/\1/p' libhoop.map | sort >"$work/mapped"
tr '\n' ' ' <include/hoop.h | grep -oE 'HOOP_API [^;(#]*[ *]hoop_[a-z0-9_]*\(' |
    sed 's/.*[ *]\(hoop_[a-z0-9_]*\)($/\1/' | sort >"$work/declared"
diff "$work/mapped" "$work/declared" || { echo "FAILED: libhoop.map (<) and hoop.h (>) differ"; failed=1; }
diff "$work/exported" "$work/mapped" || { echo "FAILED: exports (<) and libhoop.map (>) differ"; failed=1; }
foreign=$(nm --defined-only -g "$archive" 2>/dev/null |
    awk '!/:$/ && NF == 3 && $3 !~ /^(hoop_|__asan|__odr_asan|__tsan|__sanitizer|asan\.|tsan\.|_*llvm)/ { print $3 }')
[ -z "$foreign" ] || { echo "FAILED: global names without the prefix: $foreign"; failed=1; }
tls=$(($(readelf -lW "$shared" | awk '$1 == "TLS" { print $6 }')))
[ "$tls" -lt 256 ] || { echo "FAILED: $tls bytes for each thread, expected less than 256"; failed=1; }
exit $failed
