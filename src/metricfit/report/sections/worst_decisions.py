"""The section of the rows that are most wrong, with their values."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import pandas as pd

from metricfit.report import formatting
from metricfit.report.page import Section
from metricfit.tabular.insight.worst_rows import WorstRows

SHOWN_ROWS, SHOWN_COLUMNS = 12, 8
LONGEST = 40


def worst_decisions(
    result: WorstRows, *, first: Sequence[Any] = (), title: str = "Rows that are most wrong", lead: str = ""
) -> Section:
    """Make a table of the rows that are most wrong, twelve visible and the others folded, with at most eight columns.

    Args:
        result: What ``model.worst`` returned.
        first: Columns to show before the others, such as the most important ones.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> judged = {"truth": ["no"], "decision": ["yes"], "probability": [0.9]}
        >>> table = pd.DataFrame({**judged, "age": [40.0]})
        >>> worst_decisions(WorstRows(table, np.array([0]), 100, 5, "yes")).context["shown"][0]["cells"]
        ['40']
    """
    table, judged = result.table, result.judged
    values, has_costs = table.iloc[:, judged:], judged == 4
    order = {name: place for place, name in enumerate(first)}
    places = sorted(range(values.shape[1]), key=lambda place: (order.get(values.columns[place], len(order)), place))
    chosen = places[:SHOWN_COLUMNS]
    rows = [
        {
            "label": str(label),
            "truth": str(row[0]),
            "decision": str(row[1]),
            "right": row[0] == row[1],
            "probability": float(row[2]),
            "cost": float(row[3]) if has_costs else None,
            "cells": [cell_text(row[judged + place]) for place in chosen],
        }
        for label, row in zip(table.index, table.itertuples(index=False, name=None), strict=True)
    ]
    context = {
        "columns": [formatting.shortened(str(values.columns[place]), 24) for place in chosen],
        "hidden": len(places) - len(chosen),
        "shown": rows[:SHOWN_ROWS],
        "folded": rows[SHOWN_ROWS:],
        "positive": None if result.positive is None else str(result.positive),
        "costs": has_costs,
        "total": result.total,
        "wrong": result.wrong,
        "notes": result.notes,
    }
    return Section(title, "worst_decisions.html", context, lead)


def cell_text(value: Any) -> str:
    """Return an entry of a table as text, short and with few digits; nothing where it is missing.

    >>> cell_text(1234567), cell_text(0.123456), cell_text(float("nan")), cell_text(40.0)
    ('1234567', '0.1235', '', '40')
    """
    if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
        return ""
    if isinstance(value, (bool, np.bool_, Integral)):
        return str(value)
    if isinstance(value, Real):
        number = float(value)
        return f"{number:.0f}" if number == round(number) and abs(number) < 1e15 else f"{number:.4g}"
    return formatting.shortened(" ".join(str(value).split()), LONGEST)
