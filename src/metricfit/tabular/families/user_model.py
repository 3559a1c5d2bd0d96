"""The user's own scikit-learn classifier or pipeline as a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from metricfit._schema import StoredModel
from metricfit.core.arrays import Floats
from metricfit.errors import InvalidTypeError, InvalidValueError, ModelFileError, quote
from metricfit.tabular.estimator_scores import class_scores, to_logits, weight_parameter
from metricfit.tabular.families.family import Deadline, Family, Features, FittedModel, TrainingRows

if TYPE_CHECKING:
    from metricfit.tabular.storage import Folder

#: Probabilities of 0 and 1 have no logits.
SMALLEST_PROBABILITY = 1e-6


@dataclass(frozen=True)
class FittedUserModel(FittedModel):
    """A fitted classifier of the user.

    Attributes:
        model: The classifier.
        classes: The number of classes of the whole table.
        takes_table: Whether it gets the table as the user passed it, and not the encoded columns.
    """

    model: StoredModel
    classes: int
    takes_table: bool

    def logits(self, features: Features) -> Floats:
        """Return log-odds of ``predict_proba``, or else ``decision_function``."""
        x = features.table if self.takes_table else features.encoded
        scores = class_scores(self.model, x, np.arange(self.classes))
        return to_logits(scores, SMALLEST_PROBABILITY, labels=False)

    def restored(self, folder: Folder) -> FittedUserModel:
        """Refuse what is no classifier of these classes and columns."""
        known, name = np.asarray(getattr(self.model, "classes_", [])), type(self.model).__name__
        of_model = known.dtype.kind in "iu" and len(known) and np.isin(known, np.arange(folder.classes)).all()
        if not of_model or self.classes != folder.classes:
            raise ModelFileError(f"a {name} that knows no class of this model")
        columns = getattr(self.model, "n_features_in_", folder.columns)
        if not self.takes_table and columns != folder.columns:
            raise ModelFileError(f"a {name} of {quote(columns)} columns in a table of {folder.columns}")
        return self


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
            raise InvalidValueError(f"the model {self.name!r} takes no sample_weight; fit without weights")
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
