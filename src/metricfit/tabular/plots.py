"""Pictures of a fitted model for a notebook, one call each: ``model.plot.threshold()`` and so on."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import beta

from metricfit.core.arrays import Floats, Integers
from metricfit.decide.decision import REFERRED
from metricfit.decide.held_out import DecisionCurve
from metricfit.errors import InvalidValueError
from metricfit.tabular.facts import model_facts
from metricfit.tabular.insight.judged_rows import (
    held_out_decisions,
    held_out_rows,
    held_out_scores,
    judged_rows,
)

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#666666"
#: Groups of equally many rows in which probabilities are compared with shares.
BINS, MOST_COLUMNS, MOST_CELLS = 10, 20, 20


class Picture(Figure):
    """A figure of matplotlib that a notebook shows; ``savefig`` writes it to a file."""

    def __init__(self, width: float = 6.4, height: float = 4.2) -> None:
        super().__init__(figsize=(width, height), layout="constrained")

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()

    def draw_axes(self) -> Axes:
        """Add axes without a frame at the top and at the right."""
        axes = self.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        return axes


class Plots:
    """Draws a fitted model; every method returns a picture.

    Args:
        model: A fitted classifier of two or several classes.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model.plot.threshold().axes[0].get_xlabel()
        'threshold'
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def threshold(self) -> Picture:
        """Draw the metric, precision, recall and required metrics at every threshold, on the held-out rows."""
        model = self._model
        curve = model.curve_
        if not isinstance(curve, DecisionCurve):
            raise InvalidValueError("plot.threshold is for two classes that one threshold divides")
        picture, facts = Picture(), model_facts(model)
        axes, shown = picture.draw_axes(), np.isfinite(curve.threshold)
        lines = {
            facts.label: (curve.value, BLUE),
            "precision": (curve.precision, ORANGE),
            "recall": (curve.recall, GREEN),
        }
        for requirement in model.chosen_.names.requirements(model.subject_to):
            name = requirement.metric.name
            colour = lines.get(name, (None, GREY))[1]
            lines[name] = (curve.value_of(requirement.metric), colour)
            axes.axhline(requirement.bound, color=colour, linestyle=":", label=str(requirement))
        for name, (values, colour) in lines.items():
            axes.plot(curve.threshold[shown], values[shown], color=colour, label=name)
        if facts.threshold_interval is not None:
            axes.axvspan(*facts.threshold_interval, color=RED, alpha=0.12, label="95 % interval")
        assert facts.threshold is not None
        axes.axvline(facts.threshold, color=RED, linestyle="--", label=f"chosen: {facts.threshold:.3g}")
        axes.set_xlabel("threshold")
        axes.set_ylabel("value on held-out rows")
        picture.legend(loc="outside right upper", frameon=False)
        return picture

    def calibration(self, X: Any = None, y: Any = None) -> Picture:
        """Draw the share of positives against the probability, in groups of equally many rows, with 95 % intervals.

        Args:
            X: Rows that the model was not trained on; by default the held-out rows.
            y: Their labels.
        """
        if len(self._model.classes_) != 2:
            raise InvalidValueError("plot.calibration is for two classes")
        scores, labels = self._scores(X, y)
        order = np.argsort(scores, kind="stable")
        parts = [part for part in np.array_split(order, BINS) if len(part)]
        means = np.array([scores[part].mean() for part in parts])
        hits, rows = (np.array([f(labels[part]) for part in parts]) for f in (np.sum, len))
        low, high = beta.ppf(0.025, hits + 0.5, rows - hits + 0.5), beta.ppf(0.975, hits + 0.5, rows - hits + 0.5)
        picture = Picture(4.8, 4.6)
        axes, shares = picture.draw_axes(), hits / rows
        top = 1.05 * max(float(high.max()), float(means.max()))
        axes.plot([0, top], [0, top], color=GREY, linestyle=":", label="as it should be")
        errors = np.abs(np.stack([shares - np.minimum(low, shares), np.maximum(high, shares) - shares]))
        axes.errorbar(means, shares, errors, fmt="o-", color=BLUE, capsize=3, label=f"{len(parts)} groups of rows")
        axes.set_xlabel(f"mean probability of {self._model.pos_label_}")
        axes.set_ylabel(f"share of {self._model.pos_label_}")
        axes.legend(frameon=False)
        return picture

    def confusion(self, X: Any = None, y: Any = None) -> Picture:
        """Draw the confusion matrix; colours are shares of each true class, and referred rows are left out.

        Args:
            X: Rows that the model was not trained on; by default the held-out rows.
            y: Their labels.
        """
        decided, labels = self._decided(X, y)
        names = [str(each.name) for each in model_facts(self._model).classes]
        matrix, kept = np.zeros((len(names), len(names))), decided != REFERRED
        np.add.at(matrix, (labels[kept], decided[kept]), 1)
        shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
        side = min(2.6 + 0.7 * len(names), 12)
        picture = Picture(side + 0.6, side)
        axes = picture.add_subplot()
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        if len(names) <= MOST_CELLS:
            for (row, column), count in np.ndenumerate(matrix):
                colour = "white" if shares[row, column] > 0.5 else "black"
                axes.text(column, row, f"{count:,.0f}", ha="center", va="center", color=colour)
        axes.set_xticks(range(len(names)), names, rotation=0 if len("".join(names)) < 30 else 60)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("decided")
        axes.set_ylabel("true")
        return picture

    def importance(self, X: Any, y: Any, **options: Any) -> Picture:
        """Draw how much the metric loses when a column is shuffled, with 95 % intervals.

        Args:
            X: Rows that the model was not trained on, or with ``out_of_fold=True`` the rows of ``fit``.
            y: Their labels.
            options: Other arguments of ``model.importance``.
        """
        found = self._model.importance(X, y, **options)
        shown = found.table.head(MOST_COLUMNS)[::-1]
        picture = Picture(6.4, 1.4 + 0.3 * len(shown))
        axes, values = picture.draw_axes(), shown["importance"]
        errors = np.abs(np.stack([values - shown["low"], shown["high"] - values]))
        axes.barh(shown["column"].astype(str), values, xerr=errors, color=BLUE, ecolor=GREY, capsize=2)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.set_xlabel(f"loss of {found.metric} when the column is shuffled")
        return picture

    def _scores(self, X: Any, y: Any) -> tuple[Floats, Integers]:
        if X is None:
            return np.asarray(held_out_scores(self._model)), np.asarray(held_out_rows(self._model).y)
        positive = self._model.classes_.tolist().index(self._model.pos_label_)
        return self._model.predict_proba(X)[:, positive], judged_rows(self._model, X, y).y

    def _decided(self, X: Any, y: Any) -> tuple[Integers, Integers]:
        if self._model.chosen_.names.has_labels:
            raise InvalidValueError("plot.confusion is for classes; the model decides several labels per row")
        if X is None:
            return held_out_decisions(self._model), np.asarray(held_out_rows(self._model).y)
        rows = judged_rows(self._model, X, y)
        return rows.decide(), rows.y


def draw_comparison(comparison: Any) -> Picture:
    """Draw the mean of each method with its 95 % interval, the best at the top, and the recommended one in colour."""
    rows = [row for row in comparison.reference_first if row.interval is not None or row.values]
    picture = Picture(7.4, 1.2 + 0.32 * len(rows))
    axes = picture.draw_axes()
    for place, row in enumerate(reversed(rows)):
        colour = RED if row.name == comparison.recommended else BLUE
        low, high = row.interval or (row.mean, row.mean)
        axes.errorbar(row.mean, place, xerr=[[row.mean - low], [high - row.mean]], fmt="o", color=colour, capsize=3)
    marks = [f"▶ {row.name}" if row.name == comparison.recommended else row.name for row in reversed(rows)]
    axes.set_yticks(range(len(rows)), marks)
    axes.set_xlabel(f"{comparison.metric}, mean of the folds with its 95 % interval")
    return picture
