"""Memory that the other ranks of a machine map."""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from ctypes import byref, c_void_p
from operator import index
from typing import TYPE_CHECKING, Any, Iterable, SupportsIndex

from ._native import check, lib

if TYPE_CHECKING:
    import numpy


def alloc(bytes: SupportsIndex) -> memoryview:
    """Memory that ranks of this machine can map, so that operations on it make no extra copies. Zeroed,
    page-aligned, and freed with the last view of it. A few large blocks are better than many small ones."""
    bytes = index(bytes)
    if not 0 <= bytes <= sys.maxsize:
        raise ValueError(f"{bytes} bytes of memory: expected 0 to {sys.maxsize}")
    address = c_void_p()
    check(lib.hoop_mem_alloc(byref(address), bytes, 0))
    if not address.value:
        return memoryview(bytearray())
    block = (ctypes.c_ubyte * bytes).from_address(address.value)
    weakref.finalize(block, lib.hoop_mem_free, address.value).atexit = False
    return memoryview(block).cast("B")


def empty(shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = "float32") -> numpy.ndarray:
    """A numpy array of zeros in memory from alloc()."""
    import numpy

    dtype = numpy.dtype(dtype)
    shape = tuple(map(index, shape if isinstance(shape, Iterable) else (shape,)))
    if any(extent < 0 for extent in shape):
        raise ValueError(f"shape {shape}: expected no negative extent")
    count = math.prod(shape)
    return numpy.frombuffer(alloc(count * dtype.itemsize), dtype, count).reshape(shape)
