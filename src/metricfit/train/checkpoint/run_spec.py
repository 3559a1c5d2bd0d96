"""What a run is made of, as plain values, so that another run is not taken for it."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from metricfit._version import __version__
from metricfit.train.checkpoint.provenance import described, fingerprint, inside
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.order import Order
from metricfit.train.data.samples import InMemory, Source
from metricfit.train.stage import Stage

ROWS = 1024
NOT_COMPARED = ("versions", "threads", "checkpoint_every")


def spec_of(
    model: nn.Module,
    stages: Sequence[Stage],
    data: Source,
    validation: Source | None,
    order: Order,
    **settings: Any,
) -> dict[str, Any]:
    """The model's layers and shapes, the stages, the data by length and hash, and the settings given by name."""
    spec = {
        "model": {name: [*given.shape, str(given.dtype)] for name, given in model.state_dict().items()},
        "architecture": described(model).splitlines(),
        "stages": [
            {
                "name": stage.name,
                "objective": _described(stage.objective),
                "epochs": stage.epochs,
                "lr": stage.lr,
                "optimizer": _described(stage.optimizer),
                "scheduler": _described(stage.scheduler),
                **({} if stage.scheduler_step is None else {"scheduler_step": stage.scheduler_step}),
                "monitor": _described(stage.watched),
                "patience": stage.patience,
                "settings": settings_within,
                "code": code_within,
            }
            for stage, (settings_within, code_within) in ((each, _told(each)) for each in stages)
        ],
        "train": _data(data),
        "validation": None if validation is None else _data(validation),
        "batch_size": order.batch_size,
        "stratified": order.stratified,
        "oversample": order.oversample,
        **settings,
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(spec, default=_plain))
    return plain


def find_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Returns one sentence per difference; versions, threads and the interval of checkpoints may differ.

    Another Python makes other code of the same function, so between two of them code is not compared.
    """
    then, today = ({key: spec[key] for key in spec if key not in NOT_COMPARED} for spec in (before, now))
    unlike = _python(before) != _python(now)
    return list(_differing(then, today, "", {"code"} if unlike else set()))


def _python(spec: dict[str, Any]) -> list[str]:
    """The version of Python as far as it tells which bytecode it makes."""
    versions = spec.get("versions")
    return str(versions["python"]).split(".")[:2] if isinstance(versions, dict) and "python" in versions else []


def _differing(before: Any, now: Any, where: str, left_out: set[str]) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted((before.keys() | now.keys()) - left_out):
            yield from _differing(before.get(key), now.get(key), f"{where}.{key}" if where else key, left_out)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, pair in enumerate(zip(before, now, strict=True)):
            yield from _differing(pair[0], pair[1], f"{where}[{at}]", left_out)
    elif before != now:
        yield f"{where}: {before!r} then, {now!r} now"


def _data(given: Source) -> dict[str, Any]:
    if isinstance(given, FromLoader):
        return {"batches": given.expected_batches}
    found: dict[str, Any] = {"samples": len(given), "hash of labels": fingerprint(given.target)}
    if given.group is not None:
        found["hash of groups"] = fingerprint(given.group)
    if isinstance(given, InMemory):
        rows = torch.linspace(0, len(given) - 1, min(ROWS, len(given)), dtype=torch.float64).round().long()
        found["hash of inputs"] = fingerprint(given.x[rows.to(given.x.device)])
        found["hash of weights"] = None if given.weight is None else fingerprint(given.weight)
    return found


def _described(given: Any) -> str | None:
    return None if given is None else described(given)


def _told(stage: Stage) -> tuple[dict[str, Any], dict[str, str]]:
    """What the reprs of a stage's parts leave out: settings, and the code of functions."""
    parts = {"objective": stage.objective, "optimizer": stage.optimizer, "scheduler": stage.scheduler}
    return inside(parts | {"monitor": stage.watched})


def _plain(given: Any) -> Any:
    return given.item() if hasattr(given, "item") else str(given)
