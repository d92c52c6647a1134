"""The methods that torch calls, with c10d's names: each makes an operation, which the group runs."""

from __future__ import annotations

from typing import Any, Sequence

import torch
from torch._C._distributed_c10d import Work

from . import _operations as operations
from . import _reductions as reductions
from ._queue import Operation, all_of
from ._tensors import as_many, one

Tensors = Sequence[torch.Tensor]


class Verbs:
    """A mixin for a group, of which it uses run() and what operations.Ranks describes."""

    def run(self, opts: Any, operation: Operation, result: Any) -> Work | None:
        raise NotImplementedError

    def allreduce(self, tensors: Tensors, opts: Any) -> Work | None:
        operation = reductions.all_reduce(self, one(tensors), opts.reduceOp)
        return self.run(opts, operation, tensors)

    allreduce_sparse = allreduce

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Work | None:
        every = [reductions.all_reduce(self, tensor, opts.reduceOp) for tensor in tensors]
        return self.run(opts, all_of(every), tensors)

    def reduce(self, tensors: Tensors, opts: Any) -> Work | None:
        operation = reductions.reduce(self, one(tensors), opts.reduceOp, opts.rootRank)
        return self.run(opts, operation, tensors)

    def broadcast(self, tensors: Tensors, opts: Any) -> Work | None:
        operation = operations.broadcast(self, one(tensors), opts.rootRank)
        return self.run(opts, operation, tensors)

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work | None:
        return self.run(opts, operations.all_gather(self, output, input), [output])

    _allgather_base = all_gather_single

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work | None:
        operation = operations.all_gather_list(self, one(outputs), one(inputs))
        return self.run(opts, operation, outputs)

    def allgather_coalesced(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work | None:
        for of_one in outputs:  # a list for each rank
            as_many("all_gather_coalesced", of_one, inputs)
        every = [operations.all_gather_list(self, list(of_one), source)
                 for *of_one, source in zip(*outputs, inputs)]
        return self.run(opts, all_of(every), outputs)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work | None:
        as_many("all_gather_single_coalesced", outputs, inputs)
        every = [operations.all_gather(self, *pair) for pair in zip(outputs, inputs)]
        return self.run(opts, all_of(every), outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any) -> Work | None:
        operation = reductions.reduce_scatter(self, output, input, opts.reduceOp)
        return self.run(opts, operation, [output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work | None:
        operation = reductions.reduce_scatter_list(self, one(outputs), one(inputs), opts.reduceOp)
        return self.run(opts, operation, outputs)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work | None:
        as_many("reduce_scatter_single_coalesced", outputs, inputs)
        every = [reductions.reduce_scatter(self, *pair, opts.reduceOp) for pair in zip(outputs, inputs)]
        return self.run(opts, all_of(every), outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs: list[Tensors], inputs: Tensors, opts: Any) -> Work | None:
        targets = one(outputs) if self.own == opts.rootRank else None
        operation = operations.gather(self, targets, one(inputs), opts.rootRank)
        return self.run(opts, operation, outputs)

    def scatter(self, outputs: Tensors, inputs: list[Tensors], opts: Any) -> Work | None:
        sources = one(inputs) if self.own == opts.rootRank else None
        operation = operations.scatter(self, one(outputs), sources, opts.rootRank)
        return self.run(opts, operation, outputs)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_sizes: Sequence[int],
        input_sizes: Sequence[int],
        opts: Any,
    ) -> Work | None:
        operation = operations.all_to_all(self, output, input, output_sizes, input_sizes)
        return self.run(opts, operation, [output])

    alltoall_base = all_to_all_single

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Work | None:
        return self.run(opts, operations.all_to_all_list(self, outputs, inputs), outputs)

    def barrier(self, opts: Any) -> Work | None:
        return self.run(opts, operations.barrier(self), [])
