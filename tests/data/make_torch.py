#!/usr/bin/env python3
"""Makes trainer_torch.safetensors: what PyTorch computes, for tests/trainer to compare with.

    make_torch.py OUT        (any PyTorch from 1.13 on; the file was made with 1.13.1)

Two small nets that have every kind of layer. NET.image, .label: a batch. NET.TENSOR: as drawn by
torch.manual_seed(7). NET.grad.TENSOR: of the mean loss. NET.sgd.TENSOR, NET.adam.TENSOR: after three
steps. NET.loss: first, then in evaluation after the steps of SGD. perm.N: torch.randperm.
"""
import json
import struct
import sys

import torch
from torch import nn
import torch.nn.functional as F


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 5, 2, padding=1)
        self.fc1 = nn.Linear(5 * 3 * 3, 7)
        self.fc2 = nn.Linear(7, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.flatten(1)))), dim=1)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 3 * 4, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        return F.log_softmax(self.fc(x.flatten(1)), dim=1)


def train(make, image, label, optimizer):
    torch.manual_seed(7)
    net = make()
    step = optimizer(net.parameters())
    for _ in range(3):
        step.zero_grad()
        F.nll_loss(net(image), label).backward()
        step.step()
    return net


def record(out, name, make, shape):
    torch.manual_seed(7)
    net = make()
    out.update({f"{name}.{k}": v.detach().clone() for k, v in net.named_parameters()})
    image, label = torch.randn(6, *shape), torch.tensor([3, 0, 2, 1, 0, 3])
    loss = F.nll_loss(net(image), label)
    loss.backward()
    out.update({f"{name}.grad.{k}": v.grad for k, v in net.named_parameters()})
    out.update({f"{name}.{k}": v for k, v in net.named_buffers() if v.dtype == torch.float32})
    sgd = train(make, image, label,
                lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-3))
    adam = train(make, image, label, lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=1e-3))
    out.update({f"{name}.sgd.{k}": v.detach() for k, v in sgd.named_parameters()})
    out.update({f"{name}.adam.{k}": v.detach() for k, v in adam.named_parameters()})
    sgd.eval()
    after = F.nll_loss(sgd(image), label)
    out.update({f"{name}.image": image, f"{name}.label": label.to(torch.uint8),
                f"{name}.loss": torch.stack([loss.detach(), after.detach()])})


def write(path, tensors):
    kinds = {torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8"}
    header, data = {}, b""
    # Each at a multiple of its elements' size.
    for name, tensor in sorted(tensors.items(), key=lambda i: -i[1].element_size()):
        raw = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": kinds[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def main():
    out = {}
    record(out, "plain", Plain, (1, 12, 12))
    record(out, "norm", Norm, (3, 6, 8))
    for n in (1, 10, 1000):
        generator = torch.Generator()
        generator.manual_seed(n + 5)
        out[f"perm.{n}"] = torch.randperm(n, generator=generator)
    write(sys.argv[1], out)


if __name__ == "__main__":
    main()
