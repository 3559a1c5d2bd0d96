"""Train a small network three ways on a real, imbalanced table, and compare them honestly.

The data are scikit-learn's diabetes table (442 patients, 10 features): is the disease's progression after a year above
its 85th percentile? Each split trains on 60 % of the rows, stops early and tunes its threshold on 20 %, and is scored
once on the remaining 20 %. Writes ``index.html`` and ``report.json``.

    python examples/demo.py --out demo-report
"""

from __future__ import annotations

import argparse
import base64
import copy
import io
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path

import matplotlib
import numpy as np
import torch
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import metricfit
from metricfit import Counts, MetricLoss, metrics
from metricfit.curves import best_threshold
from metricfit.losses import Mix
from metricfit.train import start_at_prior

matplotlib.use("Agg")
import matplotlib.pyplot as plt

PERCENTILE = 85
LOSSES: dict[str, Callable[[], nn.Module]] = {
    "BCE": nn.BCEWithLogitsLoss,
    "F1 loss": lambda: MetricLoss("f1"),
    "BCE + 0.5 F1 loss": lambda: Mix((nn.BCEWithLogitsLoss(), 1.0), (MetricLoss("f1"), 0.5)),
}
RULES = {"at_half": "at 0.5", "tuned": "tuned"}
REFERENCE = ("BCE", "tuned")
Part = tuple[Tensor, Tensor]


@dataclass
class Score:
    """The test F1 of one method on one split, at threshold 0.5 and at the one tuned on the validation rows."""

    method: str
    split: int
    at_half: float
    tuned: float
    threshold: float
    epochs: int


@dataclass
class Summary:
    """One method with one way to choose the threshold, over all splits; differences are from tuned BCE, paired."""

    method: str
    rule: str
    mean: float
    error: float
    difference: float
    difference_error: float
    wins: int
    losses: int


def load(seed: int) -> tuple[Part, Part, Part]:
    """Train, validation and test rows, stratified; features standardised on the training rows."""
    features, progression = load_diabetes(return_X_y=True)
    labels = (progression > np.percentile(progression, PERCENTILE)).astype(np.float32)
    rest, test = train_test_split(np.arange(len(labels)), test_size=0.2, stratify=labels, random_state=seed)
    train, validation = train_test_split(rest, test_size=0.25, stratify=labels[rest], random_state=seed)
    x = torch.tensor((features - features[train].mean(0)) / features[train].std(0), dtype=torch.float32)
    y = torch.tensor(labels)
    return (x[train], y[train]), (x[validation], y[validation]), (x[test], y[test])


