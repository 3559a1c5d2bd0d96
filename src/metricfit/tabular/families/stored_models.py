"""Every fitted model as a state, and back: which class reads which kind of state."""

from __future__ import annotations

from typing import cast

from metricfit.errors import InvalidTypeError, ModelFileError, quote
from metricfit.tabular.families.boosted_trees import BoostedTrees
from metricfit.tabular.families.extra_trees import Forests
from metricfit.tabular.families.family import FittedModel, MeanOfFolds
from metricfit.tabular.families.kernel import KernelModel
from metricfit.tabular.families.linear import LinearModel
from metricfit.tabular.families.model_state import Expected, ModelState, StoredModel
from metricfit.tabular.families.network import NetworkModel
from metricfit.tabular.families.user_model import FittedUserModel

MEAN = "mean_of_folds"
#: The ``kind`` of a class's states.
KINDS: dict[str, type[StoredModel]] = {
    "boosted_trees": BoostedTrees,
    "forests": Forests,
    "linear": LinearModel,
    "kernel": KernelModel,
    "network": NetworkModel,
    "user_model": FittedUserModel,
}


def to_state(model: FittedModel) -> ModelState:
    """Return what a fitted model consists of.

    Raises:
        InvalidTypeError: The model is of a class that cannot be saved.
    """
    if isinstance(model, MeanOfFolds):
        return ModelState(MEAN, parts=tuple(to_state(part) for part in model.models))
    if type(model) not in KINDS.values():
        raise InvalidTypeError(f"models of type {type(model).__name__} cannot be saved")
    return cast(StoredModel, model).state()


def from_state(state: ModelState, expected: Expected) -> FittedModel:
    """Return the model that a state describes.

    Args:
        state: What `to_state` returned, read from files.
        expected: What the model has to fit.

    Raises:
        ModelFileError: The state is damaged, or is not of a model for this table.
        UntrustedTypeError: It has a scikit-learn model of types that nobody trusts.
    """
    if state.kind == MEAN:
        if not state.parts:
            raise ModelFileError(f"{MEAN}: there are no models")
        return MeanOfFolds(tuple(from_state(part, expected) for part in state.parts))
    if state.kind not in KINDS:
        raise ModelFileError(f"models of kind {quote(state.kind)} are not known; known are {', '.join(KINDS)}")
    return KINDS[state.kind].restored(state, expected)
