"""What a caller may pass as a buffer: anything with the buffer protocol or DLPack, in host memory.

A buffer becomes (address, elements, datatype, writable, owner). Only contiguous memory is accepted:
anything else would have to be copied, which the caller should do knowingly.
"""

from __future__ import annotations

import ctypes
import math
import sys
from ctypes import (
    POINTER,
    addressof,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from enum import IntEnum
from typing import Any, NamedTuple


class Datatype(IntEnum):
    """hoop_datatype_t."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11


BYTES = {t: size for t, size in zip(Datatype, (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1))}

# Datatypes by the names of numpy and ml_dtypes.
_NAMES = {
    "int8": Datatype.INT8,
    "uint8": Datatype.UINT8,
    "int32": Datatype.INT32,
    "uint32": Datatype.UINT32,
    "int64": Datatype.INT64,
    "uint64": Datatype.UINT64,
    "float16": Datatype.FLOAT16,
    "float32": Datatype.FLOAT32,
    "float64": Datatype.FLOAT64,
    "bfloat16": Datatype.BFLOAT16,
    "float8_e4m3fn": Datatype.FLOAT8E4M3,
    "float8_e5m2": Datatype.FLOAT8E5M2,
}

# By the letters of the struct module, in native sizes; and by DLPack's (code, bits).
_LETTERS = {
    "b": Datatype.INT8,
    "B": Datatype.UINT8,
    "i": Datatype.INT32,
    "I": Datatype.UINT32,
    "q": Datatype.INT64,
    "Q": Datatype.UINT64,
    "l": Datatype.INT64 if ctypes.sizeof(ctypes.c_long) == 8 else Datatype.INT32,
    "L": Datatype.UINT64 if ctypes.sizeof(ctypes.c_long) == 8 else Datatype.UINT32,
    "e": Datatype.FLOAT16,
    "f": Datatype.FLOAT32,
    "d": Datatype.FLOAT64,
}
_DLPACK = {
    (0, 8): Datatype.INT8,
    (0, 32): Datatype.INT32,
    (0, 64): Datatype.INT64,
    (1, 8): Datatype.UINT8,
    (1, 32): Datatype.UINT32,
    (1, 64): Datatype.UINT64,
    (2, 16): Datatype.FLOAT16,
    (2, 32): Datatype.FLOAT32,
    (2, 64): Datatype.FLOAT64,
    (4, 16): Datatype.BFLOAT16,
    (10, 8): Datatype.FLOAT8E4M3,
    (12, 8): Datatype.FLOAT8E5M2,
}


class Buffer(NamedTuple):
    address: int
    count: int
    datatype: Datatype
    writable: bool
    owner: Any  # what keeps the memory alive, and where it is


class _PyBuffer(ctypes.Structure):
    _fields_ = [
        ("buf", c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("suboffsets", c_void_p),
        ("internal", c_void_p),
    ]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, POINTER(_PyBuffer), c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [POINTER(_PyBuffer)]
_release_buffer.restype = None
_C_CONTIGUOUS_FORMAT = 0x0038 | 0x0004


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """The content of a capsule of DLPack 1; older capsules begin with a DLTensor."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _DLTensor),
    ]


_NOT_TO_BE_WRITTEN = 1 | 2  # read-only, or a copy, in which the caller would not see a result

_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, c_char_p]
_capsule_pointer.restype = c_void_p
_capsule_is = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is.argtypes = [ctypes.py_object, c_char_p]


# numpy's own dtypes that were seen, and its array type: buffer() has a fast path for these.
_known: dict[Any, Datatype] = {}
_ndarray: type | None = None


