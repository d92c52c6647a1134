"""c10d's operations that move data: for each the calls of hoop, and what has to be done before and after them.

Tensors that are not contiguous are copied before and after.
"""

from __future__ import annotations

from ctypes import c_size_t, c_void_p
from itertools import accumulate
from typing import Callable, Protocol, Sequence

import torch

from .._native import check, lib
from ._exchange import Group
from ._queue import Operation, nothing
from ._tensors import (
    copy_back, dense_in_place, dense_output, fits, flattened, inside, put, rows, same_sizes, same_types
)
from ._types import moved


class Ranks(Protocol):
    """What operations need of a group."""

    handle: c_void_p
    own: int
    count: int

    def now(self, operation: Operation) -> None:
        """Carries out an operation on the calling thread."""


def barrier(group: Ranks) -> Operation:
    return Operation(lambda stream: check(lib.hoop_barrier(group.handle, stream)))


def broadcast(group: Ranks, tensor: torch.Tensor, root: int) -> Operation:
    dense = dense_in_place(tensor)
    datatype, width = moved(dense)

    def start(stream: c_void_p | None) -> None:
        address = dense.data_ptr()
        check(lib.hoop_broadcast(address, address, dense.numel() * width, datatype, root,
                                 group.handle, stream))

    return Operation(start, copier(tensor, dense))


def copier(target: torch.Tensor, source: torch.Tensor) -> Callable[[], None]:
    """A function that copies a result to its place, or does nothing if it is there."""
    return nothing if source is target else lambda: put(target, source)


def all_gather(group: Ranks, output: torch.Tensor, input: torch.Tensor) -> Operation:
    fits("all_gather", output, input, group.count)
    dense, into = input.contiguous(), dense_output(output)
    datatype, width = moved(dense)

    def start(stream: c_void_p | None) -> None:
        check(lib.hoop_all_gather(dense.data_ptr(), into.data_ptr(), dense.numel() * width, datatype,
                                  group.handle, stream))

    return Operation(start, copier(output, into))


def all_gather_list(group: Ranks, targets: list[torch.Tensor], source: torch.Tensor) -> Operation:
    if len(targets) != group.count:
        raise ValueError(f"all_gather: {len(targets)} outputs for {group.count} ranks")
    if all(target.numel() == source.numel() for target in targets):
        flat, scattered = flattened(targets)
        if inside(flat, source) and source.data_ptr() != targets[group.own].data_ptr():
            source = source.clone()  # another rank's block comes to its place
        gather = all_gather(group, flat, source.reshape(-1))
        return Operation(gather.start, scattered)
    # Tensors of different sizes: a broadcast from each rank.
    own = targets[group.own]
    if own.numel() != source.numel():
        raise ValueError(
            f"all_gather: this rank's input has {source.numel()} elements, its output {own.numel()}"
        )
    dense = [dense_in_place(target) for target in targets]
    datatypes = [moved(target) for target in dense]

    def start(stream: c_void_p | None) -> None:
        put(dense[group.own], source.reshape(own.shape))
        with Group(group.handle, stream) as together:
            for rank, (target, (datatype, width)) in enumerate(zip(dense, datatypes)):
                address = target.data_ptr()
                together(lib.hoop_broadcast, address, address, target.numel() * width, datatype, rank)

    return Operation(start, lambda: copy_back(targets, dense))


def gather(
    group: Ranks, targets: list[torch.Tensor] | None, source: torch.Tensor, root: int
) -> Operation:
    """targets: at the root only."""
    dense = source.contiguous()
    datatype, width = moved(dense)
    flat, scattered = None, nothing
    if targets is not None:
        if len(targets) != group.count:
            raise ValueError(f"gather: {len(targets)} outputs for {group.count} ranks")
        same_sizes("gather", targets, source)
        flat, scattered = flattened(targets)

    def start(stream: c_void_p | None) -> None:
        check(lib.hoop_gather(dense.data_ptr(), 0 if flat is None else flat.data_ptr(),
                              dense.numel() * width, datatype, root, group.handle, stream))

    return Operation(start, scattered)


