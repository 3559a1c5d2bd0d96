"""What an export returns: the file, how it compares with the model, and how fast both are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

#: Rows with another label that a message names.
NAMED_ROWS = 10


class Latency(NamedTuple):
    """Milliseconds of one call.

    Attributes:
        one_row: For one row, the median of 21 calls.
        thousand_rows: For 1,000 rows, the fastest of 3 calls.
    """

    one_row: float
    thousand_rows: float


@dataclass(frozen=True)
class OnnxExport:
    """What was exported.

    Attributes:
        path: The file.
        bytes: Its size.
        inputs: For each input of the graph, what it holds.
        outputs: The names of the outputs: the label, and the probabilities of all classes.
        classes: The labels in the order of the probabilities.
        checked_rows: The number of rows on which the graph was compared with the model.
        unknown_text_rows: The number of rows that were not compared, because they have a text that was not there in
            training: the graph takes it for missing, and the model encodes its characters.
        made_up: Whether these rows were made up, because none were passed.
        rows_from: Which rows these are, in words, such as "made-up rows" or "training rows".
        different_rows: The positions of the rows with another label than the model's.
        largest_difference: The largest difference of a probability.
        load_seconds: The time that onnxruntime took to load the graph.
        latency: Milliseconds of the graph, for one row and for 1,000.
        model_latency: The same for ``predict`` of the model.
    """

    path: Path
    bytes: int
    inputs: dict[str, str]
    outputs: tuple[str, str]
    classes: tuple[Any, ...]
    checked_rows: int
    unknown_text_rows: int
    made_up: bool
    rows_from: str
    different_rows: tuple[int, ...]
    largest_difference: float
    load_seconds: float
    latency: Latency
    model_latency: Latency

    def to_dict(self) -> dict[str, Any]:
        """Describe the export in plain values, as ``metricfit export --json`` prints it.

        Returns:
            The fields, with the latencies by name and the number of different labels.
        """
        return asdict(self) | {
            "path": str(self.path),
            "latency": self.latency._asdict(),
            "model_latency": self.model_latency._asdict(),
            "different_labels": len(self.different_rows),
        }

    def __str__(self) -> str:
        """Say in sentences what was written and how it compares with the model."""
        rows = f"{self.checked_rows:,} {self.rows_from}"
        if self.unknown_text_rows:
            rows += f" (not on {self.unknown_text_rows:,} with text that was not there in training)"
        if self.different_rows:
            count, named = len(self.different_rows), ", ".join(map(str, self.different_rows[:NAMED_ROWS]))
            more = ", ..." if count > NAMED_ROWS else ""
            verb, noun = ("differs", "row") if count == 1 else ("differ", "rows")
            labels = f"{count} of the labels {verb}, at {noun} {named}{more} (counted from 0)"
        else:
            labels = "all labels equal"
        size = f"{self.bytes / 1e6:.1f} MB" if self.bytes >= 1e6 else f"{self.bytes / 1e3:.0f} KB"
        return "\n".join(
            [
                f"{self.path}: {size}, {len(self.inputs)} inputs; outputs {' and '.join(self.outputs)}",
                f"Checked on {rows}: {labels}; probabilities differ by at most {self.largest_difference:.1g}",
                f"One row: {self.latency.one_row:.2f} ms (in Python {self.model_latency.one_row:.1f} ms); 1,000 rows: "
                f"{self.latency.thousand_rows:.0f} ms (in Python {self.model_latency.thousand_rows:.0f} ms); loading "
                f"takes {self.load_seconds:.1f} s",
            ]
        )