def buffer(thing: Any, datatype: Datatype | None = None) -> Buffer:
    """The memory of thing. datatype: what it holds, if its own elements are bytes."""
    if datatype is None and type(thing) is _ndarray:
        known = _known.get(thing.dtype)
        if known is not None:
            try:
                return Buffer(addressof(c_char.from_buffer(thing)), thing.size, known, True, thing)
            except (BufferError, TypeError, ValueError):
                pass  # not contiguous, read-only, or empty
    datatype = None if datatype is None else Datatype(datatype)
    if isinstance(thing, Buffer):
        found = thing
    elif hasattr(thing, "__dlpack__") and not hasattr(thing, "__array_interface__"):
        found = _from_dlpack(thing)
    else:
        found = _from_protocol(thing)
    if datatype is None or found.datatype == datatype:
        return found
    if BYTES[found.datatype] != 1 or found.count % BYTES[datatype]:
        raise ValueError(
            f"{found.count} elements of {found.datatype.name} cannot be used as {datatype.name}"
        )
    return found._replace(count=found.count // BYTES[datatype], datatype=datatype)


def _from_protocol(thing: Any) -> Buffer:
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(thing, masked.MaskedArray):
        raise TypeError(
            "a numpy MaskedArray is not a buffer that hoop can use: its mask would be ignored. Pass "
            "its .data, or .filled(value)"
        )
    dtype = getattr(thing, "dtype", None)
    named = _NAMES.get(getattr(dtype, "name", ""))
    if named is not None and not dtype.isnative:
        raise TypeError(f"elements of {dtype.str} are not in this machine's byte order")
    if named is not None and named >= Datatype.BFLOAT16:
        # Arrays of ml_dtypes' types can't export a buffer; a view of their bytes can.
        held, pin = _view(thing.view("u1" if BYTES[named] == 1 else "u2"))
    else:
        held, pin = _view(thing)
        named = _from_letter(held.format.decode() if held.format else "B", held.itemsize, thing)
        if type(thing).__module__ == "numpy" and type(thing).__name__ == "ndarray":
            global _ndarray
            _ndarray = type(thing)
            _known[dtype] = named
    return Buffer(held.buf or 0, held.len // held.itemsize, named, not held.readonly, (thing, pin))


def _view(thing: Any) -> tuple[_PyBuffer, memoryview]:
    """The memory of thing, and a view: while this exists, thing refuses to be resized or closed."""
    held = _PyBuffer()
    try:
        pin = memoryview(thing)
        _get_buffer(pin, ctypes.byref(held), _C_CONTIGUOUS_FORMAT)
    except (TypeError, BufferError, ValueError) as error:
        raise TypeError(
            f"{type(thing).__name__} is not a buffer that hoop can use: {error}. It takes contiguous "
            "host memory by the buffer protocol or DLPack (numpy.ascontiguousarray() makes a copy)"
        ) from None
    _release_buffer(ctypes.byref(held))  # pin goes on
    return held, pin


def _from_letter(text: str, bytes: int, thing: Any) -> Datatype:
    found = _LETTERS.get(text.lstrip("@=<") if len(text) > 1 else text)
    if found is None or BYTES[found] != bytes:  # with "=" and "<" sizes may differ from native ones
        raise TypeError(
            f"{type(thing).__name__} has elements of format {text!r}, of {bytes} bytes, which hoop has "
            f"no datatype for; it has {', '.join(_NAMES)}"
        )
    return found


def _from_dlpack(thing: Any) -> Buffer:
    device = thing.__dlpack_device__()
    if device[0] != 1:
        raise TypeError(f"{type(thing).__name__} is on device {tuple(device)}, not on the host")
    try:
        capsule = thing.__dlpack__(max_version=(1, 0))
    except TypeError:  # older than DLPack 1, which introduced read-only memory
        capsule = thing.__dlpack__()
    tensor, writable = _tensor_of(capsule)
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    count = math.prod(shape)
    expected = 1
    for i in reversed(range(tensor.ndim if count > 0 and tensor.strides else 0)):
        if shape[i] > 1 and tensor.strides[i] != expected:
            raise TypeError(f"{type(thing).__name__} of shape {shape} is not contiguous")
        expected *= shape[i]
    datatype = _DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if datatype is None:
        raise TypeError(
            f"{type(thing).__name__} has elements of DLPack's type code {tensor.code}, of "
            f"{tensor.bits} bits and {tensor.lanes} lanes, which hoop has no datatype for; it has "
            f"{', '.join(_NAMES)}"
        )
    address = (tensor.data or 0) + tensor.byte_offset
    return Buffer(address, count, datatype, writable, (thing, capsule))


def _tensor_of(capsule: Any) -> tuple[_DLTensor, bool]:
    """The tensor in a capsule, and whether it may be written."""
    if not _capsule_is(capsule, b"dltensor_versioned"):
        return _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor")), True
    held = _Versioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
    if held.major != 1:
        raise TypeError(f"the capsule is of DLPack {held.major}.{held.minor}; hoop reads 1.x and older")
    return held.tensor, not held.flags & _NOT_TO_BE_WRITTEN
