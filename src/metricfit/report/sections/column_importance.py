"""The section of the columns that matter: bars with intervals, the most important first."""

from __future__ import annotations

from metricfit.report.page import Section
from metricfit.tabular.insight.importance import Importance

SHOWN = 12
#: More columns than these are named in the note, not listed.
LISTED = 200


def column_importance(result: Importance, *, title: str = "Which columns matter", lead: str = "") -> Section:
    """Make a table of columns with their importance, the first twelve visible and the others folded.

    Args:
        result: What ``model.importance`` returned.
        title: Title of the section.
        lead: A sentence or two below the title.

    Returns:
        The section.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"column": ["age"], "importance": [0.2], "low": [0.1], "high": [0.3]})
        >>> column_importance(Importance(table, "f1", 0.7, 500, 5)).context["shown"][0]["name"]
        'age'
    """
    low = min([0.0, *result.table["low"]])
    high = max([0.0, *result.table["high"]])
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return float(100 * (value - low) / span)

    rows = [
        {
            "name": str(row.column),
            "importance": float(row.importance),
            "interval": (float(row.low), float(row.high)),
            "bar": (place(min(0.0, row.importance)), place(max(0.0, row.importance))),
            "whisker": (place(row.low), place(row.high)),
            "certain": row.low > 0,
        }
        for row in result.table.itertuples(index=False)
    ]
    context = {
        "metric": result.metric,
        "value": result.value,
        "rows": result.rows,
        "repeats": result.repeats,
        "notes": result.notes,
        "zero": place(0.0),
        "shown": rows[:SHOWN],
        "folded": rows[SHOWN:LISTED],
        "omitted": max(0, len(rows) - LISTED),
    }
    return Section(title, "column_importance.html", context, lead)
