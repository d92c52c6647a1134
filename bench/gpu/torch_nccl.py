"""PyTorch's backend "nccl": are results right, and DistributedDataParallel's gradients, and replays of graphs; and
how long does an all_reduce take?

    hooprun --nccl -n RANKS torch_nccl.py       over hoop's libnccl.so.2; ranks take the GPUs in turn
    hooprun -n RANKS torch_nccl.py              over NCCL itself, which needs a GPU for each rank
    hooprun -n RANKS torch_nccl.py cpu          over hoop.torch without a GPU, to test this program

77: no PyTorch, or it has no GPU; the line before says which.
"""
import os
import sys
import time

try:
    import torch
    import torch.distributed as dist
except ImportError as why:
    print(f"skipped: {why}")
    sys.exit(77)

ON_CPU = sys.argv[1:] == ["cpu"]
if not ON_CPU and not (torch.cuda.is_available() and dist.is_nccl_available()):
    print(f"skipped: PyTorch {torch.__version__} finds no GPU, or is not for CUDA")
    sys.exit(77)

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LOCAL = int(os.environ.get("LOCAL_RANK", RANK))
DEVICE = torch.device("cpu") if ON_CPU else torch.device("cuda", LOCAL % torch.cuda.device_count())
COUNTS = (1, 7, 1000, 300_007)
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64)


def settle():
    if not ON_CPU:
        torch.cuda.synchronize()


def expect(got, want, what):
    settle()
    if not torch.equal(got.cpu(), want.cpu()):
        print(f"rank {RANK}: {what} is wrong: {got.flatten()[:4].tolist()}, expected {want.flatten()[:4].tolist()}")
        sys.exit(7)


def of(rank, count, dtype=torch.float32):
    """A rank's input: small whole numbers, whose sums and products are exact in every type."""
    return ((torch.arange(count) + rank) % 3 + 1).to(dtype)


def stack(count, dtype=torch.int64):
    return torch.stack([of(rank, count, dtype) for rank in range(RANKS)])


def check_reductions():
    ops = {"sum": (dist.ReduceOp.SUM, lambda x: x.sum(0)), "max": (dist.ReduceOp.MAX, lambda x: x.amax(0)),
           "min": (dist.ReduceOp.MIN, lambda x: x.amin(0))}
    if RANKS <= 4:
        ops["prod"] = (dist.ReduceOp.PRODUCT, lambda x: x.prod(0))
    for count in COUNTS:
        for dtype in TYPES:
            for name, (op, fold) in ops.items():
                data = of(RANK, count, dtype).to(DEVICE)
                dist.all_reduce(data, op)
                expect(data, fold(stack(count)).to(dtype), f"all_reduce {name} of {count} {dtype}")
    if not ON_CPU:
        data = of(RANK, 1000).to(DEVICE) * RANKS
        dist.all_reduce(data, dist.ReduceOp.AVG)
        expect(data, stack(1000).sum(0).float(), "all_reduce avg")


def check_moves():
    for count in COUNTS:
        mine, every = of(RANK, count).to(DEVICE), stack(count, torch.float32)
        data = mine.clone()
        dist.broadcast(data, RANKS - 1)
        expect(data, every[-1], f"broadcast of {count}")
        data = mine.clone()
        dist.reduce(data, 0)
        if RANK == 0:
            expect(data, every.sum(0), f"reduce of {count}")
        data = torch.empty(RANKS * count, device=DEVICE)
        dist.all_gather_into_tensor(data, mine)
        expect(data, every.flatten(), f"all_gather of {count}")
        data = torch.empty(count, device=DEVICE)
        dist.reduce_scatter_tensor(data, every.flatten().to(DEVICE))
        expect(data, every[RANK] * RANKS, f"reduce_scatter of {count}")
        data = torch.empty(RANKS * count, device=DEVICE)
        dist.all_to_all_single(data, mine.repeat(RANKS))
        expect(data, every.flatten(), f"all_to_all of {count}")
        data = torch.empty(count, device=DEVICE)
        for request in [] if RANKS == 1 else dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, (RANK + 1) % RANKS),
                                                                  dist.P2POp(dist.irecv, data, (RANK - 1) % RANKS)]):
            request.wait()
        if RANKS > 1:
            expect(data, every[RANK - 1], f"send and recv of {count}")
    dist.barrier()


