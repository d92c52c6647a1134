"""The end of a process that uses hoop.

At exit, and where multiprocessing ends a process of its own by os._exit(), which runs nothing of atexit:
what is open says goodbye, and the process lingers as long as other machines need it. Other threads may be
inside by then, daemons of the program: so nothing is freed, only left.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from typing import Any, Callable

from ._native import lib

GRACE = 5.0  # seconds that the end waits for what is under way: other ranks may never do their part
_LAST = -100  # multiprocessing's own finalizers come before

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_before: list[Callable[[], None]] = []
_process: int | None = None  # for which all of this is


def opened(thing: Any) -> None:
    """thing._leave(until) is to be called, if nobody closes it before; those of a lower _LEAVES first.
    It waits until then at most, time.monotonic()."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _open.clear()
        _before.clear()
        _prepare()
    _open.add(thing)


def before_close(act: Callable[[], None]) -> None:
    """Also act(), before what is open is left. It may be called twice."""
    _before.append(act)


def _prepare() -> None:
    atexit.register(_finish)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _at_end_of_child, exitpriority=_LAST)


def _at_end_of_child() -> None:
    """multiprocessing itself waits for the program's threads only after this. threading's own end does
    that, and before it ends those of executors, which no join() would; once more it does nothing."""
    threading._shutdown()
    try:
        _finish()
    finally:
        lib.hoop_linger()  # as C's exit() does


def _finish() -> None:
    if _process != os.getpid():
        return  # a forked child, in which no comm is of use
    until = time.monotonic() + GRACE
    for act in reversed(_before):
        _try(act)
    for thing in sorted(list(_open), key=lambda thing: thing._LEAVES):
        _try(thing._leave, until)


def _try(act: Callable[..., None], *arguments: Any) -> None:
    """What fails here, a hook of the program's too, keeps nothing else from its goodbye; nor does Ctrl-C."""
    try:
        act(*arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
