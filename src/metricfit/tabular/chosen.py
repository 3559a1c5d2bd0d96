"""What a fitted estimator holds once it has logits of held-out rows: these rows, and the decision chosen on them.

Estimators of this package have one ``Chosen`` as their attribute ``chosen_``. Reports, exports and files read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit._schema import Label
from metricfit.core.arrays import Floats, Integers
from metricfit.decide.calibration import softmax
from metricfit.decide.costs import RowCosts, check_costs, cost_columns, row_costs
from metricfit.decide.decision import Decision
from metricfit.decide.held_out import HeldOut, HeldOutPlaces
from metricfit.decide.refer import check_refer_label, labels_with_referred
from metricfit.decide.shift import PriorShift
from metricfit.errors import ModelFileError, shorten
from metricfit.metrics.metric import Metric
from metricfit.metrics.metric_parameters import LARGEST_PARAMETER
from metricfit.tabular.positive_class import ClassNames

NOT_STORED = {"stored": False}


@dataclass(frozen=True)
class Basis:
    """What decisions are chosen on.

    Attributes:
        names: The names of the classes or labels.
        held_out: The held-out rows, with the class balance of training.
        seed: Seed of what is drawn to choose a decision.
        training_share: The smallest share of the rows that a model was trained on which scored held-out rows. It is 1
            if they were kept apart, and the model that scores new rows scored them.
        pooled: The logits of held-out rows with the weights and calibrations of the final model, as new rows have
            them; None if these are equal.
        places: Where the rows come from; None for a model that was loaded.
        scorers: What scored the held-out rows, by the numbers in ``places.folds``.
    """

    names: ClassNames
    held_out: HeldOut
    seed: int
    training_share: float = 1.0
    pooled: Floats | None = None
    places: HeldOutPlaces | None = field(default=None, metadata=NOT_STORED)
    scorers: tuple[Any, ...] = field(default=(), metadata=NOT_STORED)

    @property
    def out_of_fold(self) -> bool:
        """Whether the rows were scored by other models than new rows are."""
        return self.training_share < 1

    def take(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values of the held-out rows, of one value for each row that ``fit`` got."""
        assert self.places is not None
        return values[self.places.rows]

    @property
    def pooled_rows(self) -> HeldOut:
        """The held-out rows with the weights and calibrations of the final model."""
        return self.held_out if self.pooled is None else replace(self.held_out, logits=self.pooled)


