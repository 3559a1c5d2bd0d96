"""How long the networks of a comparison train: decided once, the same for all of them, and kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pandas as pd
import torch
from numpy.typing import NDArray

from metricfit.tabular.compare.methods import Method, network_of


def shared_effort(
    several: Sequence[Method],
    X: pd.DataFrame,
    y: NDArray[Any],
    metric: str,
    subject_to: Sequence[str],
    *,
    groups: Any = None,
    seed: int = 0,
    **settings: Any,
) -> dict[str, Any]:
    """The network, epochs and members that every network of these methods can afford on these rows.

    A step of each is timed; the least that any of them can afford is what all of them get. One network for all: where
    a blend cannot be trained by one method, none has it. What is found goes into the settings of all folds, so that
    results depend neither on the load of the machine nor on where a run was interrupted.
    """
    networks = [method for method in several if method.trees is None]

    def plans(**more: Any) -> list[dict[str, Any]]:
        given = settings | more
        return [network_of(each, metric, subject_to, seed=seed, **given).plan(X, y, groups=groups) for each in networks]

    found = plans()
    names = {each["network"] for each in found}
    if len(names) > 1:
        names = names - {"blend"}
        found = plans(network=next(iter(names)))
    return {
        "network": next(iter(names)),
        "epochs": min(each["epochs"] for each in found),
        "members": min(each["members"] for each in found),
    }


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """PyTorch with so many threads, as the cells will have; None leaves them."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if number is None else number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
