#!/bin/sh
# Checks the models of what ranks do to shared memory without locks. Each must hold in every order
# of events, and must fail with -DRELAXED, which removes the memory order that the code asks for.
set -u
cd "$(dirname "$0")" || exit 1
command -v spin >/dev/null || { echo "skipped: no spin (Debian: spin)"; exit 77; }
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
failed=0

# errors MODEL [-DRELAXED]: how many the checker finds.
errors() {
    model=$1
    shift
    (cd "$box" && spin "$@" -a "$model" >spin.out 2>&1 && cc -O2 -w -DSAFETY -o pan pan.c &&
        ./pan -m100000 >pan.out 2>&1)
    grep -q 'max search depth too small' "$box/pan.out" && echo incomplete
    sed -n 's/.*errors: \([0-9]*\).*/\1/p' "$box/pan.out"
}

for model in cell gate sleeper; do
    holds=$(errors "$PWD/$model.pml")
    relaxed=$(errors "$PWD/$model.pml" -DRELAXED)
    if [ "$holds" = 0 ] && [ "$relaxed" = 1 ]; then
        echo "$model: holds"
    else
        echo "$model: FAILED: errors '$holds', expected 0; relaxed '$relaxed', expected 1"
        failed=1
    fi
done
exit $failed
