"""The end of a process that uses hoop.

At exit, atexit closes comms and streams (weakref.finalize), and C's exit() lingers as long as other
machines need the process. The processes of multiprocessing, but for those that it spawned, end by
os._exit(), which runs nothing of that: there a finalizer of multiprocessing's does it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import Any, Callable

from ._native import lib

_LAST = -100  # multiprocessing's own finalizers come before

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_before: list[Callable[[], None]] = []
_process: int | None = None  # for which all of this is


class OwnThread(threading.Thread):
    """A thread of hoop's own: what is handed to before_close() sees to it."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(daemon=True, **arguments)


def opened(thing: Any) -> None:
    """A comm or a stream: thing._close() is to be called, if nobody does it before."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _open.clear()
        _before.clear()
        _prepare()
    _open.add(thing)


def before_close(act: Callable[[], None]) -> None:
    """Also act(), before what is open is closed. It may be called twice."""
    _before.append(act)
    atexit.register(act)


def _prepare() -> None:
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _finish, exitpriority=_LAST)


def _finish() -> None:
    for act in reversed(_before):
        act()
    # Another thread of the program, a daemon too, may be inside: then the comms end with the process.
    here = threading.current_thread()
    if all(thread is here or isinstance(thread, OwnThread) for thread in threading.enumerate()):
        for thing in list(_open):
            thing._close()
    lib.hoop_linger()
