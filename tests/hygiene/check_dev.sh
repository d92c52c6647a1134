#!/bin/sh
# ./dev refuses words that it would ignore, by name, before it does anything.
set -u

dev=$(dirname "$0")/../../dev
failed=0

# refuses SENTENCE WORDS...
refuses() {
    sentence=$1
    shift
    said=$(timeout 10 "$dev" "$@" 2>&1 </dev/null) && echo "FAILED: dev $* passes" && failed=1
    [ "${said%%
*}" = "dev: $sentence" ] || { echo "FAILED: dev $* says: $said" && failed=1; }
}

refuses 'tset: expected one of these commands:' tset
refuses 'help all: expected nothing after help' help all
refuses 'format lib: expected nothing after format' format lib
refuses 'bench torch 2: expected nothing after bench torch' bench torch 2
refuses 'bench trainers: expected nothing, trainer, torch or strategies' bench trainers
exit $failed
