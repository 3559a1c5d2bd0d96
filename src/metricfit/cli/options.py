"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Argument(help="The table: CSV (also .csv.gz), TSV, Parquet, Arrow or JSON lines.")]
ModelFolder = Annotated[Path, typer.Argument(help="The folder of a saved model, or the --out folder of fit.")]
Target = Annotated[str, typer.Option("--target", help="Name of the column to predict.")]
MetricName = Annotated[
    str, typer.Option("--metric", help="The metric to optimise, such as f1 or 'fbeta(beta=2)'; see metricfit metrics.")
]
Requirements = Annotated[
    list[str] | None,
    typer.Option("--subject-to", help="A requirement on the decisions, such as 'recall >= 0.9'; may be repeated."),
]
Positive = Annotated[
    str | None,
    typer.Option(
        "--positive",
        help="The positive label. By default 1 of 0/1 and of -1/1, True of booleans, otherwise the rarer label.",
    ),
]
Group = Annotated[
    str | None,
    typer.Option("--group", help="Name of a column; rows with the same value are never split between folds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Seed = Annotated[
    int, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of the folds, the initial weights and the batches.")
]
Network = Annotated[str, typer.Option("--network", help="The network: auto, blend, embedded, mlp or tabm.")]
Members = Annotated[
    int,
    typer.Option("--members", min=2, help="Number of networks in an ensemble; each one holds out one fold."),
]
Budget = Annotated[float, typer.Option("--time-budget", min=0.001, help="Seconds of training for each model.")]
Epochs = Annotated[
    int | None,
    typer.Option(
        "--epochs",
        min=1,
        help="Maximum number of epochs, instead of a time budget; results then do not depend on the machine's speed.",
    ),
]
