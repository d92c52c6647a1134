"""Linking for an older glibc than this machine's: older_glibc.py VERSION OUT [COMPILER]

A program that is linked requires for each symbol the version that is the default in this machine's C library.
This makes stub libraries for the linker, with the names and symbols of this machine's libraries, but for each
symbol the newest version that glibc VERSION has. What is linked with -LOUT runs there; a symbol that VERSION
does not have is a linker error.

Until 2.34 threads, dlopen() and POSIX shared memory had libraries of their own, so these are made, too. The
few functions that hoop uses and VERSION lacks come as an archive.
"""

import ctypes
import pathlib
import re
import subprocess
import sys
from collections import defaultdict

# The former libraries of functions that have moved into libc.so.6. Others that have moved are left out.
HOMES = (
    (r"__libc_start_main$", "libc.so.6"),
    (r"(pthread|sem|mtx|cnd|thrd|tss)_|call_once$", "libpthread.so.0"),
    (r"dl(open|close|sym|vsym|error|addr1?|info|mopen)$", "libdl.so.2"),
    (r"(shm|mq|timer|aio|lio)_", "librt.so.1"),
)

# Until 2.33 stat() was an inline function; on 64-bit machines the C library's struct, with and without large
# files, is the kernel's. gettid() is new in 2.30, strerrorname_np() in 2.32.
MISSING = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>
#pragma GCC visibility push(hidden)
#define HERE (-100)
#define NO_FOLLOW 0x100
#define BOTH(name, parameters, call) \\
    int name parameters { return (int)syscall call; } \\
    int name##64 parameters { return (int)syscall call; }
BOTH(fstatat, (int dir, const char *path, void *to, int flags), (SYS_newfstatat, dir, path, to, flags))
BOTH(stat, (const char *path, void *to), (SYS_newfstatat, HERE, path, to, 0))
BOTH(lstat, (const char *path, void *to), (SYS_newfstatat, HERE, path, to, NO_FOLLOW))
BOTH(fstat, (int fd, void *to), (SYS_fstat, fd, to))
int gettid(void) { return (int)syscall(SYS_gettid); }
const char *strerrorname_np(int err);
const char *strerrorname_np(int err)
{
    switch (err) {
NAMES
    }
    return NULL;
}
"""


def names():
    name = ctypes.CDLL(None).strerrorname_np
    name.restype = ctypes.c_char_p
    return "\n".join(f'    case {i}: return "{name(i).decode()}";' for i in range(134) if name(i))


def out(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def number(version):
    return tuple(int(part) for part in version.split("."))


def symbols(library, limit):
    """{name: (version, type, binding, address, size)}, and the names whose default version is newer than limit."""
    found, moved = {}, set()
    for line in out("readelf", "--dyn-syms", "-W", library).splitlines():
        match = re.match(r" *\d+: ([0-9a-f]+) +(\w+) (\w+) +(\w+) +\w+ +(\d+|UND|ABS) (\w+)@(@?)GLIBC_([0-9.]+)$",
                         line)
        if not match or match[5] in ("UND", "ABS"):
            continue
        address, size, kind, binding, _, name, default, version = match.groups()
        if number(version) > limit:
            if default:
                moved.add(name)
        elif name not in found or number(found[name][0]) < number(version):
            found[name] = (version, kind, binding, address, int(size, 0))
    return found, moved


def assembly(members):
    lines, places = [], defaultdict(list)
    for name, (version, kind, binding, address, size) in sorted(members.items()):
        # Names at one address stay aliases of one variable, since a program may have a copy of it.
        places[address if kind == "OBJECT" else name].append((name, version, kind, binding, size))
    for place, names in places.items():
        data = names[0][2] == "OBJECT"
        lines += [".bss" if data else ".text", ".balign 64"]
        for name, version, kind, binding, size in names:
            lines += [f".{'weak' if binding == 'WEAK' else 'globl'} at_{name}",
                      f".type at_{name}, %{'object' if data else 'function'}",
                      f".size at_{name}, {size if data else 0}", f"at_{name}:",
                      f".symver at_{name}, {name}@@GLIBC_{version}, remove"]
        lines.append(f".zero {max(size for *_, size in names) if data else 4}")
    lines.append('.section .note.GNU-stack,"",%progbits')
    return "\n".join(lines) + "\n"


def make(compiler, folder, file, members):
    versions = sorted({version for version, *_ in members.values()}, key=number)
    (folder / "versions").write_text("".join(f"GLIBC_{version} {{ }};\n" for version in versions))
    (folder / "stub.s").write_text(assembly(members))
    out(compiler, "-shared", "-nostdlib", f"-Wl,-soname,{file},--version-script,{folder / 'versions'}",
        "-o", str(folder / file), str(folder / "stub.s"))


def main(version, folder, compiler):
    folder.mkdir(parents=True, exist_ok=True)
    limit = number(version)
    libraries = defaultdict(dict)
    for file in ("libc.so.6", "libm.so.6"):
        found, moved = symbols(out(compiler, f"-print-file-name={file}").strip(), limit)
        for name, symbol in found.items():
            home = file
            if name in moved and file == "libc.so.6":
                home = next((home for pattern, home in HOMES if re.match(pattern, name)), None)
            if home:
                libraries[home][name] = symbol
    for file, members in libraries.items():
        make(compiler, folder, file, members)
    source, archive = folder / "missing.c", folder / "libmissing.a"
    source.write_text(MISSING.replace("NAMES", names()))
    out(compiler, "-O2", "-fPIC", "-c", "-o", str(folder / "missing.o"), str(source))
    archive.unlink(missing_ok=True)
    out(compiler.replace("gcc", "ar"), "rcs", str(archive), str(folder / "missing.o"))
    rest = " ".join(str(folder / file) for file in libraries if file not in ("libc.so.6", "libm.so.6"))
    own = out(compiler, "-print-file-name=libc_nonshared.a").strip()
    loader = next(word for word in out(compiler, "-print-file-name=libc.so").split() if word)
    loader = re.search(r"\S*/ld-linux\S*", pathlib.Path(loader).read_text())[0]
    (folder / "libc.so").write_text(
        f"GROUP ( {folder / 'libc.so.6'} {archive} {own} AS_NEEDED ( {rest} {loader} ) )\n")
    (folder / "libm.so").unlink(missing_ok=True)
    (folder / "libm.so").symlink_to("libm.so.6")


if __name__ == "__main__":
    main(sys.argv[1], pathlib.Path(sys.argv[2]).resolve(), sys.argv[3] if len(sys.argv) > 3 else "gcc")
