"""A wheel of hoop: the Python package, and libhoop with its programs inside of it.

The C part is built by the Meson project that this folder lies in, as a release. Everything goes
into the package (hoop/lib, hoop/bin, hoop/include), where a script finds it whatever the
environment looks like; there is no Python extension, so that one wheel serves every Python.

wheel.sh says how it is to be built for others: WHEEL_UV, where the libuv is that goes inside; WHEEL_LINK,
what else the linker is told; WHEEL_MESON, what else Meson is; WHEEL_PLATFORM, its tag.
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
    """Makes pkg-config name archives for libcrypto, of which libhoop needs some 35 KB and not the 1.9 MB
    of libcrypto.so, and for libuv in WHEEL_UV, a folder with lib/libuv.a and include/. Without an
    archive: as it is."""
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
        # The licenses of what is inside.
        (package / "licenses").mkdir(exist_ok=True)
        shutil.copy(SOURCE / "LICENSE", package / "licenses" / "hoop")
        doc = Path("/usr/share/doc")
        uv = Path(os.environ.get("WHEEL_UV", doc / "libuv1-dev"))
        for name, text in (("openssl", doc / "libssl-dev" / "copyright"), ("libuv", uv / "LICENSE")):
            if text.exists():
                shutil.copy(text, package / "licenses" / name)


class Wheel(bdist_wheel):
    """No Python ABI, but machine code."""

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
