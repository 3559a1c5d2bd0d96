"""How results look in a notebook: tables and sentences in place of the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import pandas as pd

from metricfit.tabular.facts import model_facts

if TYPE_CHECKING:
    from metricfit.tabular.doctor.examination import Examination

FORMAT = "{:.4g}".format


class Rows(list[Any]):
    """A list of dataclasses that is printed, and shown in a notebook, as a table.

    Example:
        >>> from metricfit.tabular.ensemble import ModelRow
        >>> Rows([ModelRow("linear", 0.25, 0.5), ModelRow("boosting", 0.75, 0.625)])
            name  weight  value
          linear    0.25    0.5
        boosting    0.75  0.625
    """

    def to_frame(self) -> pd.DataFrame:
        """Return a table with a column for each field that some row has."""
        return pd.DataFrame([vars(row) for row in self]).dropna(axis=1, how="all")

    def __repr__(self) -> str:
        return str(self.to_frame().to_string(index=False, na_rep="", float_format=FORMAT))

    def _repr_html_(self) -> str:
        return table(self.to_frame())


def table(frame: pd.DataFrame) -> str:
    """Return a table as HTML; texts are escaped."""
    return str(frame.to_html(index=False, border=0, na_rep="", float_format=FORMAT))


def items(texts: Iterable[str]) -> str:
    """Return texts as a list of HTML, or nothing."""
    listed = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{listed}</ul>" if listed else ""


def show_model(model: Any) -> str:
    """Return what a fitted model decides and is worth, as HTML."""
    facts = model_facts(model)
    ends = facts.value_interval
    interval = "" if ends is None else f" (95 % interval {ends[0]:.3f} to {ends[1]:.3f})"
    return (
        f"<p><strong>{escape(facts.label)} {facts.value:.3f}</strong>{interval}, estimated for new rows: "
        f"{escape(facts.basis)}.</p><p>{escape(facts.kind)}: {escape(facts.decision)}.</p>"
        + items(f"{each.text}: {each.description}" for each in facts.requirements)
        + (table(Rows(facts.families).to_frame()) if facts.families else "")
    )


def show_examination(examination: Examination) -> str:
    """Return the findings about a table as HTML, with what to do about each."""
    findings = [
        {"severity": each.severity, "finding": each.message, "what to do": each.remedy} for each in examination.findings
    ]
    size = f"<p>{examination.rows:,} rows, {examination.columns:,} columns to learn from.</p>"
    with pd.option_context("display.max_colwidth", None):
        return size + (table(pd.DataFrame(findings)) if findings else "<p>Nothing looks wrong.</p>")
