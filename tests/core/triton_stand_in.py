"""A stand-in for Triton that runs its programs on the CPU, one after the other, with torch's float32 operations."""

import importlib
import sys
from contextlib import nullcontext
from itertools import product
from types import ModuleType, SimpleNamespace

import torch


class Pointer:
    def __init__(self, tensor, at=0):
        self.data = tensor.as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
        self.at, self.dtype = tensor.storage_offset() + at, SimpleNamespace(element_ty=tensor.dtype)

    def __add__(self, offset):
        moved = object.__new__(Pointer)
        moved.data, moved.at, moved.dtype = self.data, self.at + offset, self.dtype
        return moved


class Jitted:
    """What ``triton.jit`` makes of a function: called within a program, or launched over a grid."""

    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def __getitem__(self, grid):
        def launch(*args, num_warps=4, **kwargs):
            args = [Pointer(given) if isinstance(given, torch.Tensor) else given for given in args]
            args = [torch.tensor(given) if isinstance(given, float) else given for given in args]  # float32
            language = sys.modules["triton.language"]
            language.grid = grid
            for language.program in product(*map(range, grid)):
                self.function(*args, **kwargs)

        return launch


def load(pointer, mask=None, other=0.0, eviction_policy=""):
    at = torch.as_tensor(pointer.at)
    if mask is None:
        return pointer.data[at]
    at, mask = torch.broadcast_tensors(at, mask)
    return torch.where(mask, pointer.data[torch.where(mask, at, 0)], other)


def store(pointer, value, mask=None, eviction_policy=""):
    at = torch.as_tensor(pointer.at)
    if mask is not None:
        at, mask = torch.broadcast_tensors(at, mask)
        at, value = at[mask], value.expand(mask.shape)[mask]
    pointer.data[at] = value


def atomic_add(pointer, value, mask, sem=None):
    pointer.data.index_add_(0, torch.as_tensor(pointer.at)[mask], value[mask])


def reduce(tiles, axis, combine):
    entries = list(zip(*(tile.unbind(axis) for tile in tiles), strict=True))
    result = entries[0]
    for entry in entries[1:]:
        result = combine(*result, *entry)
    return result


def sum_of(x, axis=None):
    return x.sum() if axis is None else x.sum(axis)


def max_of(x, axis):
    return x.amax(axis)


def min_of(x, axis):
    return x.amin(axis)


def associative_scan(inputs, axis, combine):
    """One element after another; ``combine`` is called with tensors of no axes."""
    parts = [[column[0] for column in inputs]]
    for i in range(1, len(inputs[0])):
        parts.append(list(combine(*parts[-1], *(column[i] for column in inputs))))
    return tuple(torch.stack(column) for column in zip(*parts, strict=True))


def jit(function=None, **options):
    """Triton's decorator, with or without options."""
    return Jitted if function is None else Jitted(function)


def language_module():
    language = ModuleType("triton.language")
    functions = {
        "abs": torch.abs,
        "associative_scan": associative_scan,
        "cumsum": lambda x, axis=0: x.cumsum(axis),
        "exp": torch.exp,
        "sqrt": torch.sqrt,
        "sin": torch.sin,
        "cos": torch.cos,
        "debug_barrier": lambda: None,
        "sqrt_rn": torch.sqrt,
        "sum": sum_of,
        "max": max_of,
        "min": min_of,
        "where": lambda *operands: torch.where(*map(torch.as_tensor, operands)),
        "minimum": lambda a, b: torch.minimum(*map(torch.as_tensor, (a, b))),
        "maximum": lambda a, b: torch.maximum(*map(torch.as_tensor, (a, b))),
        "arange": torch.arange,
        "static_range": range,
        "cdiv": lambda a, b: -(-a // b),
        "full": lambda shape, value, dtype: torch.full(shape, value, dtype=dtype),
        "zeros": lambda shape, dtype: torch.zeros(shape, dtype=dtype),
        "range": lambda *bounds, num_stages: range(*bounds),
        "reduce": reduce,
        "atomic_add": atomic_add,
        "load": load,
        "store": store,
        "program_id": lambda axis: torch.tensor(language.program[axis]),
        "num_programs": lambda axis: torch.tensor(language.grid[axis]),
        "constexpr": object,
        "int8": torch.int8,
        "int32": torch.int32,
        "int64": torch.int64,
        "float32": torch.float32,
        "float64": torch.float64,
    }
    for name, function in functions.items():
        setattr(language, name, function)
    return language


def install(monkeypatch, *modules):
    """Import modules of Triton programs anew with the stand-in; without the monkeypatch they need the real Triton."""
    language, triton = language_module(), ModuleType("triton")
    triton.jit, triton.language, triton.__version__ = jit, language, "0.0"
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.language", language)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    for name in modules:
        monkeypatch.delitem(sys.modules, f"metricfit.core.kernels.{name}", raising=False)
    for name in modules:
        importlib.import_module(f"metricfit.core.kernels.{name}")


def remove(*modules):
    """Forget the modules that were imported with the stand-in, in their packages too."""
    for name in modules:
        package, _, module = f"metricfit.core.kernels.{name}".rpartition(".")
        sys.modules.pop(f"{package}.{module}", None)
        vars(sys.modules[package]).pop(module, None)
