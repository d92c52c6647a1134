#!/bin/sh
# A program outside the tree builds against an installation, with nothing but pkg-config and, if
# there is CMake, with that, and runs.
#     check_package.sh BUILD
set -eu
build=$1
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
meson install -C "$build" --no-rebuild --destdir "$work/root" >"$work/log" 2>&1 || {
    cat "$work/log"
    exit 1
}
pc=$(find "$work/root" -name hoop.pc)
export PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_SYSROOT_DIR="$work/root"
cp "$source/examples/hello_allreduce.c" "$work/hello.c"
cd "$work"
if nm -D "$(find "$work/root" -name 'libhoop.so.0')" | grep -q -e ' U __asan_' -e ' U __tsan_'; then
    echo "the library was built with a sanitizer: a plain program cannot load it"
    exit 77
fi
eval "cc hello.c -o hello $(pkg-config --cflags --libs hoop)"
lib=$(find "$work/root" -name 'libhoop.so.0')
LD_LIBRARY_PATH="${lib%/*}" timeout 60 ./hello
eval "cc hello.c -o hello_static $(pkg-config --static --cflags --libs hoop | sed 's/-lhoop /-l:libhoop.a /')"
timeout 60 ./hello_static
find "$work/root" -path '*/bin/*' -type f | while read -r program; do # the linker need not know the folder
    timeout 60 "$program" --help </dev/null >/dev/null
done

"$source/tests/hygiene/check_cmake.sh" "$source" "$work/root" "$work/cmake"
# The same in a folder with a blank, where /lib is a link to /usr/lib, and CMake finds it there.
header=$(find "$work/root" -name hoop.h)
mkdir "$work/merged root"
cp -a "${header%/include/*}" "$work/merged root/usr"
ln -s usr/lib "$work/merged root/lib"
"$source/tests/hygiene/check_cmake.sh" "$source" "$work/merged root/lib/" "$work/cmake merged"

# Every file belongs to a package.
meson install -C "$build" --no-rebuild --tags runtime,devel,man --destdir "$work/tagged" >"$work/log" 2>&1
for folder in root tagged; do
    (cd "$work/$folder" && find . ! -type d | sort) >"$work/$folder.list"
done
diff "$work/root.list" "$work/tagged.list"

# Every function has a manual page, and no page is malformed.
pages=$(find "$work/root" -name '*.[13]')
for name in hoop $(sed -n 's/^ *\(hoop_[a-z0-9_]*\);$/\1/p' "$source/libhoop.map"); do
    case $pages in *"/$name.3"*) ;; *) echo "no manual page $name(3)"; exit 1 ;; esac
done
if command -v groff >/dev/null; then
    find "$work/root" -name '*.[13]' -type f -exec groff -man -Tutf8 -ww -z {} + 2>"$work/warnings"
    [ ! -s "$work/warnings" ] || { cat "$work/warnings"; exit 1; }
fi

# Folders outside the prefix are found, too.
meson setup "$work/apart" "$source" --prefix "$work/p" -Dlibdir="$work/l" -Dbindir="$work/b" -Dtests=disabled \
    >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep -qF "\"$work/l/libhoop.so.0\"" "$work/apart/hoop-config.cmake"
# shellcheck disable=SC2016
! grep -aqF '$ORIGIN/../' "$work/apart/meson-private/install.dat" || { echo "a way from bindir to $work/l"; exit 1; }

# A 32-bit processor is refused, by a sentence of ours. As a cross build: its libraries may be missing.
if cc -m32 -fsyntax-only -x c - </dev/null 2>/dev/null; then
    printf '%s\n' '[binaries]' "c = ['cc', '-m32']" '[properties]' 'needs_exe_wrapper = true' '[host_machine]' \
        "system = 'linux'" "cpu_family = 'x86'" "cpu = 'i686'" "endian = 'little'" >"$work/x86.ini"
    if meson setup "$work/narrow" "$source" --cross-file "$work/x86.ini" >"$work/log" 2>&1 ||
        ! grep -q 'ERROR: Problem encountered: hoop needs a 64-bit processor' "$work/log"; then
        cat "$work/log"
        exit 1
    fi
fi