@dataclass(frozen=True)
class Chosen:
    """Held-out rows and the decision that was chosen on them.

    Attributes:
        basis: The held-out rows and their classes.
        shift: What is added to calibrated logits for another class balance; 0 for the balance of training.
        decision: The decision about calibrated logits plus ``shift``.
        prior_shift: What was estimated from new rows without labels, if the class balance was.
        refer_label: The label of rows that are referred to a person.
    """

    basis: Basis
    shift: Floats
    decision: Decision
    prior_shift: PriorShift | None = None
    refer_label: Label = "refer"

    @property
    def names(self) -> ClassNames:
        """The names of the classes or labels."""
        return self.basis.names

    @property
    def rows(self) -> HeldOut:
        """The held-out rows with the class balance that the model decides for."""
        return self.basis.held_out.with_logits_shifted(self.shift)

    def attributes(self) -> dict[str, Any]:
        """Return the public attributes of an estimator, from which only the decision's own may be missing."""
        evidence = self.decision.evidence
        none = ("threshold_", "threshold_interval_", "thresholds_", "offsets_", "refer_region_")
        return {
            "classes_": self.names.classes,
            "pos_label_": self.names.positive,
            "held_out_": self.basis.held_out,
            "shift_": self.shift,
            "prior_shift_": self.prior_shift,
            "decision_": self.decision,
            "value_": evidence.corrected_value,
            "value_interval_": evidence.corrected_interval,
            "requirements_": dict(evidence.requirements),
            "requirements_met_": all(result.met for result in evidence.requirements.values()),
            "confidence_": evidence.confidence,
            "certificate_": evidence.certificate,
            **dict.fromkeys(none),
            "referred_share_": 0.0,
            **self.decision.attributes(self.names.places),
        }

    def costs_of(self, metric: Metric, table: Any, rows: int) -> RowCosts | None:
        """Return the costs of the rows of a table, or of its columns alone, if the metric takes costs from columns."""
        if not metric.columns:
            return None
        return row_costs(metric, table if isinstance(table, dict) else cost_columns(metric, table), rows)

    def held_out_costs(self, metric: Metric) -> RowCosts | None:
        """Return the costs of the held-out rows, if the metric takes costs from columns."""
        held_out = self.basis.held_out
        return self.costs_of(metric, dict(held_out.columns), len(held_out.y))

    def decide(self, logits: Floats, costs: RowCosts | None = None) -> Integers:
        """Return class numbers, -1 for rows that are referred, or for several labels 0 and 1."""
        to_decide = logits if costs is None else costs.margins(logits)
        return np.asarray(self.decision.decide_or_refer(to_decide))

    def labels_of(self, decided: Integers) -> NDArray[Any]:
        """Return the labels of class numbers; several labels stay 0 and 1."""
        if self.names.has_labels:
            return decided
        if self.decision.referral is not None:
            return labels_with_referred(decided, self.names.in_order, self.refer_label)
        labels: NDArray[Any] = self.names.in_order[decided]
        return labels

    @property
    def prevalence(self) -> Any:
        """The share of the positive class, or of each class by its label, that the model decides for."""
        shift = self.shift if self.names.outputs > 1 else np.concatenate([np.zeros(1), self.shift])
        return self.names.by_label(softmax((np.log(self.basis.held_out.shares) + shift)[None])[0].tolist())

    def faults(self, metric: Metric, subject_to: Any) -> list[str]:
        """Return what is wrong with parts that were read from a folder, as they do not fit each other."""
        names, held_out, decision = self.names, self.basis.held_out, self.decision
        classes, rows, pooled = len(names.classes), len(held_out.y), self.basis.pooled_rows.logits
        shape, task = (rows, names.outputs), "multiclass" if names.outputs > 1 else "binary"
        task, most = ("multilabel", 2) if names.has_labels else (task, classes)
        of = f"it is {decision.task}, for {decision.outputs} logits per row, and the rows are {task}, with {shape[1]}"
        found = [
            ("classes", len(np.unique(names.classes)) != classes, "a label stands there twice"),
            ("class balance", self.shift.shape != shape[1:], "another number of shifts than of outputs"),
            ("held-out rows", held_out.logits.shape != shape, "logits and labels of other shapes"),
            ("held-out rows", held_out.y.shape != shape[: held_out.y.ndim], "logits and labels of other shapes"),
            ("held-out rows", (held_out.y.ndim == 2) != names.has_labels, "logits and labels of other shapes"),
            ("held-out rows", pooled.shape != held_out.logits.shape, "pooled logits of another shape"),
            ("held-out rows", len(held_out.shares) != classes, "another number of shares than of classes"),
            ("held-out rows", not ((held_out.y >= 0) & (held_out.y < most)).all(), "labels of other classes"),
            ("decision", (decision.task, decision.outputs) != (task, shape[1]), of),
            ("decision", decision.of_row_costs != bool(held_out.columns), "costs of rows need columns"),
        ]
        if self.prior_shift is not None:
            wrong = self.prior_shift.intervals.shape != (classes, 2) or len(self.prior_shift.shares) != classes
            found.append(("class balance", wrong, "another number of estimates than of classes"))
        for name, values in held_out.columns.items():
            wrong = values.shape != (rows,) or not ((values >= 0) & (values <= LARGEST_PARAMETER)).all()
            found.append(("held-out rows", wrong, f"the column {name} does not hold one cost per row"))
        faults = [f"{part}: {reason}" for part, wrong, reason in found if wrong]
        if faults:  # requirements are on classes, which must be right first
            return faults
        try:
            check_costs(metric, held_out.columns, names.number, names.requirements(subject_to))
            if decision.referral is not None:
                check_refer_label(self.refer_label, names.classes)
        except (ValueError, TypeError, ModelFileError) as error:
            return [f"parameters: {shorten(error)}"]
        return []
