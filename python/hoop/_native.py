"""libhoop by ctypes: finding it, the arguments of its functions, and errors as exceptions.

Nothing here knows of arrays or tensors. ctypes releases the GIL during a call.
"""

from __future__ import annotations

import ctypes
import math
import os
import time
from ctypes import POINTER, c_char, c_char_p, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from typing_extensions import Unpack

HERE = Path(__file__).resolve().parent

OK = 0
INVALID_USAGE = 5
IN_PROGRESS = 7
TIMEOUT = 64
SLICE = 0.1  # seconds after which a wait lets signal handlers run
UNDEFINED_INT = -(2**31)


class HoopError(RuntimeError):
    """A call of hoop failed. str() is hoop's error text; ``name`` is the name of the result, ``HOOP_...``."""

    result = -1
    name = "HOOP_UNKNOWN"


class SystemFailure(HoopError, OSError):
    """A system call failed, or a CUDA call."""


class InternalError(HoopError):
    """A bug in hoop."""


class InvalidArgument(HoopError, ValueError):
    """The caller's mistake: nothing happened, the comm is as it was."""


class InvalidUsage(HoopError):
    """The caller's mistake: nothing happened, the comm is as it was."""


class RemoteError(HoopError, ConnectionError):
    """Another rank failed or left; the text names it."""


class TimedOut(HoopError, TimeoutError):
    """A deadline passed."""


class Unsupported(HoopError, NotImplementedError):
    """This version or build does not do that."""


class Mismatch(HoopError):
    """Ranks called different operations; the text has both calls."""


class Aborted(HoopError):
    """The communicator was aborted; the text says by which rank."""


class NotAuthenticated(HoopError, PermissionError):
    """A peer could not prove that it belongs to the job."""


class OutOfMemory(HoopError, MemoryError):
    """No memory, no descriptor, or more than the machine has."""


_ERRORS = {
    1: SystemFailure,
    2: SystemFailure,
    3: InternalError,
    4: InvalidArgument,
    5: InvalidUsage,
    6: RemoteError,
    64: TimedOut,
    65: Unsupported,
    66: Mismatch,
    67: Aborted,
    68: NotAuthenticated,
    69: OutOfMemory,
}


class UniqueIdStruct(ctypes.Structure):
    _fields_ = [("internal", c_char * 128)]


class TicketStruct(ctypes.Structure):
    _fields_ = [("opaque", c_uint64 * 2)]


class ConfigStruct(ctypes.Structure):
    _fields_ = [
        ("size", c_size_t),
        ("magic", c_uint32),
        ("version", c_uint32),
        ("blocking", c_int),
        ("init_timeout_ms", c_int),
        ("op_timeout_ms", c_int),
        ("dead_after_ms", c_int),
        ("algo", c_char_p),
        ("comm_name", c_char_p),
    ]


class SettingStruct(ctypes.Structure):
    _fields_ = [
        (field, c_char_p) for field in ("name", "text", "range", "preset", "value", "origin")
    ]


_COMM = c_void_p
_STREAM = c_void_p
_COUNTS = POINTER(c_size_t)

