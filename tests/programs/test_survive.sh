#!/bin/sh
# examples/survive.c: one of four ranks dies half way, and three go on to the end.
set -u

out=$("$1" --on-failure=wait --timeout 60 -n 4 "$2" 2>&1)
code=$?
case $code$out in
*'step 4: 4 ranks'*'step 5: 3 ranks'*'step 9: 3 ranks'*'done, after 1 shrink'*) ;;
*) code=wrong ;;
esac
[ "$code" = 137 ] && exit 0
printf '%s\nexit code %s\n' "$out" "$code" >&2
exit 1
