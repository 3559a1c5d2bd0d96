"""What a run is made of, as plain values, so that another run is not taken for it."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from metricfit._version import __version__
from metricfit.train.order import Order
from metricfit.train.samples import FromLoader, InMemory, Source
from metricfit.train.stage import Stage

ROWS = 1024
NOT_COMPARED = ("versions", "checkpoint_every")


def spec_of(
    model: nn.Module,
    stages: Sequence[Stage],
    data: Source,
    validation: Source | None,
    order: Order,
    **settings: Any,
) -> dict[str, Any]:
    """The model's shapes, the stages, the data by length and hash, and the settings given by name."""
    spec = {
        "model": {name: [*given.shape, str(given.dtype)] for name, given in model.state_dict().items()},
        "stages": [
            {
                "name": stage.name,
                "objective": _described(stage.objective),
                "epochs": stage.epochs,
                "lr": stage.lr,
                "optimizer": _described(stage.optimizer),
                "scheduler": _described(stage.scheduler),
                "monitor": _described(stage.watched),
                "patience": stage.patience,
            }
            for stage in stages
        ],
        "train": _data(data),
        "validation": None if validation is None else _data(validation),
        "batch_size": order.batch_size,
        "stratified": order.stratified,
        "oversample": order.oversample,
        **settings,
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }
    plain: dict[str, Any] = json.loads(json.dumps(spec, default=_plain))
    return plain


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where two specs differ, each as a sentence; versions and the checkpoints' interval may."""
    then, today = ({key: spec[key] for key in spec if key not in NOT_COMPARED} for spec in (before, now))
    return list(_differing(then, today, ""))


def _differing(before: Any, now: Any, where: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted(before.keys() | now.keys()):
            yield from _differing(before.get(key), now.get(key), f"{where}.{key}" if where else key)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, pair in enumerate(zip(before, now, strict=True)):
            yield from _differing(pair[0], pair[1], f"{where}[{at}]")
    elif before != now:
        yield f"{where}: {before!r} then, {now!r} now"


def _data(given: Source) -> dict[str, Any]:
    if isinstance(given, FromLoader):
        return {"batches": len(given)}
    found: dict[str, Any] = {"samples": len(given), "hash of labels": fingerprint(given.target)}
    if isinstance(given, InMemory):
        rows = torch.linspace(0, len(given) - 1, min(ROWS, len(given)), dtype=torch.float64).round().long()
        found["hash of inputs"] = fingerprint(given.x[rows.to(given.x.device)])
        found["hash of weights"] = None if given.weight is None else fingerprint(given.weight)
    return found


def fingerprint(given: Tensor) -> str:
    """A hash of a tensor's shape, type and bits."""
    plain = given.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{tuple(plain.shape)} {plain.dtype}".encode())
    digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]


def _described(given: Any) -> str | None:
    """Its repr, without the addresses that differ from one process to the next."""
    return None if given is None else re.sub(r" at 0x[0-9a-f]+", "", repr(given))


def _plain(given: Any) -> Any:
    return given.item() if hasattr(given, "item") else str(given)