# The argument types of hoop.h's functions. All return hoop_result_t, except the three for text.
#
# Functions that move data are called often, so only their addresses and sizes are declared, as the 64-bit type
# that ctypes converts fastest; a Python int becomes C's int by itself, and handles are a c_void_p or None.
# That saves a third of a call's time.
_ADDRESS = _SIZE = c_void_p
_FUNCTIONS = {
    "hoop_get_version": [POINTER(c_int)],
    "hoop_get_unique_id": [POINTER(UniqueIdStruct)],
    "hoop_comm_init_rank_config": [
        POINTER(_COMM), c_int, UniqueIdStruct, c_int, POINTER(ConfigStruct),
    ],
    "hoop_comm_init_env": [POINTER(_COMM), POINTER(ConfigStruct)],
    "hoop_comm_init_url": [POINTER(_COMM), c_char_p, c_int, c_int, POINTER(ConfigStruct)],
    "hoop_comm_init_all": [POINTER(_COMM), c_int, POINTER(c_int)],
    "hoop_comm_finalize": [_COMM],
    "hoop_comm_destroy": [_COMM],
    "hoop_comm_abort": [_COMM],
    "hoop_comm_leave": [_COMM],
    "hoop_linger": [],
    "hoop_comm_revoke": [_COMM, c_int],
    "hoop_comm_split": [_COMM, c_int, c_int, POINTER(_COMM), POINTER(ConfigStruct)],
    "hoop_comm_get_unique_id": [_COMM, POINTER(UniqueIdStruct)],
    "hoop_comm_grow": [
        _COMM, c_int, POINTER(UniqueIdStruct), c_int, POINTER(_COMM), POINTER(ConfigStruct),
    ],
    "hoop_comm_shrink": [
        _COMM, POINTER(c_int), c_int, POINTER(_COMM), POINTER(ConfigStruct), c_int,
    ],
    "hoop_comm_count": [_COMM, POINTER(c_int)],
    "hoop_comm_user_rank": [_COMM, POINTER(c_int)],
    "hoop_comm_get_async_error": [_COMM, POINTER(c_int)],
    "hoop_all_reduce": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_barrier": [],
    "hoop_reduce": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_reduce_scatter": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_all_gather": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_broadcast": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_alltoall": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_alltoallv": [_ADDRESS, _COUNTS, _COUNTS, _ADDRESS, _COUNTS, _COUNTS],
    "hoop_gather": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_scatter": [_ADDRESS, _ADDRESS, _SIZE],
    "hoop_send": [_ADDRESS, _SIZE],
    "hoop_recv": [_ADDRESS, _SIZE],
    "hoop_red_op_create_pre_mul_sum": [POINTER(c_int), c_void_p, c_int, c_int, _COMM],
    "hoop_red_op_destroy": [c_int, _COMM],
    "hoop_group_start": [],
    "hoop_group_end": [],
    "hoop_mem_alloc": [POINTER(c_void_p), c_size_t, c_int],
    "hoop_mem_free": [c_void_p],
    "hoop_stream_create": [POINTER(_STREAM)],
    "hoop_stream_destroy": [_STREAM],
    "hoop_stream_synchronize": [_STREAM],
    "hoop_stream_query": [_STREAM],
    "hoop_stream_get_fd": [_STREAM, POINTER(c_int)],
    "hoop_stream_record": [_STREAM, POINTER(TicketStruct)],
    "hoop_ticket_wait": [TicketStruct, c_int],
    "hoop_ticket_query": [TicketStruct],
    "hoop_stream_wait_ticket": [_STREAM, TicketStruct],
    "hoop_info_json": [_COMM, c_char_p, c_size_t, POINTER(c_size_t)],
    "hoop_explain_json": [
        _COMM, c_char_p, c_size_t, c_int, c_int, c_char_p, c_size_t, POINTER(c_size_t),
    ],
    "hoop_setting_next": [POINTER(c_size_t), POINTER(SettingStruct)],
}


def _load() -> tuple[ctypes.CDLL, str]:
    """Loads the library that LIBHOOP names, or the one beside this file (in a wheel), or the system's."""
    packaged = HERE / "lib" / "libhoop.so.0"
    path = os.environ.get("LIBHOOP") or (str(packaged) if packaged.exists() else "libhoop.so.0")
    try:
        return ctypes.CDLL(path), path
    except OSError as error:
        raise ImportError(
            f"cannot load {path}: {error}. A wheel of hoop brings its library; without one, "
            "install hoop (meson install), or name the library in LIBHOOP"
        ) from error


lib, library_path = _load()
for _name, _arguments in _FUNCTIONS.items():
    try:
        _function = getattr(lib, _name)
    except AttributeError as _error:
        raise ImportError(f"{library_path} is not libhoop, or an older version of it: {_error}") from None
    _function.argtypes = _arguments
    _function.restype = c_int
