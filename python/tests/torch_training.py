"""Whole trainings with torch.distributed, for test_torch.py.

Each runs over hoop and then over gloo in the same processes, and must end with the same bits. With two ranks, so
that there is only one order of additions.
"""

import itertools
import tempfile
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)


def model():
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 5))


def train(net, rank, steps=3):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randn(8, 20)).square().sum().backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return [full(parameter).detach().clone() for parameter in net.parameters()]


def full(parameter):
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def ddp(group, rank):
    return train(DistributedDataParallel(model(), process_group=group, bucket_cap_mb=0.01), rank)


def ddp_bf16(group, rank):
    net = DistributedDataParallel(model(), process_group=group)
    net.register_comm_hook(group, default_hooks.bf16_compress_hook)
    return train(net, rank)


def ddp_in_hoop_memory(group, rank):
    if dist.get_backend(group) == "gloo":
        return ddp(group, rank)
    import hoop.torch

    return train(hoop.torch.ddp(model(), group, bucket_cap_mb=0.01), rank)


def ddp_sparse(group, rank, wrap=DistributedDataParallel):
    torch.manual_seed(7)
    net = wrap(torch.nn.EmbeddingBag(100, 8, sparse=True, mode="sum"), process_group=group)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randint(100, (4, 5))).square().sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in net.parameters()]


def ddp_sparse_by_our_hook(group, rank):
    if dist.get_backend(group) == "gloo":
        return ddp_sparse(group, rank)
    import hoop.torch

    return ddp_sparse(group, rank, hoop.torch.ddp)


def fsdp(group, rank):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    net = model()
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    return train(net, rank)


def dtensor(group, rank):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = DeviceMesh.from_group(group, "cpu")
    whole = torch.arange(60.0).view(6, 10)
    results = []
    for source, target in itertools.permutations((Replicate(), Shard(0), Shard(1)), 2):
        moved = distribute_tensor(whole, mesh, [source]).redistribute(mesh, [target])
        results += [moved.to_local().clone(), moved.full_tensor()]
    summed = distribute_tensor(whole, mesh, [Shard(0)]).sum()
    return [*results, summed.full_tensor()]


def checkpoint(group, rank):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = DeviceMesh.from_group(group, "cpu")
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0, group=group)
    whole = torch.arange(12.0)
    dcp.save({"a": distribute_tensor(whole, mesh, [Shard(0)])}, checkpoint_id=folder[0],
             process_group=group)
    loaded = {"a": distribute_tensor(torch.zeros(12), mesh, [Shard(0)])}
    dcp.load(loaded, checkpoint_id=folder[0], process_group=group)
    return [loaded["a"].full_tensor()]


def functional(group, rank):
    import torch.distributed._functional_collectives as funcol

    mine = torch.arange(8.0) + rank
    return [
        funcol.all_reduce(mine, "sum", group).wait(),
        funcol.all_gather_tensor(mine, 0, group).wait(),
        funcol.reduce_scatter_tensor(mine, "sum", 0, group).wait(),
        funcol.all_to_all_single(mine, None, None, group).wait(),
        *[t.wait() for t in funcol.all_reduce_coalesced([mine, mine * 2], "sum", group)],
        *[t.wait() for t in funcol.all_gather_into_tensor_coalesced([mine, mine * 2], group)],
        *[t.wait() for t in funcol.reduce_scatter_tensor_coalesced(
            [mine, mine * 2], "sum", [0, 0], group)],
    ]


USERS = [ddp, ddp_bf16, ddp_in_hoop_memory, ddp_sparse, ddp_sparse_by_our_hook, fsdp, dtensor, checkpoint, functional]


def run(_name, method, size, rank):
    dist.init_process_group("hoop", init_method=method, world_size=size, rank=rank,
                            timeout=timedelta(seconds=60))
    gloo = dist.new_group(backend="gloo")
    for user in USERS:
        ours, theirs = user(dist.group.WORLD, rank), user(gloo, rank)
        assert len(ours) == len(theirs) > 0
        for a, b in zip(ours, theirs):
            assert torch.equal(a, b), (user.__name__, a, b)
        print(user.__name__, "same bits")
    dist.destroy_process_group()
