"""What the studies share: a problem with rare positives, a training loop, and pages whose tables a script fills in."""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state

from metricfit import Counts, metrics
from metricfit.curves import best_threshold

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DIMENSIONS = 10


class Rows(NamedTuple):
    """Features ``(n, 10)`` and labels ``(n,)``."""

    x: Tensor
    y: Tensor


class Problem(NamedTuple):
    """Rows to train on, to tune thresholds on and to score on, all with the same share of positives."""

    train: Rows
    validation: Rows
    test: Rows


class F1(NamedTuple):
    """The test F1 at threshold 0.5 and at the threshold that is best on the validation rows."""

    at_half: float
    tuned: float


def gaussians(n: int, prior: float, distance: float, generator: torch.Generator) -> Rows:
    """Two Gaussians of unit variance, their means ``distance`` apart; round(n * prior) rows are positive."""
    y = (torch.arange(n) < round(n * prior)).float()
    x = torch.randn(n, DIMENSIONS, generator=generator) + y.unsqueeze(1) * distance / DIMENSIONS**0.5
    return Rows(x, y)


def problem(seed: int, sizes: tuple[int, int, int], prior: float, distance: float) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    return Problem(*(gaussians(n, prior, distance, generator) for n in sizes))


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(DIMENSIONS, 32), nn.ReLU(), nn.Linear(32, 1))


def f1_scores(validation_logits: Tensor, test_logits: Tensor, data: Problem) -> F1:
    """The two F1 of a model's logits. Any increasing score has the same tuned F1, so that logits will do."""
    tuned = best_threshold(validation_logits, data.validation.y, "f1").threshold

    def f1(threshold: float) -> float:
        return metrics.f1(Counts.from_labels(test_logits >= threshold, data.test.y)).item()

    return F1(f1(0.0), f1(tuned))


class Population:
    """One network a seed, trained side by side: one stacked forward pass, a loss and a problem of its own for each.

    Adam and SGD work number by number, so that the members do not touch: the result is that of training them in a row.
    """

    def __init__(self, models: Sequence[nn.Sequential], problems: Sequence[Problem]) -> None:
        self.skeleton, self.problems = models[0], problems
        self.parameters, _ = stack_module_state(list(models))
        self.x = torch.stack([data.train.x for data in problems])
        self.y = torch.stack([data.train.y for data in problems])

    def logits(self, x: Tensor) -> Tensor:
        """Logits ``(seeds, n)`` of features ``(seeds, n, 10)``, each seed's by its own network."""
        return torch.vmap(lambda weights, rows: functional_call(self.skeleton, weights, (rows,)))(
            self.parameters, x
        ).squeeze(-1)

    def train(
        self,
        losses: Sequence[nn.Module],
        *,
        steps: int,
        batch: int,
        lr: float,
        optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.Adam,
        before_step: Callable[[int], None] = lambda step: None,
    ) -> Population:
        """``steps`` steps on random batches, the same batches for every loss; returns itself."""
        generator = torch.Generator().manual_seed(0)
        optimise = optimizer(self.parameters.values(), lr=lr)
        seeds = torch.arange(len(self.problems)).unsqueeze(1)
        for step in range(steps):
            before_step(step)
            rows = torch.randint(self.x.shape[1], (len(self.problems), batch), generator=generator)
            logits, target = self.logits(self.x[seeds, rows]), self.y[seeds, rows]
            optimise.zero_grad()
            sum(loss(x, y) for loss, x, y in zip(losses, logits, target, strict=True)).backward()
            optimise.step()
        return self

    @torch.no_grad()
    def scores(self) -> list[F1]:
        """The test F1 of each member."""
        validation = self.logits(torch.stack([data.validation.x for data in self.problems]))
        test = self.logits(torch.stack([data.test.x for data in self.problems]))
        return [f1_scores(*each) for each in zip(validation, test, self.problems, strict=True)]


def spread(values: Iterable[float]) -> str:
    """The median, with the lowest and the highest."""
    values = sorted(values)
    return f"{statistics.median(values):.3f} ({values[0]:.3f} to {values[-1]:.3f})"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def fill(page: str, parts: dict[str, str]) -> str:
    """The page with each part put between its comments ``<!-- begin: name -->`` and ``<!-- end: name -->``."""
    for name, text in parts.items():
        between = re.compile(rf"(<!-- begin: {re.escape(name)} -->\n).*?(<!-- end: {re.escape(name)} -->)", re.DOTALL)
        page, found = between.subn(lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", page)
        if found != 1:
            raise ValueError(f"the page has {found} places for {name!r}; it needs one")
    return page


def plain(given: Any) -> Any:
    """Named tuples and dataclasses as dictionaries, all the way down, and numbers to six digits."""
    if hasattr(given, "_asdict"):
        return plain(given._asdict())
    if is_dataclass(given):
        return plain(vars(given))
    if isinstance(given, dict):
        return {str(key): plain(value) for key, value in given.items()}
    if isinstance(given, (list, tuple)):
        return [plain(value) for value in given]
    return float(f"{given:.6g}") if isinstance(given, float) else given


def publish(out: Path, page: str, parts: dict[str, str], study: str, results: dict[str, Any]) -> None:
    """Write the page with its parts filled in, and the results of the study as JSON."""
    write_page(out, page, parts)
    where = out / "studies" / "results" / f"{study}.json"
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_text(json.dumps(plain(results), indent=1) + "\n", encoding="utf-8")
    print(f"Wrote {out / 'docs' / page} and {where}")


def write_page(out: Path, page: str, parts: dict[str, str]) -> None:
    """Write a page of docs/ with its parts filled in, into the folder docs/ of ``out``."""
    written = fill((DOCS / page).read_text(encoding="utf-8"), parts)
    (out / "docs" / page).parent.mkdir(parents=True, exist_ok=True)
    (out / "docs" / page).write_text(written, encoding="utf-8")


def options(doc: str | None, arguments: list[str] | None) -> argparse.Namespace:
    """The studies' command line; also keeps torch to one thread, for networks this small gain nothing from more."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT, help="where docs/ and studies/results/ are written")
    parser.add_argument("--quick", action="store_true", help="a tiny version: does it run?")
    given = parser.parse_args(arguments)
    (given.out / "docs" / "img").mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    # A fixed salt, so that a picture of the same numbers is the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "metricfit", "axes.spines.top": False, "axes.spines.right": False})
    return given
