"""Stand-in libraries for PyTorch on a machine without a GPU: standins.py TORCH_FOLDER OUT

PyPI's torch for Linux is built for CUDA, and takes 3 GB with the libraries that it requires. On the CPU these
are needed by the loader only. So this makes a library of each name by gcc, with the versions and symbols that
torch's own libraries require of it. Every function returns 35, which to a caller of CUDA means that the driver
is too old or missing.
"""

import pathlib
import re
import subprocess
import sys

OURS = re.compile(r"^(cu|nv|nccl|CU|__cuda|__nv)")


def out(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main(folder, target):
    target.mkdir(parents=True, exist_ok=True)
    libraries = sorted(folder.glob("lib/*.so*")) + sorted(folder.glob("_C*.so"))
    own = {library.name for library in libraries}
    versions, symbols = {}, {}
    for library in libraries:
        for name in re.findall(r"\(NEEDED\).*\[(lib(?:cu|nv|nccl)[^\]]*)\]", out("readelf", "-dW", library)):
            if name not in own:
                versions.setdefault(name, set())
        file = None
        for line in out("readelf", "-VW", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif (found := re.search(r"Name: (\S+)", line)) and file in versions:
                versions[file].add(found[1])
        for name in re.findall(r" U (\S+)", out("nm", "-D", "--undefined-only", library)):
            name, _, version = name.partition("@")
            if OURS.match(name):
                symbols[name] = version.lstrip("@")
    homes = {version: file for file, all_of in versions.items() for version in all_of}
    first, nccl = min(versions), "libnccl.so.2"
    for file in versions:
        # NCCL's symbols only in its own library, so that a replacement of that must have them all.
        mine = {n: v for n, v in symbols.items()
                if (nccl if n.startswith("nccl") else homes.get(v, first)) == file}
        code = "".join(f"int {name}(void) {{ return 35; }}\n" for name in sorted(mine))
        nodes = ""
        for version in sorted(versions[file]) or ["NONE"]:
            names = "".join(f" {n};" for n, v in mine.items() if v in (version, ""))
            nodes += version + " {" + (" global:" + names if names else "") + " };\n"
        # A library without versions has all its symbols unversioned.
        script = target / (file + ".map")
        script.write_text(nodes)
        command = ["gcc", "-shared", "-fPIC", "-w", "-x", "c", "-", "-o", str(target / file),
                   f"-Wl,-soname,{file}"]
        if versions[file]:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, input=code or "int none;\n", text=True, check=True)
        script.unlink()


main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
