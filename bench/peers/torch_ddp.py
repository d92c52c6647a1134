"""One rank of PyTorch training the trainer's net, for bench/training/trainer.sh.

    hooprun -n RANKS torch_ddp.py FOLDER STEPS BATCH default|channels_last

The model `mnist` of examples/trainer on the digits in FOLDER, SGD with momentum, one thread. With
several ranks: DistributedDataParallel over gloo; with one: the bare module, which is faster. What the trainer
does during training is not counted against PyTorch if it can be avoided: images are normalized beforehand, and a
batch is a single indexing. Rank 0 prints the version and the milliseconds of a step.
"""
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"
import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

WARM = 10  # steps before the clock starts


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def read(folder, kind, header):
    data = numpy.fromfile(f"{folder}/train-{kind}-ubyte", dtype=numpy.uint8)[header:]
    return torch.from_numpy(data)


def main():
    folder, steps, batch, layout = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    labels = read(folder, "labels-idx1", 8).long()
    images = read(folder, "images-idx3", 16).view(-1, 1, 28, 28).float().div_(255)
    images = (images - images.mean()) / images.std()
    model = Net()
    if layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)
    if ranks > 1:
        dist.init_process_group("gloo", init_method="env://", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    order = torch.randperm(len(labels))[rank::ranks]
    began = 0.0
    for step in range(WARM + steps):
        if step == WARM:
            if ranks > 1:
                dist.barrier()
            began = time.monotonic()
        first = step * batch % (len(order) - batch)
        mine = order[first : first + batch]
        x, y = images[mine], labels[mine]
        if layout == "channels_last":
            x = x.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        F.nll_loss(model(x), y).backward()
        optimizer.step()
    if ranks > 1:
        dist.barrier()
    if rank == 0:
        print(torch.__version__, (time.monotonic() - began) / steps * 1e3)
    if ranks > 1:
        dist.destroy_process_group()


main()
