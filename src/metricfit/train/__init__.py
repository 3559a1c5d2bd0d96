"""Training: fit, recipes, populations and checkpoints. Needs the extra ``torch``; names are loaded when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricfit._extras import explain_missing
from metricfit.errors import NotFiniteError

if TYPE_CHECKING:
    from metricfit.train import recipes
    from metricfit.train.callbacks import Callback, Plan, ProgressBar, TensorBoard
    from metricfit.train.checkpoint.folder import CheckpointWarning
    from metricfit.train.data.batches import Batches
    from metricfit.train.engine.validation import UnmetRequirementWarning
    from metricfit.train.evaluation import Evaluation, evaluate
    from metricfit.train.fitting import fit, fit_population
    from metricfit.train.folds import Ensemble, fit_folds
    from metricfit.train.monitor import Measured, Monitor
    from metricfit.train.prior import start_at_prior
    from metricfit.train.result import FitResult, History, RequirementResult
    from metricfit.train.settings import Checkpoints, Hardware, Steps
    from metricfit.train.stage import Stage

_HOMES = {
    "callbacks": ("Callback", "Plan", "ProgressBar", "TensorBoard"),
    "evaluation": ("Evaluation", "evaluate"),
    "data.batches": ("Batches",),
    "fitting": ("fit", "fit_population"),
    "checkpoint.folder": ("CheckpointWarning",),
    "folds": ("Ensemble", "fit_folds"),
    "monitor": ("Measured", "Monitor"),
    "prior": ("start_at_prior",),
    "result": ("FitResult", "History", "RequirementResult"),
    "settings": ("Checkpoints", "Hardware", "Steps"),
    "stage": ("Stage",),
    "engine.validation": ("UnmetRequirementWarning",),
}
_PACKAGES = ("torch", "lightning_fabric", "safetensors", "rich")
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Batches",
    "Callback",
    "CheckpointWarning",
    "Checkpoints",
    "Ensemble",
    "Evaluation",
    "FitResult",
    "Hardware",
    "History",
    "Measured",
    "Monitor",
    "NotFiniteError",
    "Plan",
    "ProgressBar",
    "RequirementResult",
    "Stage",
    "Steps",
    "TensorBoard",
    "UnmetRequirementWarning",
    "evaluate",
    "fit",
    "fit_folds",
    "fit_population",
    "recipes",
    "start_at_prior",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing(__name__, _PACKAGES, "metricfit[torch]"):
        module = import_module(f"metricfit.train.{_HOME.get(name, name)}")
    return getattr(module, name) if name in _HOME else module


def __dir__() -> list[str]:
    return sorted(__all__)
