#!/bin/sh
# Programs that can't write their standard output report that, and fail.
#
#     test_full_disk.sh PROGRAM...
set -u
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

[ -w /dev/full ] || exit 77
for program in "$@"; do
    # shellcheck disable=SC2016
    run 1 sh -c 'exec "$0" >/dev/full' "$program"
    says err '^standard output: No space left on device$'
    # shellcheck disable=SC2016
    run 1 sh -c 'exec "$0" >&-' "$program"
    says err '^standard output: Bad file descriptor$'
done
exit $failed
