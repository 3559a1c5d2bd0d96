"""Draw new scores as a mixture of the classes, and F1 at other class balances: docs/img/prior-shift.svg."""

from __future__ import annotations

import numpy as np
import torch
from page import BLUE, GREEN, GREY, ORANGE, RED, plt, save

from metricfit import Counts, metrics
from metricfit.decide.calibration import fit_calibration
from metricfit.decide.choose import choose_without_intervals
from metricfit.decide.held_out import HeldOut
from metricfit.decide.shift import estimate_prior_shift

OLD, NEW = 0.1, 0.35
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7)


def draw(n: int, share: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    y = (np.arange(n) < round(n * share)).astype(np.int64)
    return torch.from_numpy(rng.normal(size=(n, 1)) + 2.0 * y[:, None]), torch.from_numpy(y)


def main() -> None:
    z, y = draw(5000, OLD, 0)
    calibration = fit_calibration(z, y, None)
    held_out = HeldOut(calibration(z), y, None, None, torch.tensor([1 - OLD, OLD], dtype=torch.float64))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    new = calibration(draw(3000, NEW, 1)[0])
    estimate = float(estimate_prior_shift(held_out, new).shares[1])
    bins = np.linspace(float(new.min()) - 0.5, float(new.max()) + 0.5, 40)
    middle, width = (bins[1:] + bins[:-1]) / 2, bins[1] - bins[0]
    left.hist(new.numpy(), bins, color=GREY, alpha=0.35, weights=np.full((len(new), 1), 1 / len(new)), label="new rows")
    parts = []
    for label, share, colour, name in ((0, 1 - estimate, BLUE, "negative"), (1, estimate, ORANGE, "positive")):
        counts = np.histogram(held_out.logits[y == label].numpy(), bins)[0]
        parts.append(share * counts / counts.sum())
        left.plot(middle, parts[-1], color=colour, label=f"held-out {name} rows, times {share:.2f}")
    left.plot(middle, parts[0] + parts[1], color=RED, linestyle="--", label="their sum")
    left.set(
        xlabel="calibrated logit", ylabel=f"share of rows per {width:.1f}", title=f"the share of positive rows: {NEW}"
    )
    left.set_ylim(0, 0.11)
    left.legend(fontsize=8)
    values: dict[str, list[float]] = {"threshold of training": [], "estimated balance": [], "true balance": []}
    for share in SHARES:
        scores, labels = draw(20000, share, 2)
        scores = calibration(scores)
        shares = (None, estimate_prior_shift(held_out, scores).shares, torch.tensor([1 - share, share]))
        for line, at in zip(values.values(), shares, strict=True):
            rows = held_out if at is None else held_out.with_class_shares(at)
            decision = choose_without_intervals(rows, metrics.f1, subject_to=[], average="macro")
            decided = decision.decide(scores + (rows.logits - held_out.logits)[0])
            line.append(float(metrics.f1(Counts.from_labels(decided, labels))))
    for (name, line), colour, style in zip(values.items(), (GREY, GREEN, RED), ("-", "-", ":"), strict=True):
        right.plot(SHARES, line, style, color=colour, marker="o", markersize=4, label=name)
    right.axvline(OLD, color=GREY, linewidth=1)
    right.annotate("training", (OLD, 0.9), xytext=(4, 0), textcoords="offset points", color=GREY)
    right.set(xscale="log", xlabel="share of positive rows among the new ones", ylabel="F1", ylim=(0, 1))
    right.set_xticks(SHARES, [str(share) for share in SHARES], fontsize=8)
    right.minorticks_off()
    right.legend(loc="lower right")
    save(figure, "prior-shift")


if __name__ == "__main__":
    main()
