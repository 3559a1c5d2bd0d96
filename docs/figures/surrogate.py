"""Redraw Figure 1 of Lee et al. 2021 from the library's own losses: docs/img/surrogate.svg."""

from __future__ import annotations

import math

import torch
from page import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, plt, save

from metricfit.losses import SurrogateFBetaLoss, WeightedBCELoss


def main() -> None:
    q = torch.linspace(0.001, 0.97, 970, dtype=torch.float64)
    bce = WeightedBCELoss()
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9), sharey=True)

    # A positive sample with p = 1 - q: what the losses say of its miss q.
    missed = torch.logit(1 - q)
    surrogate = SurrogateFBetaLoss(beta=1.0, prior=0.5, balanced=False)
    left.plot(q, bce.of_positive(missed), color=GREY, label="cross-entropy, -log(1 - q)")
    left.plot(q, surrogate.of_positive(missed), color=BLUE, linestyle="--", label="surrogate, -log(1 - q)")
    left.plot(q, q, color=GREEN, label="absolute error, q")
    left.set(title="(a) a positive, q = 1 - p", xlabel="q", ylabel="loss less its value at q = 0", ylim=(0, 3.2))
    left.legend(loc="upper left")

    # A negative sample with p = q.
    alarm = torch.logit(q)
    right.plot(q, bce.of_negative(alarm), color=GREY, label="cross-entropy, -log(1 - q)")
    right.plot(q, q, color=GREEN, label="absolute error, q")
    for beta, colour in ((0.5, RED), (1.0, BLUE), (2.0, ORANGE), (3.0, PURPLE)):
        loss = SurrogateFBetaLoss(beta=beta, prior=0.5, balanced=False)
        constant = math.log(beta**2)
        right.plot(
            q, loss.of_negative(alarm) - constant, color=colour, linestyle="--", label=f"surrogate, beta = {beta:g}"
        )
    right.set(title="(b) a negative, q = p; half of the samples positive", xlabel="q")
    right.legend(loc="upper left")
    save(figure, "surrogate")


if __name__ == "__main__":
    main()
