"""The user's own scikit-learn classifier or pipeline as a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote
from metricfit.tabular.estimator_scores import class_scores, to_logits, weight_parameter
from metricfit.tabular.families.family import (
    Deadline,
    Expected,
    Family,
    Features,
    FittedModel,
    Floats,
    ModelState,
    TrainingRows,
)
from metricfit.tabular.model_folder import model_from_bytes, model_to_bytes

#: Probabilities of 0 and 1 have no logits.
SMALLEST_PROBABILITY = 1e-6
FILE = "model.skops"


@dataclass(frozen=True)
class FittedUserModel(FittedModel):
    """A fitted classifier of the user.

    Attributes:
        model: The classifier.
        classes: The number of classes of the whole table.
        takes_table: Whether it gets the table as the user passed it, and not the encoded columns.
    """

    model: Any
    classes: int
    takes_table: bool

    def logits(self, features: Features) -> Floats:
        """Return log-odds of ``predict_proba``, or else ``decision_function``."""
        x = features.table if self.takes_table else features.encoded
        scores = class_scores(self.model, x, np.arange(self.classes))
        return to_logits(scores, SMALLEST_PROBABILITY, labels=False)

    def state(self) -> ModelState:
        """Return the classifier as a file of skops."""
        return ModelState("user_model", {"takes_table": self.takes_table}, files={FILE: model_to_bytes(self.model)})

    @classmethod
    def restored(cls, state: ModelState, expected: Expected) -> FittedUserModel:
        """Return the classifier of a state.

        Raises:
            ModelFileError: The file is damaged, or no classifier for these classes.
            UntrustedTypeError: It has types that neither skops nor the user trusts.
        """
        takes_table, content = state.values.get("takes_table"), state.files.get(FILE)
        if not isinstance(takes_table, bool) or content is None:
            raise ModelFileError(f"{state.kind}: takes_table must be true or false, and {FILE} be there")
        model = model_from_bytes(content, expected.trusted)
        known = np.asarray(getattr(model, "classes_", []))
        if known.dtype.kind not in "iu" or not len(known) or not np.isin(known, np.arange(expected.classes)).all():
            raise ModelFileError(f"{state.kind}: a {type(model).__name__} that knows no class of this model")
        columns = getattr(model, "n_features_in_", expected.columns)
        if not takes_table and columns != expected.columns:
            raise ModelFileError(
                f"{state.kind}: a {type(model).__name__} of {quote(columns)} columns in a table of {expected.columns}"
            )
        return cls(model, expected.classes, takes_table)


class UserModel(Family):
    """A scikit-learn classifier of the user.

    A Pipeline gets the table as the user passed it, because it encodes the table itself. Other classifiers get the
    encoded columns: numbers without missing values.

    Args:
        name: Its name in ``models_``.
        model: The classifier; it is cloned for every fold.

    Raises:
        InvalidTypeError: It is a class, has no ``fit``, or neither ``predict_proba`` nor ``decision_function``.
    """

    def __init__(self, name: str, model: Any) -> None:
        if isinstance(model, type):
            raise InvalidTypeError(f"a model is an object, not a class: pass {model.__name__}()")
        if not hasattr(model, "fit") or not (hasattr(model, "predict_proba") or hasattr(model, "decision_function")):
            raise InvalidTypeError(
                "a model is the name of a family, tabular.Network(...), or a scikit-learn classifier with "
                f"predict_proba or decision_function; got {quote(model)}"
            )
        self.name, self.model = name, model
        self.can_be_stopped = False

    @property
    def takes_table(self) -> bool:
        """Whether the classifier encodes the table itself."""
        return isinstance(self.model, Pipeline)

    def reason_to_skip(self, rows: TrainingRows) -> str | None:
        """Refuse rows with weights if the classifier takes none."""
        if rows.weight is not None and weight_parameter(self.model) is None:
            raise InvalidValueError(
                f"the model {self.name!r} takes no sample_weight; fit without sample_weight and class_weight, or use "
                "another model"
            )
        return None

    def fit(self, train: TrainingRows, held_out: TrainingRows, *, seed: int, deadline: Deadline) -> FittedModel:
        """Fit a clone of the classifier, with the weights of the rows if there are any."""
        deadline.check()
        model = clone(self.model)
        _set_random_state(model, seed)
        weights: dict[str, Any] = {}
        if train.weight is not None:
            weights = {weight_parameter(model) or "sample_weight": train.weight}
        model.fit(train.features.table if self.takes_table else train.x, train.y, **weights)
        return FittedUserModel(model, train.classes, self.takes_table)


def _set_random_state(model: Any, seed: int) -> None:
    """Seed every part of the classifier whose ``random_state`` the user left at None."""
    unset = {
        name: seed % 2**31
        for name, value in model.get_params().items()
        if value is None and (name == "random_state" or name.endswith("__random_state"))
    }
    model.set_params(**unset)
