"""Draw the gradient of an objective for F1, and where boosting stops by log-loss and by F1: docs/img/boosting.svg."""

from __future__ import annotations

import lightgbm
import numpy as np
from page import BLUE, GREEN, GREY, ORANGE, plt, save

from metricfit import boosting

ROUNDS = 120


def draw_gradients(axes: plt.Axes) -> None:
    """The gradient of one row against its probability, in a table with 10 % positives whose scores are fair."""
    rng = np.random.default_rng(0)
    y = (np.arange(4000) < 400).astype(int)
    others = rng.normal(size=4000) - 3.0 + 3.0 * y
    probability = np.linspace(0.01, 0.99, 99)
    for label, colour in ((1, BLUE), (0, ORANGE)):
        for strength, style in ((0.0, ":"), (0.5, "-")):
            made = boosting.objective("f1", strength=strength)
            gradients = []
            for logit in np.log(probability / (1 - probability)):
                gradient, _ = made(np.append(y, label), np.append(others, logit))
                gradients.append(gradient[-1])
            name = f"{'positive' if label else 'negative'} row, {'with F1' if strength else 'log-loss alone'}"
            axes.plot(probability, gradients, style, color=colour, label=name)
    axes.axhline(0, color=GREY, linewidth=0.8)
    axes.set(xlabel="probability", ylabel="gradient", title="What one row asks for", ylim=(-1.7, 2.2))
    axes.legend(fontsize=8, ncols=2, loc="upper center")


def draw_stopping(axes: plt.Axes) -> None:
    """Log-loss and the best F1 of held-out rows after each round of plain LightGBM."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(6000, 8))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 1.5 * rng.normal(size=6000) > 3.2).astype(int)
    train, held_out = lightgbm.Dataset(x[:2000], y[:2000]), slice(2000, 6000)
    history: dict[str, dict[str, list[float]]] = {}
    settings = {"objective": "binary", "metric": "binary_logloss", "verbose": -1, "num_threads": 1, "seed": 0}
    lightgbm.train(
        settings | {"learning_rate": 0.05, "deterministic": True, "force_col_wise": True},
        train,
        ROUNDS,
        valid_sets=[lightgbm.Dataset(x[held_out], y[held_out], reference=train)],
        feval=boosting.eval_metric("f1"),
        callbacks=[lightgbm.record_evaluation(history)],
    )
    loss, f1 = history["valid_0"]["binary_logloss"], history["valid_0"]["f1"]
    rounds, twin = np.arange(1, ROUNDS + 1), axes.twinx()
    axes.plot(rounds, loss, color=GREY)
    axes.plot(np.argmin(loss) + 1, min(loss), "o", color=GREY)
    twin.plot(rounds, f1, color=GREEN)
    twin.plot(np.argmax(f1) + 1, max(f1), "s", color=GREEN)
    axes.set(xlabel="round", ylabel="log-loss (grey)", title="Where boosting stops")
    twin.set_ylabel("F1 at its best threshold (green)")
    twin.grid(visible=False)
    twin.spines["right"].set_visible(True)


def main() -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8))
    draw_gradients(left)
    draw_stopping(right)
    save(figure, "boosting")


if __name__ == "__main__":
    main()
