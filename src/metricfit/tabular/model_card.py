"""The model card: a page of Markdown for people, beside the files of a saved model. Loading ignores it."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from metricfit._version import __version__
from metricfit.errors import shorten
from metricfit.metrics.metric import get_metric
from metricfit.tabular.card_decisions import decision_lines, limit_lines, value_lines

PACKAGES = ("torch", "scikit-learn", "lightgbm", "numpy", "pandas", "scipy")
LISTED = 60
KINDS = {"number": "numeric", "category": "categorical", "date": "dates", "text": "text"}
MARKDOWN = re.compile(r"([\\`*_{}\[\]#|~!$])")


def model_card(model: Any, *, data: str | None = None, target: str | None = None) -> str:
    """Describe a fitted model in Markdown: data, metric, decision, values, models, limits and versions.

    Args:
        model: A fitted MetricClassifier or TunedDecisionClassifier.
        data: Name of the table.
        target: Name of the predicted column.

    Returns:
        The text. What comes from the user is escaped, and it has no entries of rows.

    Example:
        >>> from metricfit import MetricClassifier
        >>> X = np.random.default_rng(0).normal(size=(200, 3))
        >>> model = MetricClassifier("f1", models=["linear"], random_state=0).fit(X, X[:, 0] > 1)
        >>> model_card(model, data="churn.csv").splitlines()[0]
        '# Model card: churn.csv'
    """
    about = [name for name in (data, target) if name is not None]
    title = ", ".join(escaped(name) for name in about) or f"decisions for {escaped(get_metric(model.metric).name)}"
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    parts = [
        f"# Model card: {title}",
        f"A {type(model).__name__}, saved on {day} by metricfit {__version__}. This file is for people: loading the "
        "model ignores it. It has no entries of rows.",
        _section("Data", _data_lines(model, data, target)),
        _section("Decision", decision_lines(model, escaped)),
        _section("Values", value_lines(model, escaped)),
        _section("Models", _model_lines(model)),
        _section("Limits", limit_lines(model, escaped)),
        _section("Versions", [f"- {name} {number}" for name, number in _versions()]),
    ]
    return "\n\n".join(parts) + "\n"


def escaped(text: Any) -> str:
    r"""Return text as Markdown shows it literally, on one line and not too long.

    >>> escaped("<b>a_b|c\n</b>")
    '&lt;b&gt;a\\_b\\|c &lt;/b&gt;'
    """
    plain = "".join(letter if letter.isprintable() else " " for letter in str(text))
    short = shorten(" ".join(plain.split()), 120)
    return MARKDOWN.sub(r"\\\1", short).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def table_lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown, the first column to the left and the others to the right."""
    rule = "|---" + "|---:" * (len(head) - 1) + "|"
    return [f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]


def _section(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"## {title}", "", *lines])


def _data_lines(model: Any, data: str | None, target: str | None) -> list[str]:
    lines = [] if data is None else [f"- Table: {escaped(data)}"]
    lines += [] if target is None else [f"- Predicted column: {escaped(target)}"]
    held_out, places = model.held_out_, getattr(model, "_places", None)
    rows = len(held_out.y) if places is None else len(np.unique(places.rows))
    total = "" if places is None or places.total == rows else f" of {places.total:,}"
    apart = getattr(model, "calibration", None) is not None
    judged = "were kept apart from training" if apart else "were held out of some model's training"
    lines.append(f"- Rows that {judged}, and judged: {rows:,}{total}")
    lines.append(f"- {_columns(model)}")
    groups = len(held_out.y) if held_out.groups is None else len(np.unique(held_out.groups))
    if groups < rows:
        lines.append(f"- Groups of rows that were held out together: {groups:,}")
    if model._has_labels:
        shares = [(str(label), f"{share:.2%}") for label, share in enumerate(held_out.shares.tolist())]
        return [*lines, "", *table_lines(["Label", "Share of rows"], shares[:LISTED])]
    counts = np.bincount(held_out.y.numpy(), minlength=len(model.classes_))
    names = model.classes_[model._order].tolist()
    order = sorted(range(len(names)), key=lambda place: (-counts[place], place))
    listed = [(escaped(names[at]), f"{counts[at]:,}", f"{counts[at] / counts.sum():.2%}") for at in order[:LISTED]]
    more = [f"\n... and {len(names) - LISTED} more classes"] if len(names) > LISTED else []
    return [*lines, "", *table_lines(["Class", "Rows", "Share"], listed), *more]


def _columns(model: Any) -> str:
    number = getattr(model, "n_features_in_", None)
    if number is None:
        return "Columns: as the estimator takes them"
    known = [] if (encoder := getattr(model, "encoder_", None)) is None else encoder.columns or []
    kinds = [column.kind for column in known if column is not None]
    of_kinds = ", ".join(f"{kinds.count(kind)} {KINDS[kind]}" for kind in KINDS if kind in kinds)
    names = [escaped(name) for name in getattr(model, "feature_names_in_", ())]
    listed = ", ".join(names[:LISTED]) + (", ..." if len(names) > LISTED else "")
    return f"Columns: {number}" + (f" ({of_kinds})" if of_kinds else "") + (f": {listed}" if names else "")


def _model_lines(model: Any) -> list[str]:
    rows = getattr(model, "models_", None)
    if rows is None:
        folds = len(model.estimators_)
        how = "fitted before" if not folds else f"fitted on {folds} folds"
        return [f"- Estimator: {escaped(type(model.estimator).__name__)}, {how}"]
    fitted = [row for row in rows if row.left_out is None]
    label = escaped(get_metric(model.metric).name)
    table = table_lines(
        ["Family", "Weight", f"{label} out of fold", "Cross-entropy", "Seconds"],
        [
            (escaped(row.name), f"{row.weight:.2f}", f"{row.value:.4g}", f"{row.log_loss:.4g}", f"{row.seconds:.1f}")
            for row in fitted
        ],
    )
    left_out = [
        f"- Left out: {escaped(row.name)} ({escaped(row.left_out)})" for row in rows if row.left_out is not None
    ]
    return [*table, *([""] if left_out else []), *left_out]


def _versions() -> list[tuple[str, str]]:
    found = [("metricfit", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return found
