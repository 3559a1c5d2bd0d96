"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Argument(help="CSV (also .gz), Parquet, Arrow or JSON lines.")]
ModelFolder = Annotated[Path, typer.Argument(help="The folder of a model, or what fit was given as --out.")]
Target = Annotated[str, typer.Option("--target", help="The column to predict.")]
MetricName = Annotated[str, typer.Option("--metric", help="What you are judged by, such as f1 or 'fbeta(beta=2)'.")]
Requirements = Annotated[list[str] | None, typer.Option("--subject-to", help="'recall >= 0.9'; may be repeated.")]
Positive = Annotated[
    str | None,
    typer.Option(
        "--positive",
        help="The positive label; by default 1 of 0/1 and of -1/1, True of booleans, otherwise the rarer label.",
    ),
]
Group = Annotated[str | None, typer.Option("--group", help="Rows with one value of this column stay together.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on standard output.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**31 - 1, help="Of folds, first weights and batches.")]
Network = Annotated[str, typer.Option("--network", help="auto, blend, embedded, mlp or tabm.")]
Members = Annotated[int, typer.Option("--members", min=2, help="Folds, each held out by one member.")]
Budget = Annotated[float, typer.Option("--time-budget", min=0.001, help="Seconds of training, of each model.")]
Epochs = Annotated[
    int | None,
    typer.Option("--epochs", min=1, help="At most so many, in place of a time budget: nothing depends on timing then."),
]
