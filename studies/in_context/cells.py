"""Cells of the study, and learners that read labelled rows as context, without what a GPU machine may lack.

    python -m studies.in_context.cells --cells runs/in_context

adds the network's logits to every cell in a folder, on the GPU if there is one.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricfit.tabular.families.context_network import WEIGHTS, choose_columns, draw_places, read_network

Arrays = dict[str, NDArray[Any]]
#: Reads columns and labels of the context, and gives a logit for each new row.
Learner = Callable[[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]


def fit_learner(cell: Arrays, learner: Learner, name: str) -> Arrays:
    """Give a learner the training rows of a cell as context, in folds and all together.

    Args:
        cell: ``x``, ``y`` and ``fold`` of the training rows, and ``x_test``.
        learner: The learner.
        name: Its name.

    Returns:
        ``name|held_out``: the logit of each training row, from a context without its fold. ``name|test``: the logits of
        the test rows, from all training rows.
    """
    x, y, fold = cell["x"], cell["y"], cell["fold"]
    held_out = np.zeros(len(y))
    for number in range(int(fold.max()) + 1):
        inside = fold == number
        held_out[inside] = learner(x[~inside], y[~inside], x[inside])
    return {f"{name}|held_out": held_out, f"{name}|test": learner(x, y, cell["x_test"])}


def read_cell(folder: Path, name: str, learners: Sequence[str] = ()) -> Arrays | None:
    """Read a cell with the logits of these learners; None if one of them is missing."""
    paths = [folder / f"{name}.npz", *(folder / f"{name}.{learner}.npz" for learner in learners)]
    if not all(path.exists() for path in paths):
        return None
    return {key: value for path in paths for key, value in np.load(path).items()}


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Write an npz file so that a killed run leaves no half of it."""
    temporary = path.with_name(f".{path.name}")
    with temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)
    temporary.replace(path)


def torch_learner(weights: Path, metric: str | None, members: int, unlabelled: int) -> Learner:
    """Return the network on the GPU in bfloat16, or on the CPU; members differ in the random vectors of columns."""
    import torch

    device, low = ("cuda", torch.bfloat16) if torch.cuda.is_available() else ("cpu", torch.float32)
    torch.backends.cuda.enable_cudnn_sdp(False)
    module = importlib.import_module("studies.in_context.network")
    source = read_network(weights)
    network = module.Network(module.Settings(**source.settings)).to(device)
    network.load_state_dict({name: torch.from_numpy(value) for name, value in source.weights.items()})
    number = module.METRICS.index(metric or module.METRICS[0])

    @torch.no_grad()
    def logits(x: NDArray[np.float64], y: NDArray[np.int64], new: NDArray[np.float64]) -> NDArray[np.float64]:
        kept = choose_columns(x, y)
        table = torch.from_numpy(np.concatenate([x[:, kept], new[:, kept]])).float().to(device)
        place = draw_places(len(kept), source.settings["places"], range(members))
        output = network(
            table.expand(members, -1, -1),
            torch.from_numpy(y).long().to(device).expand(members, -1),
            torch.from_numpy(place).to(device),
            torch.full((members,), number, device=device),
            len(y) + min(unlabelled, len(new)),
            low,
        )
        return np.asarray(output.binary.mean(0).double().cpu().numpy())

    return logits


def main(arguments: Sequence[str] | None = None) -> None:
    """Add the network's logits to the cells of a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=Path, default=Path("runs/in_context"), help="the folder of the cells")
    parser.add_argument("--out", type=Path, help="where logits are written; default: the folder of the cells")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="the weights; default: the shipped ones")
    parser.add_argument("--name", default="network", help="the name under which logits are kept")
    parser.add_argument("--metric", help="what the network decides for")
    parser.add_argument("--members", type=int, default=1, help="how many random vectors of columns are averaged")
    parser.add_argument("--unlabelled", type=int, default=0, help="how many of the new rows the network may look at")
    parser.add_argument("--splits", nargs="*", type=int, help="the splits; default: all")
    options = parser.parse_args(arguments)
    learner = torch_learner(options.weights, options.metric, options.members, options.unlabelled)
    out = options.out or options.cells
    out.mkdir(parents=True, exist_ok=True)
    for path in sorted(options.cells.glob("*-*.npz")):
        name = path.name.removesuffix(".npz")
        target = out / f"{name}.{options.name}.npz"
        if "." in name or target.exists() or (options.splits and int(name.rsplit("-", 1)[1]) not in options.splits):
            continue
        start = time.perf_counter()
        write_arrays(target, fit_learner(dict(np.load(path)), learner, options.name))
        print(f"{options.name} {name}: {time.perf_counter() - start:.1f} s", flush=True)


if __name__ == "__main__":
    main()
