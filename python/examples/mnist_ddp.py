"""MNIST with DistributedDataParallel, on any backend, with checkpoints.

    torchrun --nproc-per-node 2 mnist_ddp.py --backend hoop [--epochs 3] [--data FOLDER] [--fsdp]

hoop is not imported: torch finds it. --data is a folder with MNIST's four files as they are
published (train-images-idx3-ubyte.gz, ...); without it the digits are made up, which is enough to see
that training works and how fast. --resume goes on from the checkpoint of --checkpoint.
"""

import argparse
import gzip
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(torch.nn.Module):
    """The classic one: two convolutions, two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 32, 3)
        self.conv2 = torch.nn.Conv2d(32, 64, 3)
        self.fc1 = torch.nn.Linear(9216, 128)
        self.fc2 = torch.nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def idx(path):
    raw = gzip.open(path).read() if str(path).endswith(".gz") else path.read_bytes()
    shape = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return torch.frombuffer(bytearray(raw[4 + 4 * len(shape) :]), dtype=torch.uint8).view(shape)


def load(folder):
    """Images of 1 x 28 x 28 in 0 to 1, and labels."""
    if folder is not None:
        def find(name):
            for path in folder.glob(name + "*"):
                return path
            raise FileNotFoundError(f"{folder} has no {name}*")

        images, labels = idx(find("train-images")), idx(find("train-labels"))
        return TensorDataset(images[:, None].float() / 255, labels.long())
    # Made-up data: a pattern for each digit, with noise.
    drawn = torch.Generator().manual_seed(1)
    patterns = torch.rand(10, 1, 28, 28, generator=drawn)
    labels = torch.randint(10, (4096,), generator=drawn)
    return TensorDataset(patterns[labels] + 0.3 * torch.randn(4096, 1, 28, 28, generator=drawn), labels)


def wrapped(net, options):
    if options.fsdp:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for layer in (net.fc1, net):
            fully_shard(layer, mesh=mesh)
        return net
    return DistributedDataParallel(net, gradient_as_bucket_view=True)


def save(state, path):
    """Replaces the checkpoint as a whole: a process that is killed meanwhile leaves the one before."""
    unfinished = path.with_name(path.name + ".tmp")
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="hoop")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64, help="of each rank")
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--fsdp", action="store_true", help="FSDP2 in place of DDP; no checkpoints")
    options = parser.parse_args()
    if options.fsdp and (options.checkpoint or options.resume):
        parser.error("--fsdp goes without --checkpoint and --resume")
    if options.resume and not (options.checkpoint and options.checkpoint.exists()):
        parser.error("--resume needs a --checkpoint that exists")
    if options.checkpoint and not options.checkpoint.parent.is_dir():
        parser.error(f"--checkpoint {options.checkpoint}: there is no folder {options.checkpoint.parent}")
    if options.epochs < 1 or options.batch < 1:
        parser.error(f"--epochs {options.epochs} --batch {options.batch}: expected at least 1")

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    dist.init_process_group(options.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net = wrapped(Net(), options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if options.resume:
        saved = torch.load(options.checkpoint)  # every rank reads what rank 0 wrote
        net.module.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1

    data = load(options.data)
    sampler = DistributedSampler(data, size, rank, seed=1)
    loader = DataLoader(data, options.batch, sampler=sampler, drop_last=True)
    if not len(loader):
        parser.error(f"--batch {options.batch}: each of {size} ranks has only {len(sampler)} images")
    for epoch in range(first, first + options.epochs):
        sampler.set_epoch(epoch)
        begun, right, loss_sum = time.perf_counter(), 0, 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            outputs = net(images)
            loss = F.cross_entropy(outputs, labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item()
            right += (outputs.argmax(1) == labels).sum().item()
        took = time.perf_counter() - begun
        totals = torch.tensor([loss_sum, float(right)])
        dist.all_reduce(totals)
        if rank == 0:
            samples = len(loader) * options.batch * size
            print(f"epoch {epoch}: loss {totals[0].item() / len(loader) / size:.4f}, accuracy "
                  f"{totals[1].item() / samples:.4f}, {samples / took:.0f} samples/s", flush=True)
            if options.checkpoint:
                save({"net": net.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch},
                     options.checkpoint)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
