"""Checks the tensors that c10d passes, and lays them out as hoop needs them."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

from ._queue import nothing


def one(tensors: list[Any]) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"{len(tensors)} tensors for one rank, expected 1")
    return tensors[0]


def as_many(what: str, outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
    if len(outputs) != len(inputs):
        raise ValueError(f"{what}: {len(outputs)} outputs for {len(inputs)} inputs")


def fits(what: str, large: torch.Tensor, small: torch.Tensor, size: int) -> None:
    if large.dtype != small.dtype:
        raise ValueError(f"{what}: tensors of {large.dtype} and {small.dtype}")
    if large.numel() != small.numel() * size:
        raise ValueError(
            f"{what}: {large.numel()} and {small.numel()} elements, expected {size} times as many"
        )


def inside(whole: torch.Tensor, part: torch.Tensor) -> bool:
    return part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def same_sizes(what: str, tensors: list[torch.Tensor], like: torch.Tensor) -> None:
    for rank, tensor in enumerate(tensors):
        if tensor.numel() != like.numel() or tensor.dtype != like.dtype:
            raise ValueError(
                f"{what}: {tensor.numel()} elements of {tensor.dtype} for rank {rank}, expected "
                f"{like.numel()} of {like.dtype}"
            )


def same_types(what: str, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            raise ValueError(f"{what}: tensors of {tensors[0].dtype} and {tensor.dtype}")


def take_results(tensor: torch.Tensor) -> None:
    """Refuses, before anything is sent, a tensor to which a result can't be copied."""
    if 0 in tensor.stride() and any(
        extent > 1 and stride == 0 for extent, stride in zip(tensor.shape, tensor.stride())
    ):
        raise ValueError(
            f"a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()} has several elements in "
            "one place, as expand() makes them: expected a place for each, as of its .contiguous()"
        )


def dense_output(tensor: torch.Tensor) -> torch.Tensor:
    """Where a result may go: the tensor, or contiguous memory of its shape."""
    if tensor.is_contiguous():
        return tensor
    take_results(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def dense_in_place(tensor: torch.Tensor) -> torch.Tensor:
    """The same, with the tensor's elements copied into it."""
    if tensor.is_contiguous():
        return tensor
    take_results(tensor)
    return tensor.contiguous()


def put(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copies a result to its place, on any thread: the modes that the caller has set hold for its thread only."""
    with torch.inference_mode() if target.is_inference() else torch.no_grad():
        target.copy_(source)


def copy_back(targets: list[torch.Tensor], dense: list[torch.Tensor]) -> None:
    for target, source in zip(targets, dense):
        if target is not source:
            put(target, source)


def flattened(targets: list[torch.Tensor]) -> tuple[torch.Tensor, Callable[[], None]]:
    """One tensor for the blocks of all targets, and a function that copies them to their places, which does
    nothing if the targets are contiguous in memory already."""
    first = targets[0]
    bytes_each = first.numel() * first.element_size()
    if all(
        target.is_contiguous() and target.data_ptr() == first.data_ptr() + i * bytes_each
        and target.dtype == first.dtype
        and target.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        for i, target in enumerate(targets)
    ):
        whole = first.as_strided((len(targets) * first.numel(),), (1,), first.storage_offset())
        return whole, nothing
    for target in targets:
        take_results(target)
    flat = torch.empty(len(targets) * first.numel(), dtype=first.dtype)

    def scatter() -> None:
        for target, block in zip(targets, flat.view(len(targets), -1)):
            put(target, block.view(target.shape))

    return flat, scatter


def rows(
    what: str, tensor: torch.Tensor, sizes: Sequence[int], size: int
) -> list[torch.Tensor]:
    """Cuts a tensor into blocks of rows of its first dimension; without sizes: of equal size."""
    rows = tensor.shape[0] if tensor.dim() else 0
    if not sizes:
        if rows % size:
            raise ValueError(f"all_to_all: {what} has {rows} rows: not as many for each of {size} ranks")
        sizes = [rows // size] * size
    if len(sizes) != size or sum(sizes) != rows:
        raise ValueError(
            f"all_to_all: {what} sizes {list(sizes)} for {rows} rows and {size} ranks"
        )
    return list(tensor.split(list(sizes)))

