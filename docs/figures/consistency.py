"""Draw how soft and hard values of a metric approach their common limit: docs/img/consistency.svg."""

from __future__ import annotations

import numpy as np
from page import BLUE, GREY, ORANGE, plt, save

from metricfit_papers.consistency import METRICS, distances

SIZES = (30, 100, 300, 1000, 3000, 10_000)


def main() -> None:
    figure, axes = plt.subplots(1, len(METRICS), figsize=(11, 3), sharey=True)
    for axis, name in zip(axes, METRICS, strict=True):
        roots = np.array([np.sqrt((distances(name, n, draws=30) ** 2).mean(0)) for n in SIZES])
        axis.loglog(SIZES, roots[:, 0], "o-", color=BLUE, label="soft sets")
        axis.loglog(SIZES, roots[:, 1], "o-", color=ORANGE, label="hard decisions")
        axis.loglog(SIZES, roots[0, 1] * np.sqrt(SIZES[0] / np.array(SIZES)), ":", color=GREY, label="1 / root of n")
        axis.set(title=name, xlabel="number of samples n")
    axes[0].set_ylabel("distance from the limit\n(root mean square)")
    axes[0].legend(fontsize=8)
    save(figure, "consistency")


if __name__ == "__main__":
    main()
