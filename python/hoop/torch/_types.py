"""torch's types and operations as hoop's, and the arithmetic that hoop does not have."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.distributed import ReduceOp

from .._buffers import Datatype

# The types that hoop can reduce.
REDUCED = {
    torch.int8: Datatype.INT8,
    torch.uint8: Datatype.UINT8,
    torch.int32: Datatype.INT32,
    torch.uint32: Datatype.UINT32,
    torch.int64: Datatype.INT64,
    torch.uint64: Datatype.UINT64,
    torch.float16: Datatype.FLOAT16,
    torch.float32: Datatype.FLOAT32,
    torch.float64: Datatype.FLOAT64,
    torch.bfloat16: Datatype.BFLOAT16,
    torch.float8_e4m3fn: Datatype.FLOAT8E4M3,
    torch.float8_e5m2: Datatype.FLOAT8E5M2,
}
REDUCED = {dtype: int(datatype) for dtype, datatype in REDUCED.items()}

_RedOp = ReduceOp.RedOpType
OPS = {_RedOp.SUM: 0, _RedOp.PRODUCT: 1, _RedOp.MAX: 2, _RedOp.MIN: 3, _RedOp.AVG: 4}
# The hash of a ReduceOp is its number in C++, and is five times as fast to get as .op.
OPS_BY_HASH = {hash(ReduceOp(op)): number for op, number in OPS.items()}
PREMUL_SUM = _RedOp.PREMUL_SUM


def function_of(method: Any) -> Callable[[Any], Any]:
    """The C function of a method, without the binding object, which takes a third of a call's time."""
    return getattr(method, "__func__", method)


def getter(options: type, name: str) -> Callable[[Any], Any]:
    """A function that reads that attribute of torch's options."""
    return function_of(getattr(options, name).fget)


hash_of = function_of(ReduceOp.__hash__)

# A bool is a byte of 0 or 1: a sum is true if any is, which is the maximum; a product if all are, the minimum.
_BOOL = {
    _RedOp.SUM: 2, _RedOp.MAX: 2, _RedOp.BOR: 2,
    _RedOp.PRODUCT: 3, _RedOp.MIN: 3, _RedOp.BAND: 3,
}
_COMPLEX = {torch.complex64: int(Datatype.FLOAT32), torch.complex128: int(Datatype.FLOAT64)}

FOLDS = {
    _RedOp.SUM: torch.add,
    _RedOp.AVG: torch.add,
    _RedOp.PRODUCT: torch.mul,
    _RedOp.MIN: torch.minimum,
    _RedOp.MAX: torch.maximum,
    _RedOp.BAND: torch.bitwise_and,
    _RedOp.BOR: torch.bitwise_or,
    _RedOp.BXOR: torch.bitwise_xor,
}


def moved(tensor: torch.Tensor) -> tuple[int, int]:
    """hoop's datatype, and its elements per element, for operations that only move bytes: all dtypes work."""
    datatype = REDUCED.get(tensor.dtype)
    if datatype is not None:
        return datatype, 1
    if tensor.dtype in _COMPLEX:
        return _COMPLEX[tensor.dtype], 2
    return int(Datatype.UINT8), tensor.dtype.itemsize


def reduced(dtype: torch.dtype, reduce_op: ReduceOp) -> tuple[int, int, int] | None:
    """Datatype, elements per element and operation of a reduction that hoop has. None: fold() does it, after
    all ranks' inputs were gathered."""
    datatype = REDUCED.get(dtype)
    if datatype is not None:
        number = OPS_BY_HASH.get(hash(reduce_op))
        return None if number is None else (datatype, 1, number)
    op = reduce_op.op
    if dtype is torch.bool:
        number = _BOOL.get(op)
        return None if number is None else (int(Datatype.UINT8), 1, number)
    if dtype in _COMPLEX and op in (_RedOp.SUM, _RedOp.AVG):
        return _COMPLEX[dtype], 2, OPS[op]
    return None


def check_fold(dtype: torch.dtype, op: _RedOp) -> None:
    """Refuses, before anything is sent, what fold() can't do."""
    if dtype is torch.bool and op == _RedOp.AVG:
        raise TypeError("ReduceOp.AVG of bool tensors has no meaning")
    if op not in FOLDS:
        raise ValueError(f"hoop has no {op} for {dtype}")
    try:
        fold(torch.ones((2, 1), dtype=dtype), op)
    except (RuntimeError, NotImplementedError) as error:
        raise TypeError(f"{op} of {dtype} tensors: {error}") from None


def fold(parts: torch.Tensor, op: _RedOp) -> torch.Tensor:
    """The reduction over the first dimension, in rank order."""
    result = parts[0].clone()
    for part in parts[1:]:
        FOLDS[op](result, part, out=result)
    if op == _RedOp.AVG:
        exact = result.is_floating_point() or result.is_complex()
        result.div_(len(parts), rounding_mode=None if exact else "trunc")
    return result