def check_order():
    """A call runs behind what is on its stream, and before what comes there later."""
    stream = torch.cuda.Stream()
    data = torch.zeros(1 << 20, device=DEVICE)
    settle()
    with torch.cuda.stream(stream):
        for step in range(20):
            data += 1
            dist.all_reduce(data)
            data /= RANKS
    expect(data, torch.full((1 << 20,), 20.0), "20 sums on a stream")


def check_graph():
    data, stream = torch.ones(1000, device=DEVICE), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            dist.all_reduce(data)
    settle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        dist.all_reduce(data)
    data.fill_(1)
    for _ in range(3):
        graph.replay()
    expect(data, torch.full((1000,), float(RANKS**3)), "3 replays of an all_reduce")


def train(model, images, labels):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    for step in range(20):
        part = slice(step * len(images) // 20, (step + 1) * len(images) // 20)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[part]), labels[part]).backward()
        optimizer.step()
    settle()


def make():
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(64, 300), torch.nn.Tanh(), torch.nn.Linear(300, 10)).to(DEVICE)


def check_training():
    """DistributedDataParallel gives the same parameters as one process that trains with all batches at once."""
    torch.manual_seed(4)
    images, labels = torch.randn(20, RANKS, 8, 64), torch.randint(10, (20, RANKS, 8))
    alone, ours = make(), make()
    train(alone, images.reshape(-1, 64).to(DEVICE), labels.reshape(-1).to(DEVICE))
    together = torch.nn.parallel.DistributedDataParallel(ours, device_ids=None if ON_CPU else [DEVICE.index])
    train(together, images[:, RANK].reshape(-1, 64).to(DEVICE), labels[:, RANK].reshape(-1).to(DEVICE))
    for a, b in zip(alone.parameters(), ours.parameters()):
        if not torch.allclose(a, b, rtol=1e-3, atol=1e-4):
            print(f"rank {RANK}: after 20 steps parameters differ by {(a - b).abs().max()}")
            sys.exit(7)
        theirs = b.detach().clone()
        dist.broadcast(theirs, 0)
        expect(b.detach(), theirs, "a parameter, which rank 0 has by other bits,")


def measure(count, times=20):
    data = torch.ones(count, device=DEVICE)
    for _ in range(3):
        dist.all_reduce(data, dist.ReduceOp.MAX)
    settle()
    dist.barrier()
    start = time.monotonic()
    for _ in range(times):
        dist.all_reduce(data, dist.ReduceOp.MAX)
    settle()
    return (time.monotonic() - start) / times * 1e6


def library():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libnccl" in line}
    return ", ".join(sorted(paths)) or "no libnccl"


def main():
    if ON_CPU:
        import hoop.torch  # noqa: F401  torch before 2.14 does not find it by itself
    else:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("hoop" if ON_CPU else "nccl")
    checks = [check_reductions, check_moves, check_training]
    checks += [] if ON_CPU else [check_order, check_graph]
    for check in checks:
        check()
    times = [(bytes_, measure(bytes_ // 4)) for bytes_ in (8, 1 << 20, 1 << 20 if ON_CPU else 256 << 20)]
    if RANK == 0:
        print(f"# PyTorch {torch.__version__}, {RANKS} ranks on {DEVICE.type}, {library()}")
        for bytes_, us in times:
            print(f"{bytes_:10} {us:10.1f} us {bytes_ / us / 1e3:8.2f} GB/s")
        print("right")
    dist.destroy_process_group()


main()
