"""The classes of rows and of groups of peers, and how they are measured."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.load import Watch

YES, NO, UNJUDGED = "yes", "no", "unjudged: quick"


@dataclass(frozen=True)
class Setting:
    """The amount of work: full sizes, or with ``quick`` small sizes that only show that everything runs."""

    repeats: int = 100
    quick: bool = False
    budget: float = 90.0  # seconds, after which a comparison makes no further repeats

    @property
    def warmup(self) -> int:
        """The number of runs of each work before it is timed."""
        return 1 if self.quick else 3

    def size(self, full: int, quick: int) -> int:
        """Return the size for this setting."""
        return quick if self.quick else full


class NotMeasuredHere(Exception):
    """This machine lacks something that the work needs; the message says what."""


@dataclass(frozen=True)
class Bar:
    """A bound on a ratio: of our cost to the baseline's ("at most"), or of the baseline's to ours ("at least")."""

    sense: str
    limit: float

    def __str__(self) -> str:
        return f"{self.sense} {self.limit:g}x"

    def ratio(self, ours: float, baseline: float) -> float:
        """Return the ratio that the bound is on."""
        return ours / baseline if self.sense == "at most" else baseline / ours

    def holds(self, ratio: float) -> bool:
        """Check whether the ratio is within the bound."""
        return ratio <= self.limit if self.sense == "at most" else ratio >= self.limit


def at_most(limit: float) -> Bar:
    """Return a bar: our cost may be at most this many times that of the baseline."""
    return Bar("at most", limit)


def at_least(limit: float) -> Bar:
    """Return a bar: ours must be at least this many times cheaper than the baseline."""
    return Bar("at least", limit)


@dataclass(frozen=True)
class Measurement:
    """Our cost and that of the baseline, in the same unit, and the number of repeats."""

    ours: float
    baseline: float
    unit: str = "s"
    repeats: int | None = None


@dataclass(frozen=True)
class Row:
    """One promise: a piece of work, the device it is for, the bar, and the function that measures it."""

    name: str
    work: str
    device: str
    bar: Bar
    measure: Callable[[Setting], Measurement]

    def run(self, setting: Setting) -> dict[str, Any]:
        """Measure the row, and return the result as plain data."""
        result: dict[str, Any] = {"name": self.name, "work": self.work, "device": self.device, "bar": str(self.bar)}
        watch = Watch()
        measured, reason = _attempt(self.measure, self.device, setting)
        if measured is None:
            return result | {"ratio": None, "holds": reason}
        ratio = self.bar.ratio(measured.ours, measured.baseline)
        holds = UNJUDGED if setting.quick else YES if self.bar.holds(ratio) else NO
        return result | asdict(measured) | {"ratio": ratio, "holds": holds} | watch.result()


@dataclass(frozen=True)
class Peer:
    """One line of a table of peers: seconds per pass, and the memory beyond the inputs if it was measured."""

    name: str
    seconds: float
    peak_bytes: int | None = None
    note: str = ""
    repeats: int | None = None


@dataclass(frozen=True)
class PeerGroup:
    """Several ways to do the same work, timed together for information; ratios are relative to the first."""

    name: str
    title: str
    device: str
    measure: Callable[[Setting], list[Peer]]

    def run(self, setting: Setting) -> dict[str, Any]:
        """Measure the group, and return the result as plain data."""
        result: dict[str, Any] = {"name": self.name, "title": self.title, "device": self.device}
        watch = Watch()
        peers, reason = _attempt(self.measure, self.device, setting)
        if peers is None:
            return result | {"peers": [], "reason": reason}
        lines = [asdict(peer) | {"ratio": peer.seconds / peers[0].seconds} for peer in peers]
        return result | {"peers": lines, "reason": None} | watch.result()


def _attempt(measure: Callable[[Setting], Any], device: str, setting: Setting) -> tuple[Any, str]:
    """Return the measurement, or None and the reason; a failure must not lose the other measurements."""
    if device == "cuda" and not torch.cuda.is_available():
        return None, "not measured here: no GPU"
    try:
        return measure(setting), ""
    except NotMeasuredHere as lack:
        return None, f"not measured here: {lack}"
    except torch.OutOfMemoryError:
        return None, "not measured here: not enough GPU memory"
    except Exception as error:
        traceback.print_exc()
        return None, f"{NO}: it failed with {type(error).__name__}"
    finally:
        if device == "cuda":
            torch.cuda.empty_cache()
