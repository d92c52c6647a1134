"""Checks the version of torch: what a backend in Python must be has changed, and may change again."""

import warnings

import torch

TORCH = tuple(int(part) for part in torch.__version__.split(".")[:2])
OLDEST, NEWEST = (2, 9), (2, 15)  # the range in pyproject.toml
_RANGE = "hoop.torch knows torch {}.{} to {}.{}".format(*OLDEST, *NEWEST)

if TORCH < OLDEST:
    raise ImportError(f"{_RANGE}, and this is {torch.__version__}, which is too old")
if TORCH > NEWEST:
    warnings.warn(f"{_RANGE}, and this is {torch.__version__}, with which it may not work", stacklevel=2)
