"""The state of a run in a checkpoint: its schema, and its bytes.

A state is written as one safetensors file: tensors as tensors, everything else as JSON. Nothing is pickled. Whatever is
read is checked here, in one place, because a folder of checkpoints may be damaged or come from somebody else.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor

from metricfit.errors import InvalidTypeError, MetricfitError, quote, shorten
from metricfit.train.monitor import Measured

PLAIN = "plain"  # the JSON is stored as a tensor of bytes, because the file's header is limited to 100 MB
LARGEST = 2**53  # of whole numbers, which JSON keeps exactly


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
    def read(cls, saved: dict[str, Any], step: int) -> RunState:
        """Read a state of the step in the name of its file.

        Raises:
            DamagedError: A part is missing or of another kind, or the state is of another step.
        """
        try:
            members = len(saved["loop"]["standings"])
            fresh = asdict(Position(loss_sum=[0.0] * members, standings=[Standing() for _ in range(members)]))
            check_alike(saved, {"loop": fresh, "history": None, "learner": {}, "random": None}, "state")
            history = [json.loads(epoch) for epoch in saved["history"]]
            for row in (row for rows in history for row in rows):
                check_alike(row, {"stage": "", "epoch": 0, "step": 0, "train_loss": 0.0}, "history")
            standings = [
                Standing(**{**each, "measured": Measured(**each["measured"])}) for each in saved["loop"]["standings"]
            ]
            position = Position(**{**saved["loop"], "standings": standings})
            places = (position.stage, position.epoch, position.batch, position.step)
            if not members or any(isinstance(place, float) or place < 0 for place in places):
                raise DamagedError(f"its loop is at {places}, with {members} members")
        except Exception as error:  # values of another kind can fail anywhere
            raise DamagedError(f"it does not hold the state of a run: {shorten(error)}") from error
        if position.step != step:
            raise DamagedError(f"it belongs to step {position.step}, not to the step in its name")
        return cls(position, saved["history"], saved["learner"], saved["random"])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_alike(saved: Any, fresh: Any, path: str) -> None:
    """Refuse a saved part that is not of the kind of a fresh one, at any depth.

    Args:
        saved: The saved part.
        fresh: The same part at the start of a stage; a None in it may have become anything, and a float a
            tuple of numbers.
        path: The name of the part.

    Raises:
        DamagedError: A key is missing, or a value is of another kind, length or shape.

    Example:
        >>> check_alike({"lr": 0.1, "betas": (0.9, 0.99)}, {"lr": 0.2, "betas": (0.9, 0.999)}, "group")
    """
    if isinstance(fresh, dict):
        if not isinstance(saved, dict) or not saved.keys() >= fresh.keys():
            raise DamagedError(f"{path} does not hold {', '.join(map(str, fresh))}")
        for name, value in fresh.items():
            check_alike(saved[name], value, f"{path}.{name}")
    elif isinstance(fresh, (list, tuple)):
        if not isinstance(saved, (list, tuple)) or len(saved) != len(fresh):
            raise DamagedError(f"{path} cannot be {quote(saved)}")
        for number, value in enumerate(fresh):
            check_alike(saved[number], value, f"{path}[{number}]")
    elif isinstance(fresh, Tensor):
        if not isinstance(saved, Tensor) or saved.shape != fresh.shape or saved.dtype != fresh.dtype:
            raise DamagedError(f"{path} is not a tensor of shape {tuple(fresh.shape)} and type {fresh.dtype}")
    elif fresh is not None:
        same = type(saved) is type(fresh) or (_is_number(saved) and _is_number(fresh))
        same = same or (isinstance(fresh, float) and isinstance(saved, tuple) and all(map(_is_number, saved)))
        if not same or (isinstance(saved, int) and abs(saved) >= LARGEST):
            raise DamagedError(f"{path} cannot be {quote(saved)}")


def check_moments(saved: Any, weights: Iterable[Tensor], *, exact: bool) -> None:
    """Refuse what an optimizer keeps for its weights if it cannot belong to them.

    Args:
        saved: The state of each weight by its number.
        weights: The weights, in the order of their numbers.
        exact: Whether tensors must have the shape of their weight; otherwise their sizes may also be 1.

    Raises:
        DamagedError: A tensor has another shape. A fused optimizer would read the memory behind it.
    """
    numbered = dict(enumerate(weights))
    for number, state in saved.items():
        weight = numbered[number]
        for name, moment in state.items():
            if not isinstance(moment, Tensor) or moment.numel() == 1:
                continue
            fits = len(moment.shape) == len(weight.shape) and all(
                size == wanted or (size == 1 and not exact)
                for size, wanted in zip(moment.shape, weight.shape, strict=True)
            )
            if not fits or (exact and moment.dtype != weight.dtype):
                raise DamagedError(f"the optimizer's {name} {number} is of shape {tuple(moment.shape)}, {moment.dtype}")


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
