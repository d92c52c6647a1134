#!/bin/sh
# bench/peers/machines.sh takes no figure from a run in which a machine failed.
#
#     test_machines_script.sh MACHINES_SH
set -u
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

# A hooprun that prints a row on the first machine, and ends with the code of its machine.
mkdir -p "$work/build/tools"
cat >"$work/build/tools/hooprun" <<'END'
#!/bin/sh
code=0
while [ $# -gt 0 ]; do
    [ "$1" = --node-rank ] && node=$2
    shift
done
. "${0%/*}/codes"
[ "$node" = 0 ] && echo "8 2 float sum -1 1.25 0 0 N/A 1 0 0 N/A"
[ "$node" = 1 ] && echo "said by the second"
exit "$code"
END
chmod +x "$work/build/tools/hooprun"
# shellcheck disable=SC2016
echo 'code=0' >"$work/build/tools/codes"
timeout 100 "$1" "$work/build" -r 1 -l 0 -a ring 8 >"$work/out" 2>"$work/err"
code=$?
[ $code = 77 ] && cat "$work/out" && exit 77
[ $code = 0 ] || fail "exit code $code, expected 0"
says out '^ +8 .* 1[.]25'

for node in 0 1; do
    echo "[ \"\$node\" = $node ] && code=3" >"$work/build/tools/codes"
    run 1 "$1" "$work/build" -r 1 -l 0 -a ring 8
    says err '^machines.sh: ring of 8 bytes failed, or gave no figure:$'
    says err '^said by the second$'
done
exit $failed
