"""Operations on plain tensors: each is a single call of hoop, with as little Python around it as possible, which
takes most of a small operation's time.

They replace a group's methods (_verbs.py) of the same names as long as nothing but the call has to be done, and
call the methods for anything that is not plain. They are closures because attributes of torch's objects are
slow to look up.
"""

from __future__ import annotations

from ctypes import CDLL, c_void_p
from time import time_ns
from typing import Any, Callable

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions, AllreduceOptions, BroadcastOptions, ReduceScatterOptions, Work
)

from .._interrupt import heard
from .._native import error, library_path
from ._queue import Operation
from ._types import OPS_BY_HASH, REDUCED, getter, hash_of
from ._work import DONE

Verb = Callable[..., "Work | None"]

# Functions without declared argument types: 64-bit arguments are converted here, each only once.
_lib, _wide = CDLL(library_path), c_void_p.from_param


class Sequence:
    """How many collectives a group has begun."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number = 0


def _queued(call: Callable[..., int], *arguments: Any, keep: Any = None) -> Operation:
    """The call as an operation for a stream; keep: what it reads."""

    def start(stream: c_void_p) -> None:
        result = call(*arguments, stream)
        if result:
            raise error(result)

    return Operation(start, keep=keep)


def verbs(group: Any) -> dict[str, Verb]:
    """The direct operations of a group by name, also by the names before torch 2.14."""
    all_gather, reduce_scatter = _all_gather(group), _reduce_scatter(group)
    return {
        "allreduce": _all_reduce(group),
        "broadcast": _broadcast(group),
        "all_gather_single": all_gather,
        "_allgather_base": all_gather,
        "reduce_scatter_single": reduce_scatter,
        "_reduce_scatter_base": reduce_scatter,
    }


def _all_reduce(group: Any) -> Verb:
    call, otherwise = _lib.hoop_all_reduce, group.allreduce
    handle, sequence, queued = _wide(group.handle.value), group.sequence, group.queued
    is_async, op_of = getter(AllreduceOptions, "asyncOp"), getter(AllreduceOptions, "reduceOp")
    limit_of = getter(AllreduceOptions, "timeout")

    @heard
    def all_reduce(tensors: list[torch.Tensor], opts: Any) -> Work | None:
        try:
            tensor, = tensors
            datatype, op = REDUCED[tensor.dtype], OPS_BY_HASH[hash_of(op_of(opts))]
            count, place = tensor.numel(), _wide(tensor.data_ptr())
        except (ValueError, KeyError, RuntimeError):  # several, a type or op that hoop lacks, or sparse
            return otherwise(tensors, opts)
        if count != 1 and not tensor.is_contiguous():
            return otherwise(tensors, opts)
        if is_async(opts) or limit_of(opts).days >= 0:  # none is -1 ms
            return group.run(opts, _queued(call, place, place, _wide(count), datatype, op, handle), tensors)
        if queued:
            group.drain()
        sequence.number += 1
        inside = time_ns(), handle
        result = call(place, place, _wide(count), datatype, op, handle, None)
        if result:
            inside = ()
            raise group.failed(error(result))
        return DONE

    return all_reduce


def _broadcast(group: Any) -> Verb:
    call, otherwise = _lib.hoop_broadcast, group.broadcast
    handle, sequence, queued = _wide(group.handle.value), group.sequence, group.queued
    is_async, root_of = getter(BroadcastOptions, "asyncOp"), getter(BroadcastOptions, "rootRank")
    limit_of = getter(BroadcastOptions, "timeout")

    @heard
    def broadcast(tensors: list[torch.Tensor], opts: Any) -> Work | None:
        if is_async(opts) or limit_of(opts).days >= 0 or len(tensors) != 1:
            return otherwise(tensors, opts)
        tensor = tensors[0]
        datatype = REDUCED.get(tensor.dtype)
        if datatype is None or not tensor.is_contiguous():
            return otherwise(tensors, opts)
        if queued:
            group.drain()
        sequence.number += 1
        place, root = _wide(tensor.data_ptr()), root_of(opts)
        inside = time_ns(), handle
        result = call(place, place, _wide(tensor.numel()), datatype, root, handle, None)
        if result:
            inside = ()
            raise group.failed(error(result))
        return DONE

    return broadcast


def _all_gather(group: Any) -> Verb:
    call, otherwise, size = _lib.hoop_all_gather, group.all_gather_single, group.count
    handle, sequence, queued = _wide(group.handle.value), group.sequence, group.queued
    is_async, limit_of = getter(AllgatherOptions, "asyncOp"), getter(AllgatherOptions, "timeout")

    @heard
    def all_gather_single(output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work | None:
        dtype, count = input.dtype, input.numel()
        if (dtype not in REDUCED or output.dtype is not dtype or output.numel() != count * size
                or not input.is_contiguous() or not output.is_contiguous()):
            return otherwise(output, input, opts)
        arguments = _wide(input.data_ptr()), _wide(output.data_ptr()), _wide(count), REDUCED[dtype], handle
        if is_async(opts) or limit_of(opts).days >= 0:  # none is -1 ms
            return group.run(opts, _queued(call, *arguments, keep=input), [output])
        if queued:
            group.drain()
        sequence.number += 1
        inside = time_ns(), handle
        result = call(*arguments, None)
        if result:
            inside = ()
            raise group.failed(error(result))
        return DONE

    return all_gather_single


def _reduce_scatter(group: Any) -> Verb:
    call, otherwise, size = _lib.hoop_reduce_scatter, group.reduce_scatter_single, group.count
    handle, sequence, queued = _wide(group.handle.value), group.sequence, group.queued
    is_async, op_of = getter(ReduceScatterOptions, "asyncOp"), getter(ReduceScatterOptions, "reduceOp")
    limit_of = getter(ReduceScatterOptions, "timeout")

    @heard
    def reduce_scatter_single(output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work | None:
        dtype, count, op = input.dtype, output.numel(), OPS_BY_HASH.get(hash_of(op_of(opts)))
        if (op is None or dtype not in REDUCED or output.dtype is not dtype
                or input.numel() != count * size
                or not input.is_contiguous() or not output.is_contiguous()):
            return otherwise(output, input, opts)
        arguments = _wide(input.data_ptr()), _wide(output.data_ptr()), _wide(count), REDUCED[dtype], op, handle
        if is_async(opts) or limit_of(opts).days >= 0:  # none is -1 ms
            return group.run(opts, _queued(call, *arguments, keep=input), [output])
        if queued:
            group.drain()
        sequence.number += 1
        inside = time_ns(), handle
        result = call(*arguments, None)
        if result:
            inside = ()
            raise group.failed(error(result))
        return DONE

    return reduce_scatter_single
