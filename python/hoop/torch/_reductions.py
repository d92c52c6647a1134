"""c10d's reductions, like the other operations in _operations.py. Reductions that hoop does not have (bitwise
operations, 16-bit integers) are gathered and folded here.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from ctypes import byref, c_int, c_void_p
from typing import Any, Iterator

import torch

from .._native import check, lib
from ._operations import Ranks, copier
from ._queue import Operation, all_of, nothing
from ._tensors import dense_in_place, dense_output, fits, put
from ._types import PREMUL_SUM, REDUCED, check_fold, fold, moved, reduced


def all_reduce(group: Ranks, tensor: torch.Tensor, reduce_op: Any) -> Operation:
    if tensor.layout != torch.strided:
        if reduce_op.op != torch.distributed.ReduceOp.SUM:
            raise ValueError(f"hoop can only sum sparse tensors, not apply {reduce_op.op}")
        return sparse_sum(group, tensor)
    dense = dense_in_place(tensor)
    known = _known(group, dense, reduce_op)
    if known is None:
        every, gathered = gathering(group, dense)
        return Operation(gathered, lambda: put(tensor, fold(every, reduce_op.op)))
    datatype, width, known_op = known

    def start(stream: c_void_p | None) -> None:
        address = dense.data_ptr()
        with known_op as op:
            check(lib.hoop_all_reduce(address, address, dense.numel() * width, datatype, op,
                                      group.handle, stream))

    return Operation(start, copier(tensor, dense))


def reduce(group: Ranks, tensor: torch.Tensor, reduce_op: Any, root: int) -> Operation:
    if tensor.layout != torch.strided:
        raise TypeError("hoop reduces sparse tensors by all_reduce only")
    here = root == group.own
    dense = dense_in_place(tensor) if here else tensor.contiguous()
    known = _known(group, dense, reduce_op)
    if known is None:
        every, gathered = gathering(group, dense, root)
        return Operation(gathered, (lambda: put(tensor, fold(every, reduce_op.op))) if here else nothing)
    datatype, width, known_op = known

    def start(stream: c_void_p | None) -> None:
        address = dense.data_ptr()
        with known_op as op:
            check(lib.hoop_reduce(address, address, dense.numel() * width, datatype, op, root,
                                  group.handle, stream))

    return Operation(start, copier(tensor, dense) if here else nothing)


def reduce_scatter(
    group: Ranks, output: torch.Tensor, input: torch.Tensor, reduce_op: Any
) -> Operation:
    fits("reduce_scatter", input, output, group.count)
    dense, into = input.contiguous(), dense_output(output)
    known = _known(group, dense, reduce_op)
    if known is None:
        return _fold_scatter(group, output, dense, reduce_op.op)
    datatype, width, known_op = known

    def start(stream: c_void_p | None) -> None:
        with known_op as op:
            check(lib.hoop_reduce_scatter(dense.data_ptr(), into.data_ptr(), into.numel() * width,
                                          datatype, op, group.handle, stream))

    return Operation(start, copier(output, into))


def _fold_scatter(group: Ranks, output: torch.Tensor, dense: torch.Tensor, op: Any) -> Operation:
    blocks = torch.empty((group.count, *output.shape), dtype=dense.dtype)
    datatype, width = moved(dense)

    def start(stream: c_void_p | None) -> None:
        check(lib.hoop_alltoall(dense.data_ptr(), blocks.data_ptr(), output.numel() * width, datatype,
                                group.handle, stream))

    return Operation(start, lambda: put(output, fold(blocks, op)))


def reduce_scatter_list(
    group: Ranks, target: torch.Tensor, sources: list[torch.Tensor], reduce_op: Any
) -> Operation:
    if len(sources) != group.count:
        raise ValueError(f"reduce_scatter: {len(sources)} inputs for {group.count} ranks")
    if all(source.numel() == target.numel() for source in sources):
        flat = torch.cat([source.reshape(-1) for source in sources])
        return reduce_scatter(group, target.view(-1) if target.is_contiguous() else target, flat,
                              reduce_op)
    own = sources[group.own].numel()
    if own != target.numel():
        raise ValueError(
            f"reduce_scatter: this rank's input has {own} elements, its output {target.numel()}"
        )
    # Blocks of different sizes: a reduction to each rank.
    parts = [source.clone(memory_format=torch.contiguous_format) for source in sources]
    every = all_of([reduce(group, part, reduce_op, rank) for rank, part in enumerate(parts)])

    def after() -> None:
        every.after()
        put(target, parts[group.own].view_as(target))

    return Operation(every.start, after)


def _known(
    group: Ranks, tensor: torch.Tensor, reduce_op: Any
) -> tuple[int, int, AbstractContextManager[int]] | None:
    """Datatype, width, and a context in which the operation exists; None: fold() can do it, and must."""
    found = reduced(tensor.dtype, reduce_op)
    if found is not None:
        datatype, width, op = found
        return datatype, width, nullcontext(op)
    if reduce_op.op == PREMUL_SUM:
        return _premul(group, tensor, reduce_op.__getstate__()[1])  # torch 2.9 has no .factor
    check_fold(tensor.dtype, reduce_op.op)
    return None


def _premul(
    group: Ranks, tensor: torch.Tensor, factor: Any
) -> tuple[int, int, AbstractContextManager[int]]:
    datatype = REDUCED.get(tensor.dtype)
    if datatype is None:
        raise TypeError(f"PREMUL_SUM of {tensor.dtype} tensors")
    exact = torch.as_tensor(factor, dtype=None if isinstance(factor, torch.Tensor) else torch.float64).reshape(1)
    scalar = exact.to(tensor.dtype)
    if not tensor.dtype.is_floating_point and scalar.item() != exact.item():
        raise ValueError(f"PREMUL_SUM of {tensor.dtype} tensors with the factor {exact.item()}, "
                         "expected a whole number of that type")
    return datatype, 1, _scaling(group, scalar, datatype)


@contextmanager
def _scaling(group: Ranks, scalar: torch.Tensor, datatype: int) -> Iterator[int]:
    """Makes the operation only for its call, so that none is left if another part of a coalesced call is refused."""
    op = c_int()
    check(lib.hoop_red_op_create_pre_mul_sum(byref(op), scalar.data_ptr(), datatype, 1, group.handle))
    try:
        yield op.value
    finally:
        lib.hoop_red_op_destroy(op.value, group.handle)


def gathering(group: Ranks, dense: torch.Tensor, root: int | None = None):
    """A tensor for all ranks' tensors, with the rank as first dimension, and a function that gathers them there.
    With a root only that rank has the tensor; the others get None."""
    datatype, width = moved(dense)
    every = None
    if root in (None, group.own):
        every = torch.empty((group.count, *dense.shape), dtype=dense.dtype)

    def start(stream: c_void_p | None) -> None:
        address = 0 if every is None else every.data_ptr()
        arguments = (dense.data_ptr(), address, dense.numel() * width, datatype)
        if root is None:
            check(lib.hoop_all_gather(*arguments, group.handle, stream))
        else:
            check(lib.hoop_gather(*arguments, root, group.handle, stream))

    return every, start


def sparse_sum(group: Ranks, tensor: torch.Tensor) -> Operation:
    """Gathers all ranks' entries, padded to the most that any rank has, and lets torch add them. First it waits
    for all ranks' numbers of entries and shapes, even if the operation is asynchronous: torch does not check the
    indices of other ranks' entries, which another shape may not have."""
    if tensor.layout != torch.sparse_coo:
        raise TypeError(f"hoop can sum sparse COO tensors, but not {tensor.layout}")
    own = tensor.coalesce()
    told, gathered = gathering(group, torch.tensor([own._nnz(), own.sparse_dim(), *own.shape]))
    group.now(Operation(gathered))
    for rank, (_, dims, *shape) in enumerate(told.tolist()):
        if (dims, shape) != (own.sparse_dim(), list(own.shape)):  # then every rank raises
            raise ValueError(
                f"all_reduce: rank {rank} has a sparse tensor of shape {tuple(shape)} with {dims} sparse dimensions, "
                f"rank {group.own} one of {tuple(own.shape)} with {own.sparse_dim()}, expected the same"
            )
    counts = told[:, 0]
    most = int(counts.max())
    indices = torch.zeros((own.sparse_dim(), most), dtype=torch.int64)
    values = torch.zeros((most, *own.values().shape[1:]), dtype=own.dtype)
    indices[:, : own._nnz()] = own.indices()
    values[: own._nnz()] = own.values()
    all_indices, indices_start = gathering(group, indices)
    all_values, values_start = gathering(group, values)

    def after() -> None:
        total = torch.sparse_coo_tensor(
            torch.cat([all_indices[r][:, : counts[r]] for r in range(group.count)], dim=1),
            torch.cat([all_values[r][: counts[r]] for r in range(group.count)]),
            tensor.shape,
        ).coalesce()
        put(tensor, total)

    return all_of([Operation(indices_start), Operation(values_start, after)])
