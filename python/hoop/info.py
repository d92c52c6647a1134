"""``python -m hoop.info``: which hoop this is, what it has found, and how to build against it."""

import argparse
import ctypes
import json
import platform
import signal

from . import __version__
from ._native import HERE, SettingStruct, check, json_text, lib, library_path


def _version() -> str:
    number = ctypes.c_int()
    check(lib.hoop_get_version(ctypes.byref(number)))
    return f"{number.value // 10000}.{number.value // 100 % 100}.{number.value % 100}"


def _settings() -> list[str]:
    """The settings that are not at their defaults, as NAME=value."""
    cursor, setting, lines = ctypes.c_size_t(0), SettingStruct(), []
    while lib.hoop_setting_next(ctypes.byref(cursor), ctypes.byref(setting)) == 0:
        if setting.origin != b"default":
            value = "(secret)" if b"SECRET" in setting.name else setting.value.decode()
            lines.append(f"{setting.name.decode()}={value}")
    return lines


def _torch() -> str:
    try:
        from importlib.metadata import entry_points, version

        found = version("torch")
        here = any(e.name == "hoop" for e in entry_points(group="torch.distributed.backends"))
    except ImportError:
        return "not installed"
    if tuple(int(part) for part in found.split(".")[:2]) < (2, 14):
        return f'{found}: init_process_group("hoop") works after `import hoop.torch`'
    return f'{found}: init_process_group("hoop") {"works" if here else "finds no entry point"}'


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hoop.info", description=__doc__.split("``: ")[1])
    parser.add_argument("--prefix", action="store_true", help="print the folder with hoop's files, and nothing else")
    parser.add_argument("--version", action="version", version=f"hoop {__version__}")
    if parser.parse_args().prefix:
        print(HERE)
        return
    state = json.loads(json_text(lib.hoop_info_json, None))
    print(f"hoop {__version__}, library {_version()} ({library_path})")
    print(f"Python {platform.python_version()}, {platform.platform()}")
    print(f"kernels {state['kernels']}, {state['usable_cpus']} CPUs to use")
    print(f"torch {_torch()}")
    print("settings", ", ".join(_settings()) or "all at their defaults")
    if (HERE / "include").exists():
        print(f"to build C against it: PKG_CONFIG_PATH={HERE / 'lib' / 'pkgconfig'}")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # ends quietly in `python -m hoop.info | head -n 1`
    main()
