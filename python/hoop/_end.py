"""The end of a process that uses hoop.

It says goodbye for everything that is open, and lingers as long as other machines need the process: at exit,
and also where multiprocessing ends a child by os._exit(), which does not run atexit. Daemon threads of the
program may still be inside a comm by then, so nothing is freed.
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

GRACE = 5.0  # seconds to wait for running operations: other ranks may never do their part
# Launchers name the process that ended first as the cause, and torchrun looks every 0.1 s. So a process that failed
# because of another rank ends this many seconds later than it could.
_BEHIND = 0.5
_LAST = -100  # a priority after multiprocessing's own finalizers

_open: weakref.WeakSet[Any] = weakref.WeakSet()
_before: list[Callable[[], None]] = []
_process: int | None = None  # the process that this state belongs to


def opened(thing: Any) -> None:
    """Lets thing._leave(until) be called at the end, unless thing is closed before; in the order of _LEAVES.
    It may wait until the time `until` of time.monotonic(), and returns True if another rank had ended thing."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        _open.clear()
        _before.clear()
        _prepare()
    _open.add(thing)


def before_close(act: Callable[[], None]) -> None:
    """Lets act() be called at the end, before what is open is left. It may be called twice."""
    _before.append(act)


def _prepare() -> None:
    atexit.register(_finish)
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _at_end_of_child, exitpriority=_LAST)


def _at_end_of_child() -> None:
    """multiprocessing waits for the program's threads only after this. So this calls threading._shutdown(),
    which waits for them, and first ends the threads of executors, which a join() would not; a second call
    of it does nothing."""
    threading._shutdown()
    try:
        _finish()
    finally:
        lib.hoop_linger()  # C's exit() does that, but os._exit() does not


def _finish() -> None:
    if _process != os.getpid():
        return  # a forked child, which can't use any comm
    until = time.monotonic() + GRACE
    for act in reversed(_before):
        _try(act)
    things = sorted(list(_open), key=lambda thing: thing._LEAVES)
    if any([_try(thing._leave, until) for thing in things]):  # all of them
        time.sleep(_BEHIND)


def _try(act: Callable[..., Any], *arguments: Any) -> Any:
    """Neither an error, also of a hook of the program, nor Ctrl-C may prevent the other goodbyes."""
    try:
        return act(*arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return None
