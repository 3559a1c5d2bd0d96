"""What the user says about columns and rows before a table is learned from: ``--drop``, ``--category``, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from metricfit.cli.exit_codes import UserError
from metricfit.cli.terminal import print_message
from metricfit.data.column_names import did_you_mean
from metricfit.errors import quote
from metricfit.tabular.encoding.columns import as_text


class ColumnChoice(NamedTuple):
    """Which columns are not learned from, which are categories, and what to do with rows without a label.

    Attributes:
        drop: Columns that are not learned from.
        category: Columns of codes, which are categories although they look like numbers.
        skip_unlabelled: Whether rows without a label are left out, which are otherwise refused.
    """

    drop: tuple[str, ...] = ()
    category: tuple[str, ...] = ()
    skip_unlabelled: bool = False

    @classmethod
    def of(
        cls, drop: Sequence[str] | None, category: Sequence[str] | None = None, skip_unlabelled: bool = False
    ) -> ColumnChoice:
        """Return the choice of a command's options."""
        return cls(tuple(drop or ()), tuple(category or ()), skip_unlabelled)

    def check(self, columns: Sequence[str], source: str, used: dict[str, str | None]) -> None:
        """Refuse columns that are not there, or that other options need.

        Args:
            columns: The columns of the table.
            source: Name of the table, for messages.
            used: The columns that other options name, by option.

        Raises:
            UserError: A column is not there, or named by two options.
        """
        for option, names in (("--drop", self.drop), ("--category", self.category)):
            for name in names:
                if name not in columns:
                    hint = did_you_mean(name, columns)
                    raise UserError(f"{source} has no column {quote(name)} for {option}.{hint}")
                for other, column in used.items():
                    if name == column:
                        raise UserError(f"{option} and {other} both name {quote(name)}; leave one of them out.")
        both = [name for name in self.category if name in self.drop]
        if both:
            raise UserError(f"--drop and --category both name {quote(both[0])}; leave one of them out.")

    def apply(self, frame: pd.DataFrame, target: str, source: str) -> pd.DataFrame:
        """Return the table without what is left out, and with its codes as categories; a message counts such rows."""
        frame = frame.drop(columns=[name for name in self.drop if name in frame.columns])
        if self.skip_unlabelled and target in frame.columns:
            labelled = frame[target].notna()
            missing = int((~labelled).sum())
            if missing:
                print_message(f"{missing:,} of {len(frame):,} rows of {source} have no label and are left out.")
                frame = frame[labelled].reset_index(drop=True)
        codes = {name: as_text(frame[name]) for name in self.category if name in frame.columns}
        return frame.assign(**{name: pd.Categorical(code) for name, code in codes.items()})


#: All columns are learned from as they are, and rows without a label are refused.
EVERYTHING = ColumnChoice()
