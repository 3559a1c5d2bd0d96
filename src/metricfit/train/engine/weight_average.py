"""An exponential moving average of the weights, with which a model is validated, kept and returned.

torch's ``AveragedModel`` averages a copy of a module. Members of a population are not modules but rows of stacked
tensors, so here the average is a dictionary of tensors for both, moved by torch's own function.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase as Norm
from torch.optim.swa_utils import get_ema_multi_avg_fn


class WeightAverage:
    """The average of some tensors, which ``update`` moves towards their present values.

    After update n, counted from 0, average = d average + (1 - d) present with d = min(decay, (1 + n) / (10 + n)). The
    smaller d at the start lets the average forget the initial weights, as in TensorFlow's ExponentialMovingAverage.
    Averages have at least the precision of float32: in bfloat16 a small move would be rounded to none.

    Args:
        decay: The decay, between 0 and 1.
        present: The tensors by name, whose values change in place.

    Example:
        >>> weight = torch.tensor([0.0])
        >>> average = WeightAverage(0.999, {"weight": weight})
        >>> weight += 10
        >>> average.update()
        >>> with average.applied():
        ...     print(weight)
        tensor([9.])
        >>> weight
        tensor([10.])
    """

    def __init__(self, decay: float, present: Mapping[str, Tensor]) -> None:
        self.decay, self.present, self.updates = decay, dict(present), 0
        self.averages = {
            name: tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
            for name, tensor in self.present.items()
        }

    def update(self) -> None:
        """Move the average towards the present values, after an optimiser step."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        averages = list(self.averages.values())
        present = [self.present[name].detach().to(average.dtype) for name, average in self.averages.items()]
        get_ema_multi_avg_fn(decay)(averages, present, self.updates)  # type: ignore[no-untyped-call]
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Give the tensors the values of their averages inside the block."""
        present = {name: tensor.detach().clone() for name, tensor in self.present.items()}
        self.apply()
        try:
            yield
        finally:
            self._write(present)

    def apply(self) -> None:
        """Give the tensors the values of their averages."""
        self._write(self.averages)

    @torch.no_grad()
    def _write(self, values: Mapping[str, Tensor]) -> None:
        for name, tensor in self.present.items():
            tensor.copy_(values[name])

    def keep(self, rows: Tensor, present: Mapping[str, Tensor]) -> None:
        """Continue with these rows of all averages, for tensors that have these rows only."""
        self.present = dict(present)
        self.averages = {name: average[rows] for name, average in self.averages.items()}

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {"averages": self.averages, "updates": self.updates}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        devices = {name: tensor.device for name, tensor in self.present.items()}
        self.averages = {name: state["averages"][name].to(device) for name, device in devices.items()}
        self.updates = state["updates"]


def name_averaged_buffers(model: nn.Module) -> list[str]:
    """Return the names of the buffers that are averaged with the weights: running means and variances.

    Other buffers, such as masks that hold infinities, keep their present values.

    Example:
        >>> name_averaged_buffers(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
        ['1.running_mean', '1.running_var']
    """
    statistics = {
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        if isinstance(module, Norm)
        for name in ("running_mean", "running_var")
    }
    return [name for name, _ in model.named_buffers() if name in statistics]