def scatter(
    group: Ranks, target: torch.Tensor, sources: list[torch.Tensor] | None, root: int
) -> Operation:
    """sources: at the root only."""
    into = dense_output(target)
    datatype, width = moved(into)
    flat = None
    if sources is not None:
        if len(sources) != group.count:
            raise ValueError(f"scatter: {len(sources)} inputs for {group.count} ranks")
        same_sizes("scatter", sources, target)
        flat = torch.cat([source.reshape(-1) for source in sources])

    def start(stream: c_void_p | None) -> None:
        check(lib.hoop_scatter(0 if flat is None else flat.data_ptr(), into.data_ptr(),
                               into.numel() * width, datatype, root, group.handle, stream))

    return Operation(start, copier(target, into))


def all_to_all(
    group: Ranks,
    output: torch.Tensor,
    input: torch.Tensor,
    output_sizes: Sequence[int],
    input_sizes: Sequence[int],
) -> Operation:
    same_types("all_to_all", [output, input])
    dense, into = input.contiguous(), dense_output(output)
    if output_sizes or input_sizes:
        sends = rows("input", dense, input_sizes, group.count)
        receives = rows("output", into, output_sizes, group.count)
        same_own(group, sends, receives)
        return Operation(spread(group, dense, sends, into, receives), copier(output, into))
    datatype, width = moved(dense)
    if dense.numel() != into.numel():
        raise ValueError(
            f"all_to_all: {dense.numel()} elements into {into.numel()}, expected as many"
        )
    for name, tensor in (("input", dense), ("output", into)):
        if (tensor.shape[0] if tensor.dim() else 1) % group.count:
            raise ValueError(
                f"all_to_all: {name} of shape {tuple(tensor.shape)} has not as many rows for each "
                f"of {group.count} ranks"
            )

    def start(stream: c_void_p | None) -> None:
        check(lib.hoop_alltoall(dense.data_ptr(), into.data_ptr(),
                                dense.numel() // group.count * width, datatype, group.handle, stream))

    return Operation(start, copier(output, into))


def all_to_all_list(
    group: Ranks, outputs: list[torch.Tensor], inputs: list[torch.Tensor]
) -> Operation:
    for name, tensors in (("outputs", outputs), ("inputs", inputs)):
        if len(tensors) != group.count:
            raise ValueError(f"all_to_all: {len(tensors)} {name} for {group.count} ranks")
    same_types("all_to_all", [*outputs, *inputs])
    sources = [source.contiguous() for source in inputs]
    targets = [dense_output(target) for target in outputs]
    return Operation(exchange(group, sources, targets).start, lambda: copy_back(outputs, targets))


def same_own(group: Ranks, sends: list[torch.Tensor], receives: list[torch.Tensor]) -> None:
    given, expected = sends[group.own].numel(), receives[group.own].numel()
    if given != expected:
        raise ValueError(f"all_to_all: this rank sends itself {given} elements, and expects {expected}")


def spread(
    group: Ranks, dense: torch.Tensor, sends: list[torch.Tensor], into: torch.Tensor, receives: list[torch.Tensor]
) -> Callable[[c_void_p | None], None]:
    """The call for block q of dense, sends[q], to rank q, whose block comes to receives[q], in into."""
    datatype, width = moved(dense)
    sent, received = ([block.numel() * width for block in blocks] for blocks in (sends, receives))
    layouts = [(c_size_t * group.count)(*numbers)
               for counts in (sent, received)
               for numbers in (counts, accumulate(counts[:-1], initial=0))]

    def start(stream: c_void_p | None) -> None:
        check(lib.hoop_alltoallv(dense.data_ptr(), *layouts[:2], into.data_ptr(), *layouts[2:],
                                 datatype, group.handle, stream))

    return start


def exchange(group: Ranks, sends: list[torch.Tensor], receives: list[torch.Tensor]) -> Operation:
    """Sends tensor q of sends to rank q, and receives tensor q of receives from it, all at the same time."""
    same_own(group, sends, receives)

    def start(stream: c_void_p | None) -> None:
        with Group(group.handle, stream) as together:
            for rank in range(group.count):
                for function, tensor in ((lib.hoop_send, sends[rank]),
                                         (lib.hoop_recv, receives[rank])):
                    datatype, width = moved(tensor)
                    if tensor.numel():
                        together(function, tensor.data_ptr(), tensor.numel() * width, datatype, rank)

    return Operation(start)
