"""torch.compile and this package: what C++ calls while a compiled function runs, as DDP's forward() has
a broadcast, Python hands to torch's tracer, which would compile it, and what that calls. It has a mark for
code that is to be run as it is, with all that it calls; a mark costs a call nothing.
"""

from __future__ import annotations

from types import CodeType, FunctionType, ModuleType
from typing import Iterator

import torch


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Those of a module, and its classes' methods."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) == module.__name__:
            for part in vars(thing).values() if isinstance(thing, type) else (thing,):
                if isinstance(part, FunctionType):
                    yield part


def _codes(code: CodeType) -> Iterator[CodeType]:
    """It and the code of the functions that it makes."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def untrace(*modules: ModuleType) -> None:
    """From now on, for all functions of these; of a torch that has no such mark, nothing."""
    try:
        tracer = torch._C._dynamo.eval_frame
        skip = tracer._FrameAction.SKIP
        mark, as_it_is = tracer.set_code_exec_strategy, tracer._FrameExecStrategy(skip, skip)
    except AttributeError:
        return
    for module in modules:
        for function in _functions(module):
            for code in _codes(function.__code__):
                mark(code, as_it_is)