def fit(
    loss: nn.Module, train: Part, validation: Part, *, seed: int, epochs: int, patience: int
) -> tuple[nn.Module, int]:
    """Full-batch AdamW, stopped on the validation loss; the best weights and the epoch they come from."""
    torch.manual_seed(seed)
    (x, y), (x_validation, y_validation) = train, validation
    model = nn.Sequential(
        nn.Linear(x.shape[1], 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)
    )
    start_at_prior(model, float(y.mean()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    best, best_epoch, best_weights = float("inf"), 0, copy.deepcopy(model.state_dict())
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        loss(model(x), y.unsqueeze(1)).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            now = float(loss(model(x_validation), y_validation.unsqueeze(1)))
        if now < best:
            best, best_epoch, best_weights = now, epoch, copy.deepcopy(model.state_dict())
        elif epoch - best_epoch >= patience:
            break
    model.load_state_dict(best_weights)
    return model.eval(), best_epoch


def f1(probabilities: Tensor, target: Tensor, threshold: float) -> float:
    return float(metrics.f1(Counts.from_labels(probabilities >= threshold, target)))


@torch.no_grad()
def score(model: nn.Module, validation: Part, test: Part) -> tuple[float, float, float]:
    """Test F1 at 0.5, test F1 at the threshold that is exactly best on the validation rows, and that threshold."""
    on_validation, on_test = (model(x).squeeze(1).sigmoid() for x, _ in (validation, test))
    threshold = best_threshold(on_validation, validation[1], "f1").threshold
    return f1(on_test, test[1], 0.5), f1(on_test, test[1], threshold), threshold


def run(splits: int, epochs: int, patience: int) -> list[Score]:
    scores = []
    for split in range(splits):
        train, validation, test = load(split)
        for method, make in LOSSES.items():
            model, best_epoch = fit(make(), train, validation, seed=split, epochs=epochs, patience=patience)
            at_half, tuned, threshold = score(model, validation, test)
            scores.append(Score(method, split, at_half, tuned, threshold, best_epoch))
        latest = "   ".join(f"{one.method} {one.tuned:.3f}" for one in scores[-len(LOSSES) :])
        print(f"split {split + 1:2} of {splits}: test F1 with tuned threshold   {latest}", flush=True)
    return scores


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


def summarise(scores: list[Score]) -> list[Summary]:
    reference = [getattr(one, REFERENCE[1]) for one in scores if one.method == REFERENCE[0]]
    summaries = []
    for method in LOSSES:
        for rule in RULES:
            values = [getattr(one, rule) for one in scores if one.method == method]
            gaps = [value - base for value, base in zip(values, reference, strict=True)]
            wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
            summaries.append(Summary(method, rule, *mean_and_error(values), *mean_and_error(gaps), wins, losses))
    return summaries


def verdict(one: Summary) -> str:
    """What the paired difference says, in words: clear is more than two standard errors from 0."""
    figures = f"{one.difference:+.3f} ± {one.difference_error:.3f}, {one.wins} wins and {one.losses} losses"
    if one.difference > 2 * one.difference_error:
        return f"better than tuned BCE ({figures})"
    if one.difference < -2 * one.difference_error:
        return f"worse than tuned BCE: on these data BCE with a tuned threshold wins ({figures})"
    lean = "ahead of" if one.difference > 0 else "behind"
    return f"{lean} tuned BCE, but within the noise: on these data tuned BCE is as good ({figures})"


def against(one: Summary) -> tuple[str, str]:
    """The cells of the table that compare with tuned BCE."""
    if (one.method, one.rule) == REFERENCE:
        return "the reference", ""
    return f"{one.difference:+.3f} ± {one.difference_error:.3f}", f"{one.wins} / {one.losses}"


def verdicts(summaries: list[Summary]) -> list[str]:
    others = [one for one in summaries if (one.method, one.rule) != REFERENCE]
    return [f"{one.method}, threshold {RULES[one.rule]}: {verdict(one)}." for one in others]


def plot(scores: list[Score], summaries: list[Summary]) -> bytes:
    """Every split as a small dot, means with their standard errors, tuned BCE as the line to beat. A PNG."""
    colours = {"at_half": "#c2410c", "tuned": "#1d4ed8"}
    figure, axes = plt.subplots(figsize=(8, 3.6), dpi=160, layout="constrained")
    for row, one in enumerate(summaries):
        values = [getattr(each, one.rule) for each in scores if each.method == one.method]
        axes.scatter(values, [row] * len(values), s=22, color=colours[one.rule], alpha=0.3, linewidths=0)
        axes.errorbar(one.mean, row, xerr=one.error, fmt="D", markersize=6, capsize=4, color=colours[one.rule])
    target = next(one.mean for one in summaries if (one.method, one.rule) == REFERENCE)
    axes.axvline(target, color="#6b7280", linestyle="--", linewidth=1, zorder=0)
    axes.set_yticks(range(len(summaries)), [f"{one.method}, {RULES[one.rule]}" for one in summaries])
    axes.invert_yaxis()
    axes.set_xlabel("test F1: dots are splits, diamonds means ± standard error, the line is tuned BCE")
    axes.spines[["top", "right"]].set_visible(False)
    png = io.BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    plt.close(figure)
    return png.getvalue()


STYLE = """
:root { color-scheme: light dark; --text: #1f2937; --page: #ffffff; --line: #d1d5db; --soft: #f3f4f6; }
@media (prefers-color-scheme: dark) { :root { --text: #e5e7eb; --page: #111827; --line: #374151; --soft: #1f2937; } }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page);
       max-width: 52rem; margin: 2.5rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .45rem .6rem; border-bottom: 1px solid var(--line); }
th:nth-child(-n+2), td:nth-child(-n+2) { text-align: left; }
th { background: var(--soft); } .wide { overflow-x: auto; }
img { box-sizing: border-box; width: 100%; padding: .5rem; background: #ffffff; border-radius: .5rem; }
small { opacity: .8; }
"""


def page(summaries: list[Summary], png: bytes, splits: int) -> str:
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(cell)}</td>"
            for cell in (
                one.method,
                RULES[one.rule],
                f"{one.mean:.3f} ± {one.error:.3f}",
                *against(one),
            )
        )
        + "</tr>\n"
        for one in summaries
    )
    points = "".join(f"<li>{escape(line)}</li>\n" for line in verdicts(summaries))
    heads = "".join(f"<th>{h}</th>" for h in ("loss", "threshold", "test F1", "against tuned BCE", "wins / losses"))
    image = base64.b64encode(png).decode()
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>metricfit demo</title><style>{STYLE}</style></head><body>
<h1>F1 on the diabetes table, three losses</h1>
<p>442 patients, 10 features; positive is a progression above the {PERCENTILE}th percentile, 15 % of the rows.
{splits} stratified splits: 60 % to train, 20 % to stop early and to tune the threshold, 20 % to score once.</p>
<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>
{rows}</tbody></table></div>
<img alt="Test F1 of each loss at threshold 0.5 and at the tuned threshold" src="data:image/png;base64,{image}">
<h2>What the numbers say</h2>
<ul>{points}</ul>
<p><small>Mean ± standard error over the splits; differences are paired by split. A difference is called clear beyond
two standard errors. The splits share rows, so the true errors are somewhat larger than the ones shown.
metricfit {escape(metricfit.__version__)}, torch {escape(torch.__version__)}.</small></p>
</body></html>
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo-report"), help="folder of the report")
    parser.add_argument("--quick", action="store_true", help="two splits, few epochs: does it run?")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)  # the network is tiny: more threads only wait for each other
    splits, epochs, patience = (2, 5, 5) if options.quick else (10, 300, 40)

    scores = run(splits, epochs, patience)
    summaries = summarise(scores)
    print(f"\n{'loss':20}{'threshold':12}{'test F1':18}against tuned BCE")
    for one in summaries:
        figures = f"{one.mean:.3f} ± {one.error:.3f}"
        print(f"{one.method:20}{RULES[one.rule]:12}{figures:18}{against(one)[0]}")
    print("\n" + "\n".join(verdicts(summaries)))

    options.out.mkdir(parents=True, exist_ok=True)
    report = {
        "metricfit": metricfit.__version__,
        "torch": torch.__version__,
        "splits": splits,
        "summaries": [asdict(one) for one in summaries],
        "verdicts": verdicts(summaries),
        "scores": [asdict(one) for one in scores],
    }
    (options.out / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    index = options.out / "index.html"
    index.write_text(page(summaries, plot(scores, summaries), splits), encoding="utf-8")
    print(f"\nOpen {index.resolve()}")


if __name__ == "__main__":
    main()
