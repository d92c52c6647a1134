"""Tensors in memory that the other ranks of a machine map, and DDP's buckets in it.

Operations on such memory make no extra copies: ranks read each other's gradients in place.
"""

# No postponed annotations in this file: DDP checks those of a hook.
from typing import Any, Optional, Sequence, Union

import torch

from .._memory import alloc


def empty(*shape: Union[int, Sequence[int]], dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """A tensor of zeros in memory from hoop.alloc()."""
    extents = torch.Size(shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)
    dtype = dtype or torch.get_default_dtype()
    count = extents.numel()
    if count == 0:
        return torch.zeros(extents, dtype=dtype)
    return torch.frombuffer(alloc(count * dtype.itemsize), dtype=dtype, count=count).view(extents)


class Buckets:
    """The state of bucket_hook(): the group, and a place in hoop memory for each of DDP's buckets, also of several
    models."""

    def __init__(self, group: Any = None) -> None:
        self.group = group or torch.distributed.distributed_c10d._get_default_group()
        self._places: dict[int, torch.Tensor] = {}  # by the address of the bucket
        self._buckets: dict[int, int] = {}  # the bucket of each parameter, by the parameter's address

    def place(self, bucket: torch.distributed.GradBucket, own: torch.Tensor) -> torch.Tensor:
        key = own.data_ptr()
        found = self._places.get(key)
        if found is None or found.shape != own.shape or found.dtype != own.dtype:
            for parameter in bucket.parameters():  # DDP makes new buckets after the first step
                self._places.pop(self._buckets.get(parameter.data_ptr()), None)
                self._buckets[parameter.data_ptr()] = key
            found = self._places[key] = empty(own.shape, dtype=own.dtype)
        return found


def bucket_hook(
    state: Buckets, bucket: torch.distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """For model.register_comm_hook(Buckets(), bucket_hook): computes the mean of a bucket, as DDP itself does, in
    memory that the ranks map. DDP allocates its buckets itself; the division, which needs a pass over them anyway,
    writes to the mapped memory. A sparse gradient is summed like any sparse tensor, in memory of torch's."""
    own = bucket.buffer()
    if own.is_sparse:
        place = own / state.group.size()
    else:
        place = state.place(bucket, own)
        torch.div(own, state.group.size(), out=place)
    future = torch.distributed.all_reduce(place, group=state.group, async_op=True).get_future()
    return future.then(lambda done: done.value()[0])


def ddp(
    model: torch.nn.Module, process_group: Any = None, **options: Any
) -> torch.nn.parallel.DistributedDataParallel:
    """DistributedDataParallel whose gradients are added up in hoop memory."""
    made = torch.nn.parallel.DistributedDataParallel(
        model, process_group=process_group, **options
    )
    group = made.process_group  # also that of a device_mesh among the options
    made.register_comm_hook(Buckets(group), bucket_hook)
    return made
