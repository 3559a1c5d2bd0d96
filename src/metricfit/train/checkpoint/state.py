"""The state of a run in a checkpoint: its schema, and its bytes.

A state is written as one safetensors file: tensors as tensors, everything else as JSON. Nothing is pickled.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from metricfit.errors import InvalidTypeError, MetricfitError, shorten
from metricfit.train.monitor import Measured

PLAIN = "plain"  # the JSON is stored as a tensor of bytes, because the file's header is limited to 100 MB


class DamagedError(MetricfitError, ValueError):
    """The content of a checkpoint is damaged."""


@dataclass
class Standing:
    """The best measurement of a member in a stage so far, NaN before the first, and the number of epochs since."""

    measured: Measured = field(default_factory=lambda: Measured(math.nan, math.nan))
    waited: int = 0
    succeeded: bool = False  # whether an epoch has met the objective's requirements

    def improve(self, measured: Measured) -> None:
        """Make this measurement the best."""
        self.measured, self.waited = measured, 0


@dataclass
class Position:
    """The position of the loop; ``loss_sum`` and ``standings`` have one entry per member."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: list[float] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def begin_stage(self, number: int, members: int) -> None:
        """Go to the first batch of a stage."""
        self.stage, self.epoch, self.batch = number, 0, 0
        self.loss_sum = [0.0] * members
        self.standings = [Standing() for _ in range(members)]

    def next_epoch(self) -> None:
        """Go to the first batch of the next epoch."""
        self.epoch, self.batch, self.loss_sum = self.epoch + 1, 0, [0.0] * len(self.loss_sum)


@dataclass
class RunState:
    """Everything from which a run continues.

    Attributes:
        loop: The position of the loop.
        history: The rows of each epoch, as JSON.
        learner: The state of the models, their optimizers and objectives.
        random: The states of the random number generators of each process.
    """

    loop: Position
    history: list[str]
    learner: dict[str, Any]
    random: list[dict[str, Any]]

    def to_saved(self) -> dict[str, Any]:
        """Return the state as ``read`` takes it."""
        return {"loop": asdict(self.loop), "history": self.history, "learner": self.learner, "random": self.random}

    @classmethod
    def read(cls, saved: dict[str, Any]) -> RunState:
        """Return the state that ``to_saved`` returned."""
        standings = [
            Standing(**{**each, "measured": Measured(**each["measured"])}) for each in saved["loop"]["standings"]
        ]
        position = Position(**{**saved["loop"], "standings": standings})
        return cls(position, saved["history"], saved["learner"], saved["random"])


def pack(state: dict[str, Any]) -> bytes:
    """Convert a state to bytes without pickling.

    Args:
        state: Nested dictionaries, lists and tuples of tensors and plain values.

    Returns:
        The content of a safetensors file. `unpack` returns tensors on the CPU, and plain dictionaries, lists and tuples
        instead of their subclasses.

    Raises:
        TypeError: The state holds another type; the message says where.

    Example:
        >>> unpack(pack({"weights": torch.tensor([1.0, 2.0]), 3: ("plain", None)}))
        {'weights': tensor([1., 2.]), 3: ('plain', None)}
    """
    tensors: dict[str, Tensor] = {}
    plain = json.dumps(_without_tensors(state, tensors, "state")).encode()
    tensors[PLAIN] = torch.frombuffer(bytearray(plain), dtype=torch.uint8)
    return to_bytes(tensors)


def unpack(content: bytes) -> dict[str, Any]:
    """Return the state that `pack` converted.

    Raises:
        DamagedError: The content is not what ``pack`` writes.
    """
    try:
        tensors = from_bytes(content)
        header = 8 + int.from_bytes(content[:8], "little")
        first, end = json.loads(content[8:header])[PLAIN]["data_offsets"]
        state = _with_tensors(json.loads(content[header + first : header + end]), tensors)
    except Exception as error:  # arbitrary bytes can fail at any point of reading them
        raise DamagedError(f"its content cannot be read: {shorten(error)}") from error
    if not isinstance(state, dict):
        raise DamagedError("its content is not the state of a run")
    return state


def _without_tensors(value: Any, tensors: dict[str, Tensor], path: str) -> Any:
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_complex() or value.is_quantized:
            raise InvalidTypeError(f"a checkpoint cannot hold {path}, a tensor of {value.layout}, {value.dtype}")
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if isinstance(value, dict):
        pairs = [
            [_without_tensors(key, tensors, f"a key of {path}"), _without_tensors(entry, tensors, f"{path}[{key!r}]")]
            for key, entry in value.items()
        ]
        return {"dict": pairs}
    if isinstance(value, (list, tuple)):
        parts = [_without_tensors(entry, tensors, f"{path}[{index}]") for index, entry in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise InvalidTypeError(
        f"a checkpoint holds tensors and plain values, but {path} is {type(value).__name__}: {value!r}"
    )


def _with_tensors(plain: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_with_tensors(key, tensors): _with_tensors(value, tensors) for key, value in content}
    parts = [_with_tensors(entry, tensors) for entry in content]
    return tuple(parts) if kind == "tuple" else parts
