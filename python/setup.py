"""A wheel of hoop: the Python package, and libhoop with its programs inside of it.

The C part is built by the Meson project that this folder lies in, as a release. Everything goes
into the package (hoop/lib, hoop/bin, hoop/include), where a script finds it whatever the
environment looks like; there is no Python extension, so that one wheel serves every Python.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

SOURCE = Path(__file__).resolve().parent.parent


def crypto_within(folder):
    """An environment in which libcrypto is what libhoop needs of libcrypto.a, some 35 KB, and not all
    of libcrypto.so, which alone would be 1.9 MB of the wheel. Without a libcrypto.a: as it is."""
    where = subprocess.run(["pkg-config", "--variable=libdir", "libcrypto"],
                           stdout=subprocess.PIPE, text=True).stdout.strip()
    archive = Path(where) / "libcrypto.a"
    if not where or not archive.exists():
        return None
    version = subprocess.run(["pkg-config", "--modversion", "libcrypto"], check=True,
                             stdout=subprocess.PIPE, text=True).stdout.strip()
    (folder / "libcrypto.pc").write_text(
        f"Name: libcrypto\nDescription: linked statically\nVersion: {version}\nLibs: {archive} -ldl -pthread\n")
    before = os.environ.get("PKG_CONFIG_PATH")
    return {**os.environ, "PKG_CONFIG_PATH": f"{folder}:{before}" if before else str(folder)}


class BuildPython(build_py):
    def run(self):
        super().run()
        package = Path(self.build_lib) / "hoop"
        with tempfile.TemporaryDirectory() as work:
            build, root = Path(work) / "build", Path(work) / "root"
            subprocess.run(
                ["meson", "setup", str(build), str(SOURCE), "--buildtype=release", "--prefix=/",
                 "--libdir=lib", "--strip", "-Dtests=disabled", "-Dexamples=disabled",
                 "-Dnccl=enabled",
                 # The programs find the library beside them, and the library what auditwheel adds.
                 "-Dc_link_args=-Wl,-rpath,$ORIGIN/../lib,--gc-sections"],
                check=True, env=crypto_within(Path(work)),
            )
            subprocess.run(["ninja", "-C", str(build)], check=True)
            subprocess.run(
                ["meson", "install", "-C", str(build), "--no-rebuild", "--destdir", str(root)],
                check=True,
            )
            self.take(root, package)

    @staticmethod
    def take(root, package):
        for folder in ("bin", "lib", "include"):
            shutil.rmtree(package / folder, ignore_errors=True)
        shutil.copytree(root / "bin", package / "bin")
        (package / "lib" / "pkgconfig").mkdir(parents=True)
        shutil.copytree(root / "include", package / "include")
        # A wheel has no links: the library under its soname alone.
        shutil.copy(root / "lib" / "libhoop.so.0", package / "lib" / "libhoop.so.0")
        shutil.copytree(root / "lib" / "hoop", package / "lib" / "hoop", symlinks=False)
        (package / "lib" / "hoop" / "libnccl.so").unlink()
        text = (root / "lib" / "pkgconfig" / "hoop.pc").read_text()
        lines = ["prefix=${pcfiledir}/../.." if line.startswith("prefix=") else line
                 for line in text.splitlines()]
        text = "\n".join(lines).replace("-lhoop", "-l:libhoop.so.0 -Wl,-rpath,${libdir}")
        (package / "lib" / "pkgconfig" / "hoop.pc").write_text(text + "\n")
        shutil.copytree(root / "lib" / "cmake", package / "lib" / "cmake")
        # The licenses of what auditwheel will add.
        (package / "licenses").mkdir(exist_ok=True)
        shutil.copy(SOURCE / "LICENSE", package / "licenses" / "hoop")
        for name in ("libssl-dev", "libuv1-dev"):
            text = Path("/usr/share/doc") / name / "copyright"
            if text.exists():
                shutil.copy(text, package / "licenses" / name)


class Wheel(bdist_wheel):
    """No Python ABI, but machine code."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(
    packages=["hoop", "hoop.torch"],
    package_data={"hoop": ["py.typed"]},
    cmdclass={"build_py": BuildPython, "bdist_wheel": Wheel},
    distclass=Binary,
)
