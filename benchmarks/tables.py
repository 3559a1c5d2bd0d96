"""A table is one interleaved measurement of several ways to do the same work; bars compare two of its lines."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.load import Watch


@dataclass(frozen=True)
class Setting:
    """The amount of work: how often works are repeated, and the sizes of their inputs."""

    repeats: int = 100
    fewest: int = 50  # repeats that are made even if the budget is spent
    budget: float = 10.0  # seconds, after which a table makes no further repeats
    tiny: bool = False  # small inputs, which only show that everything runs

    @property
    def warmup(self) -> int:
        """The number of runs of each work before it is timed."""
        return 1 if self.tiny else 3

    def size(self, full: int, tiny: int) -> int:
        """Return the size for this setting."""
        return tiny if self.tiny else full


FULL, QUICK, TINY = Setting(), Setting(20, 5, 2.0), Setting(1, 1, 0.0, tiny=True)


class NotMeasuredHere(Exception):
    """This machine lacks something that the work needs; the message says what."""


@dataclass(frozen=True)
class Line:
    """One way to do the work: seconds per pass, and the peak memory beyond the inputs if it was measured."""

    name: str
    seconds: float | None = None
    bytes: float | None = None
    note: str = ""
    repeats: int | None = None


@dataclass(frozen=True)
class Table:
    """Several ways to do the same work on one device, timed together; ratios are relative to the first line.

    ``why_fewer`` says why there are fewer than 50 repeats; ``is_long`` leaves the table out of quick runs.
    """

    name: str
    title: str
    device: str
    measure: Callable[[Setting], list[Line]]
    why_fewer: str = ""
    is_long: bool = False

    def run(self, setting: Setting) -> dict[str, Any]:
        """Measure the table, and return the result as plain data."""
        result: dict[str, Any] = {"name": self.name, "title": self.title, "device": self.device}
        watch = Watch()
        lines, reason = self._attempt(setting)
        lines_as_data = [asdict(line) for line in lines]
        why_fewer = self.why_fewer or ("a quick run" if setting.fewest < FULL.fewest else "")
        reasons = {"reason": reason, "why_fewer": why_fewer, "tiny": setting.tiny}
        return result | {"lines": lines_as_data} | reasons | watch.result()

    def _attempt(self, setting: Setting) -> tuple[list[Line], str]:
        """Return the lines, or none and the reason; a failure must not lose the other measurements."""
        if self.device == "cuda" and not torch.cuda.is_available():
            return [], "not measured here: no GPU"
        try:
            return self.measure(setting), ""
        except NotMeasuredHere as lack:
            return [], f"not measured here: {lack}"
        except torch.OutOfMemoryError:
            return [], "not measured here: not enough GPU memory"
        except Exception as error:
            traceback.print_exc()
            return [], f"failed with {type(error).__name__}"
        finally:
            if self.device == "cuda":
                torch.cuda.empty_cache()