lib.hoop_get_error_string.argtypes = [c_int]
lib.hoop_get_error_name.argtypes = [c_int]
lib.hoop_get_last_error.argtypes = [_COMM]
for _name in ("hoop_get_error_string", "hoop_get_error_name", "hoop_get_last_error"):
    getattr(lib, _name).restype = c_char_p


def error(result: int, comm: c_void_p | None = None) -> HoopError:
    """The exception for a result, with the error text of the comm, or of the calling thread."""
    sentence = lib.hoop_get_last_error(comm) or lib.hoop_get_error_string(result)
    made = _ERRORS.get(result, HoopError)(sentence.decode(errors="replace"))
    made.result = result
    made.name = lib.hoop_get_error_name(result).decode()
    return made


def usage(sentence: str) -> InvalidUsage:
    """The exception for a mistake that is found before hoop is called."""
    made = InvalidUsage(sentence)
    made.result = INVALID_USAGE
    made.name = lib.hoop_get_error_name(INVALID_USAGE).decode()
    return made


def check(result: int, comm: c_void_p | None = None) -> None:
    if result != OK:
        raise error(result, comm)


def text(value: str) -> bytes:
    """A string for C; refuses a NUL, at which C would cut it."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no str")
    if "\0" in value:
        raise ValueError(f"{value!r} contains a NUL character")
    return value.encode()


def seconds(name: str, value: Any) -> float:
    """An argument that is a number of seconds; name: for the error."""
    if not isinstance(value, Real):
        raise TypeError(f"{name} is {value!r}, expected a number of seconds, or None")
    if math.isnan(value):
        raise ValueError(f"{name} is {value}, expected a number of seconds, or None")
    return value


class Options(TypedDict, total=False):
    """The options of a new comm. Times in seconds; None: the HOOP_* variable or the default."""

    init_timeout: float | None
    op_timeout: float | None
    dead_after: float | None
    algo: str | None
    name: str | None


def config(**options: Unpack[Options]) -> ConfigStruct:
    """hoop_config_t."""
    for option in options:
        if option not in Options.__annotations__:
            raise TypeError(f"a comm has no option {option!r}, expected one of {', '.join(Options.__annotations__)}")

    def milliseconds(option: str) -> int:
        value = options.get(option)
        if value is None:
            return UNDEFINED_INT
        exact = 1000 * max(-86400, min(seconds(option, value), 86400))
        return math.ceil(exact) if exact > 0 else math.floor(exact)  # rounds up: 0 would mean no limit

    return ConfigStruct(
        size=ctypes.sizeof(ConfigStruct),
        magic=0x686F6F70,
        version=100,
        blocking=UNDEFINED_INT,
        init_timeout_ms=milliseconds("init_timeout"),
        op_timeout_ms=milliseconds("op_timeout"),
        dead_after_ms=milliseconds("dead_after"),
        algo=text(algo) if (algo := options.get("algo")) else None,
        comm_name=text(name) if (name := options.get("name")) else None,
    )


def wait_ticket(ticket: TicketStruct, timeout: float | None) -> int:
    """hoop_ticket_wait() in slices, between which signal handlers run, and may raise. Returns the ticket's result,
    which may be TIMEOUT, too; IN_PROGRESS: it is not complete after timeout seconds."""
    until = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = until - time.monotonic()
        result = lib.hoop_ticket_wait(ticket, max(0, round(min(left, SLICE) * 1000)))
        if result == TIMEOUT:  # of the wait: by now the ticket may be complete
            result = lib.hoop_ticket_query(ticket)
        if result != IN_PROGRESS or left <= SLICE:
            return result


def json_text(function, *arguments) -> str:
    """The text of a function that writes JSON. Loops, as the text may grow after its size was asked for."""
    needed = c_size_t(0)
    size = 0
    while True:
        text = ctypes.create_string_buffer(size) if size else None
        result = function(*arguments, text, size, ctypes.byref(needed))
        if result == OK:
            return text.value.decode() if text else ""
        if needed.value <= size:
            raise error(result)
        size = needed.value
