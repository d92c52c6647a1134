"""torch.compile and this package. While a compiled function runs, Python hands any function that C++ calls to
torch's tracer, which would compile it and its callees; DDP's forward(), for instance, calls a broadcast. So
hoop's functions get the tracer's mark for code that is run as it is, with its callees, which costs nothing in
a call.
"""

from __future__ import annotations

from types import CodeType, FunctionType, ModuleType
from typing import Iterator

import torch


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions of a module, and the methods of its classes."""
    for thing in vars(module).values():
        if getattr(thing, "__module__", None) == module.__name__:
            for part in vars(thing).values() if isinstance(thing, type) else (thing,):
                if isinstance(part, FunctionType):
                    yield part


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions that it makes."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def untrace(*modules: ModuleType) -> None:
    """Marks all functions of these modules; does nothing if torch has no such mark."""
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
