"""How long the networks of a comparison train: decided once, the same for all of them, and stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.tabular.compare.methods import Method, network_of


def shared_effort(
    methods: Sequence[Method],
    X: pd.DataFrame,
    y: NDArray[Any],
    metric: str,
    subject_to: Sequence[str],
    *,
    groups: Any = None,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """Choose the network, epochs and members that every method can afford on these rows.

    A step of each method is timed, and all of them get what the slowest can afford. All use the same network: if one
    method cannot train a blend, none does. The result goes into the settings of all folds, so that results depend
    neither on the load of the machine nor on where a run was interrupted.
    """
    networks = [method for method in methods if method.trees is None]

    def plans(**more: Any) -> list[dict[str, Any]]:
        classifiers = [network_of(method, metric, subject_to, seed=seed, **settings | more) for method in networks]
        return [classifier.plan(X, y, groups=groups) for classifier in classifiers]

    efforts = plans()
    names = {effort["network"] for effort in efforts}
    if len(names) > 1:
        names = names - {"blend"}
        efforts = plans(network=next(iter(names)))
    return {
        "network": next(iter(names)),
        "epochs": min(effort["epochs"] for effort in efforts),
        "members": min(effort["members"] for effort in efforts),
    }


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Set the number of PyTorch's threads to what the cells will have; None leaves it as it is."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if number is None else number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
