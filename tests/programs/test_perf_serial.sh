#!/bin/sh
# A benchmark over the serial library (tests/fakes/serial_hoop.c), which makes errors when it is
# told to: correct rows have no wrong element, and wrong bits in results, inputs and around them are
# found.
#     test_perf_serial.sh NAME PROGRAM
set -u

name=${1:?usage: test_perf_serial.sh NAME PROGRAM}
perf=${2:?usage: test_perf_serial.sh NAME PROGRAM}
# shellcheck source=tests/programs/cases.sh
. "$(dirname "$0")/cases.sh"

ops=1
roots=1
second=0
case $name in
all_reduce | reduce_scatter) ops=5 ;;
reduce) ops=5 roots=3 ;;
broadcast | gather | scatter) roots=3 ;;
alltoall | sendrecv) second=N/A ;;
esac

run 0 "$perf" --no-bound -t 3 -b 4 -e 8K -f 8 -d all -o all -r -1 -n 2
rows $((4 * 12 * ops * roots)) "$second"
run 0 "$perf" --no-bound -t 1 -b 0 -e 64 -i 16 -n 2
rows 5 "$second"
run 0 "$perf" --no-bound -t 5 -b 8 -e 100000 -f 7 -u 1 -n 3 -c 3 -R 1
rows 5 "$second"
run 0 "$perf" --no-bound -t 2 -g 2 -m 3 -z 1 -b 4K -e 64K -f 16 -n 3 -R 2
rows 2 "$second"
run 0 "$perf" --no-bound -t 4 -b 100 -e 100 -c 0
says out 'N/A .*N/A$'

# The columns: if each rank has a part of the data, sizes are the total over all ranks.
run 0 "$perf" --no-bound -t 3 -b 1000 -e 1000
case $name in
all_gather | reduce_scatter | gather | scatter | alltoall) says out '^ +960 +80 +float ' ;;
*) says out '^ +1000 +250 +float ' ;;
esac
[ "$ops" = 1 ] && says out ' float    none '
[ "$roots" = 1 ] && says out ' (sum|none)      -1 '
[ "$roots" = 1 ] || run 6 "$perf" --no-bound -t 3 -r 3 -b 8 -e 8

# Every kind of damage to an operation that is checked. Without warm-up, iterations 1 and 2 are
# timed.
for fault in flip stray input; do
    for operation in 20 21 22 23 24; do
        SERIAL_FAULT=$fault:$operation "$perf" -t 3 -b 4K -e 4K -n 1 -w 0 -c 20 --no-bound \
            >"$work/out" 2>"$work/err"
        got=$?
        [ "$got" = 7 ] && break
    done
    [ "$got" = 7 ] || fail "$fault returned $got, expected 7"
    says out '^# Out of bounds values : 1 FAILED$'
    [ "$fault" = flip ] || says out '^# [0-9]+ bytes outside the receive buffers were written$'
done
[ $failed = 0 ]
