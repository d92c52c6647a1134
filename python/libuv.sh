#!/usr/bin/env bash
# libuv.sh OUT PIP COMPILER: builds libuv in OUT as an archive that can be linked into a shared library; Debian's
# archive, if there is one, only works for programs. The version is that of Debian 12; its sources come with a
# package of PyPI. 77: they are not available; the line before says why.
set -euo pipefail
out=$1 pip=$2 compiler=$3
package=gevent-22.10.2 version=1.44.2
# The hash of the source archive: pip checks it before it runs the package's setup.py.
sum=1ca01da176ee37b3527a2702f7d40dbc9ffb8cfc7be5a03bfa4f9eec45e55c46

[ "$(cat "$out/version" 2>/dev/null)" != "$version" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "${package/-/==} --hash=sha256:$sum" >"$work/asked"
if ! "$pip" -q --disable-pip-version-check download --no-deps --no-build-isolation --no-binary :all: \
    -d "$work" --require-hashes -r "$work/asked" >"$work/log" 2>&1; then
    ! grep -A 9 'DO NOT MATCH THE HASHES' "$work/log" || exit 1
    echo "no libuv: $(tail -n 1 "$work/log")"
    exit 77
fi
tar -xzf "$work/$package.tar.gz" -C "$work" "$package/deps/libuv"
cd "$work/$package/deps/libuv"
grep -q "UV_VERSION_MINOR ${version:2:2}" include/uv/version.h
unix=(async core dl epoll fs getaddrinfo getnameinfo linux-core linux-inotify linux-syscalls loop
      loop-watcher pipe poll process procfs-exepath proctitle random-devurandom random-getrandom
      random-sysctl-linux signal stream tcp thread tty udp)
printf '%s\n' src/*.c "${unix[@]/%/.c}" | sed 's|^[a-z-]*\.c$|src/unix/&|' |
    xargs -P 2 -n 8 "$compiler" -c -O2 -fPIC -ffunction-sections -fvisibility=hidden -std=gnu89 -D_GNU_SOURCE \
        -D_FILE_OFFSET_BITS=64 -D_LARGEFILE_SOURCE -Iinclude -Isrc
mkdir -p "$out/lib"
rm -f "$out/lib/libuv.a"
"${compiler%gcc}ar" rcs "$out/lib/libuv.a" ./*.o
cp -r include LICENSE "$out"
echo "$version" >"$out/version"
