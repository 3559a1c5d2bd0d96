"""The target: missing labels, labels that look alike, classes of few rows, and rows for a requirement."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from metricfit.data.labels import check_classes, quote_label
from metricfit.decide.class_requirements import class_requirements
from metricfit.decide.guarantees.guarantee_checks import checked_guarantee
from metricfit.errors import InvalidValueError, MetricfitError, quote
from metricfit.metrics.feasibility import InfeasibleError
from metricfit.metrics.requirements import Requirement
from metricfit.tabular.doctor.finding import Finding, describe_share

#: Classes of fewer rows are warned about.
FEW_ROWS = 10
#: The confidence at which requirements are judged that were asked for without one.
USUAL_CONFIDENCE = 0.95


def find_missing_labels(y: pd.Series) -> list[Finding]:
    """Find rows without a label, with which ``fit`` refuses to begin."""
    missing = int(y.isna().sum())
    if not missing:
        return []
    return [
        Finding(
            "missing_labels",
            "serious",
            f"The target {quote(y.name)} is missing in {describe_share(missing, len(y))}.",
            "Give these rows a label, or leave them out: --skip-unlabelled. The other checks are without them.",
            (str(y.name),),
        )
    ]


def find_bad_classes(y: pd.Series, source: str) -> list[Finding]:
    """Find labels that cannot be learned, that differ by blanks only, and classes of few rows.

    Args:
        y: The labels, none missing.
        source: Name of the table, for messages.

    Returns:
        The findings, in no order.
    """
    try:
        check_classes(y, source)
    except MetricfitError as error:
        return [Finding("target", "serious", str(error), "", (str(y.name),))]
    found = []
    by_text: dict[str, list[str]] = {}
    for label in y.unique():
        by_text.setdefault(str(label).strip().casefold(), []).append(quote(str(label)))
    for alike in by_text.values():
        if len(alike) > 1:
            how = "blanks" if len({each.strip("'\" ") for each in alike}) == 1 else "blanks or capital letters"
            found.append(
                Finding(
                    "similar_labels",
                    "warning",
                    f"The labels {' and '.join(alike)} differ only by {how}, and count as different classes.",
                    "Write them alike if they mean the same.",
                    (str(y.name),),
                )
            )
    counts = y.value_counts()
    if int(counts.iloc[-1]) < FEW_ROWS:
        found.append(
            Finding(
                "few_rows",
                "warning",
                f"The class {quote_label(counts.index[-1])} has {int(counts.iloc[-1])} rows.",
                "Decisions and values that rest on so few rows are uncertain; collect more of them if you can.",
                (str(y.name),),
            )
        )
    return found


def find_too_few_rows(
    y: pd.Series, positive: object, requirements: Sequence[Requirement], confidence: float | None
) -> list[Finding]:
    """Find requirements that the rows are too few for, whatever the model is.

    Args:
        y: The labels.
        positive: The positive class of two; None for several classes.
        requirements: The requirements.
        confidence: The probability with which all must hold; None if they need only be met on held-out rows.

    Returns:
        One finding, or none. Without a confidence it is a warning that the requirements cannot be promised, at 95 %,
        if they have exact bounds.
    """
    if not requirements:
        return []
    labels = sorted(y.unique().tolist(), key=lambda label: (label == positive, label))
    numbers = np.array(y.map({label: number for number, label in enumerate(labels)}), dtype=np.int64)
    asked = class_requirements(requirements, len(labels), names=labels)
    try:
        checked_guarantee(asked, torch.from_numpy(numbers), USUAL_CONFIDENCE if confidence is None else confidence)
    except InfeasibleError as error:
        if confidence is not None:
            return [Finding("too_few_rows", "serious", f"{error}.", "Ask for less, or collect more rows.")]
        return [
            Finding(
                "too_few_rows",
                "warning",
                f"A requirement that is met on these rows may well fail on new ones: {error}.",
                f"Ask for less, or collect more rows and give --confidence {USUAL_CONFIDENCE:g}.",
            )
        ]
    except InvalidValueError:
        if confidence is not None:
            raise
    return []
