"""The specification of a run as plain values, so that a run is never resumed with other settings or data."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from metricfit._version import __version__
from metricfit.train.checkpoint.provenance import describe_settings, fingerprint, repr_without_address
from metricfit.train.data.loaders import FromLoader
from metricfit.train.data.order import Order
from metricfit.train.data.samples import InMemory, Source
from metricfit.train.stage import Stage

ROWS = 1024  # rows of the inputs that are hashed
NOT_COMPARED = ("versions", "threads", "checkpoint_every")


def describe_run(
    model: nn.Module,
    stages: Sequence[Stage],
    data: Source,
    validation: Source | None,
    order: Order,
    **settings: Any,
) -> dict[str, Any]:
    """Describe a run by its model, stages, data and settings.

    Args:
        model: The model; its layers and the shapes of its weights are described.
        stages: The stages of the training.
        data: The training data, described by length and hashes.
        validation: The validation data, if any.
        order: The order of the batches.
        settings: Other settings by name.

    Returns:
        Values that JSON can hold.
    """
    spec = {
        "model": {name: [*tensor.shape, str(tensor.dtype)] for name, tensor in model.state_dict().items()},
        "architecture": repr_without_address(model).splitlines(),
        "stages": [
            {
                "name": stage.name,
                "objective": _describe_part(stage.objective),
                "epochs": stage.epochs,
                "lr": stage.lr,
                "optimizer": _describe_part(stage.optimizer),
                "scheduler": _describe_part(stage.scheduler),
                **({} if stage.scheduler_step is None else {"scheduler_step": stage.scheduler_step}),
                "monitor": _describe_part(stage.watched),
                **({} if len(stage.monitors) == 1 else {"monitors": list(map(_describe_part, stage.monitors))}),
                "patience": stage.patience,
                "settings": stage_settings,
                "code": stage_code,
            }
            for stage, (stage_settings, stage_code) in ((stage, _describe_stage(stage)) for stage in stages)
        ],
        "train": _describe_data(data),
        "validation": None if validation is None else _describe_data(validation),
        "batch_size": order.batch_size,
        "stratified": order.stratified,
        "oversample": order.oversample,
        **settings,
        "versions": {"metricfit": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(spec, default=_to_plain_value))
    return plain


def find_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Compare the specifications of two runs.

    Versions, threads and the interval of checkpoints may differ. Code is compared only if both runs use the same
    version of Python, because another version compiles the same function to other bytecode.

    Args:
        before: The specification of the run that was started.
        now: The specification of the present run.

    Returns:
        One phrase per difference.
    """
    old, new = ({key: spec[key] for key in spec if key not in NOT_COMPARED} for spec in (before, now))
    other_python = _python_version(before) != _python_version(now)
    return list(_list_differences(old, new, "", {"code"} if other_python else set()))


def find_fewer_epochs(before: dict[str, Any], now: dict[str, Any]) -> int | None:
    """Return the number of epochs of the last stage before, if the present run has more; None otherwise."""
    if not (before.get("stages") and now.get("stages")):
        return None
    then, more = before["stages"][-1].get("epochs"), now["stages"][-1].get("epochs")
    return then if isinstance(then, int) and isinstance(more, int) and then < more else None


def replace_epochs(spec: dict[str, Any], epochs: int) -> dict[str, Any]:
    """Return the specification of a run whose last stage has this number of epochs."""
    *earlier, last = spec["stages"]
    return {**spec, "stages": [*earlier, {**last, "epochs": epochs}]}


def _python_version(spec: dict[str, Any]) -> list[str]:
    """Return the major and minor version of Python, which determine its bytecode."""
    versions = spec.get("versions")
    return str(versions["python"]).split(".")[:2] if isinstance(versions, dict) and "python" in versions else []


def _list_differences(before: Any, now: Any, path: str, ignored: set[str]) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted((before.keys() | now.keys()) - ignored):
            yield from _list_differences(before.get(key), now.get(key), f"{path}.{key}" if path else key, ignored)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from _list_differences(pair[0], pair[1], f"{path}[{index}]", ignored)
    elif before != now:
        yield f"{path}: {before!r} then, {now!r} now"


def _describe_data(source: Source) -> dict[str, Any]:
    if isinstance(source, FromLoader):
        return {"batches": source.expected_batches}
    description: dict[str, Any] = {"samples": len(source), "hash of labels": fingerprint(source.some_labels)}
    if source.group is not None:
        description["hash of groups"] = fingerprint(source.group)
    if isinstance(source, InMemory):
        rows = torch.linspace(0, len(source) - 1, min(ROWS, len(source)), dtype=torch.float64).round().long()
        description["hash of inputs"] = fingerprint(source.x[rows.to(source.x.device)])
        description["hash of weights"] = None if source.weight is None else fingerprint(source.weight)
    return description


def _describe_part(part: Any) -> str | None:
    return None if part is None else repr_without_address(part)


def _describe_stage(stage: Stage) -> tuple[dict[str, Any], dict[str, str]]:
    """Describe what the reprs of a stage's parts do not show: their settings, and the code of functions."""
    parts = {"objective": stage.objective, "optimizer": stage.optimizer, "scheduler": stage.scheduler}
    others = {f"monitor {number}": monitor for number, monitor in enumerate(stage.monitors) if number}
    return describe_settings(parts | {"monitor": stage.watched} | others)


def _to_plain_value(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)
