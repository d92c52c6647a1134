"""Builds a wheel of hoop: the Python package, with libhoop and its programs inside.

The C part is a release build of the Meson project around this folder. Everything goes into the package
(hoop/lib, hoop/bin, hoop/include), where scripts find it in any environment. There is no Python extension, so
one wheel works with every Python.

wheel.sh sets variables to build one for distribution: WHEEL_UV, the folder of the libuv that goes inside;
WHEEL_LINK and WHEEL_MESON, more options for the linker and for Meson; WHEEL_PLATFORM, the wheel's tag.
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


def pkg_config(*arguments):
    return subprocess.run(["pkg-config", *arguments], stdout=subprocess.PIPE, text=True).stdout.strip()


def static_packages(folder):
    """Makes pkg-config name archives (where they exist) of libcrypto, of which libhoop needs some 35 KB and not
    the 1.9 MB of libcrypto.so, and of the libuv in WHEEL_UV, a folder with lib/libuv.a and include/."""
    crypto = Path(pkg_config("--variable=libdir", "libcrypto")) / "libcrypto.a"
    if crypto.exists():
        version = pkg_config("--modversion", "libcrypto")
        (folder / "libcrypto.pc").write_text(
            f"Name: libcrypto\nDescription: static\nVersion: {version}\nLibs: {crypto} -ldl -pthread\n")
    uv = os.environ.get("WHEEL_UV")
    if uv:
        version = (Path(uv) / "version").read_text()
        (folder / "libuv.pc").write_text(
            f"Name: libuv\nDescription: static\nVersion: {version}\nCflags: -I{uv}/include\n"
            f"Libs: {uv}/lib/libuv.a -ldl -pthread\n")


class BuildPython(build_py):
    def run(self):
        super().run()
        package = Path(self.build_lib) / "hoop"
        with tempfile.TemporaryDirectory() as work:
            build, root, packages = Path(work) / "build", Path(work) / "root", Path(work) / "packages"
            packages.mkdir()
            static_packages(packages)
            path = ":".join(filter(None, (str(packages), os.environ.get("PKG_CONFIG_PATH"))))
            subprocess.run(
                ["meson", "setup", str(build), str(SOURCE), "--buildtype=release", "--prefix=/",
                 "--libdir=lib", "--strip", "-Dtests=disabled", "-Dexamples=disabled",
                 "-Dnccl=enabled", *os.environ.get("WHEEL_MESON", "").split(), f"-Dpkg_config_path={path}",
                 # The programs find the library beside them.
                 f"-Dc_link_args=-Wl,-rpath,$ORIGIN/../lib,--gc-sections {os.environ.get('WHEEL_LINK', '')}"],
                check=True,
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
        # A wheel can't have symbolic links: the library is included under its soname only.
        shutil.copy(root / "lib" / "libhoop.so.0", package / "lib" / "libhoop.so.0")
        shutil.copytree(root / "lib" / "hoop", package / "lib" / "hoop", symlinks=False)
        (package / "lib" / "hoop" / "libnccl.so").unlink()
        text = (root / "lib" / "pkgconfig" / "hoop.pc").read_text()
        lines = ["prefix=${pcfiledir}/../.." if line.startswith("prefix=") else line
                 for line in text.splitlines()]
        text = "\n".join(lines).replace("-lhoop", "-l:libhoop.so.0 -Wl,-rpath,${libdir}")
        (package / "lib" / "pkgconfig" / "hoop.pc").write_text(text + "\n")
        shutil.copytree(root / "lib" / "cmake", package / "lib" / "cmake")
        # The licenses of the libraries inside.
        (package / "licenses").mkdir(exist_ok=True)
        shutil.copy(SOURCE / "LICENSE", package / "licenses" / "hoop")
        doc = Path("/usr/share/doc")
        uv = Path(os.environ.get("WHEEL_UV", doc / "libuv1-dev"))
        for name, text in (("openssl", doc / "libssl-dev" / "copyright"), ("libuv", uv / "LICENSE")):
            if text.exists():
                shutil.copy(text, package / "licenses" / name)


class Wheel(bdist_wheel):
    """A wheel with machine code, but without a Python ABI."""

    def get_tag(self):
        return "py3", "none", os.environ.get("WHEEL_PLATFORM") or super().get_tag()[2]


class Binary(Distribution):
    def has_ext_modules(self):
        return True


setup(
    packages=["hoop", "hoop.torch"],
    package_data={"hoop": ["py.typed"]},
    cmdclass={"build_py": BuildPython, "bdist_wheel": Wheel},
    distclass=Binary,
)
