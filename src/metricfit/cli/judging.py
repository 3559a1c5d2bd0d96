"""``metricfit evaluate`` and ``metricfit predict``: a saved model on other rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from metricfit.cli import options, pages
from metricfit.cli.errors import UserError
from metricfit.cli.printing import say, show, working
from metricfit.cli.tables import read_table, split_target
from metricfit.estimators import MetricClassifier
from metricfit.estimators.columns import Number
from metricfit.metrics import averaged, get_metric


def evaluate(
    model: options.ModelFolder,
    data: options.Data,
    target: Annotated[str, typer.Option("--target", help="The column with the labels.")],
    threshold: Annotated[
        float | None, typer.Option("--threshold", min=0, max=1, help="A probability, in place of the model's own.")
    ] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a report here.")] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """A model's metrics on labelled rows."""
    loaded = _model(model)
    features, y = split_target(read_table(data), target, str(data))
    X = _known_columns(loaded, features, data)
    with working("Judging ...", quiet):
        found = _metrics(loaded, X, y, threshold)
        if report is not None:
            found["report"] = str(pages.of_evaluation(loaded, X, y, data.name, threshold, report))
    show(found, as_json, [f"{name}: {_short(value)}" for name, value in found.items()])


def predict(
    model: options.ModelFolder,
    data: options.Data,
    to: Annotated[Path, typer.Option("--out", help="A CSV file for the predictions.")],
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Labels and probabilities for new rows."""
    if to.is_dir():
        raise UserError(f"{to} is a folder; give a file to --out.")
    if not to.parent.is_dir():
        raise UserError(f"There is no folder {to.parent}; make it first.")
    loaded = _model(model)
    X = _known_columns(loaded, read_table(data), data)
    with working("Predicting ...", quiet):
        probabilities = loaded.predict_proba(X)
        frame = pd.DataFrame({"predicted": loaded.predict(X)})
    for label, column in zip(loaded.classes_, probabilities.T, strict=True):
        frame[f"probability of {label}"] = column
    unfinished = to.with_name(f".{to.name}.unfinished")
    frame.to_csv(unfinished, index=False)
    unfinished.replace(to)
    show({"rows": len(frame), "file": str(to)}, as_json, [f"{len(frame)} rows: {to}"])


def _model(path: Path) -> MetricClassifier:
    if not path.exists():
        raise UserError(f"There is no model {path}.")
    return MetricClassifier.load(path)


def _known_columns(model: MetricClassifier, frame: pd.DataFrame, data: Path) -> pd.DataFrame:
    """The columns the model was trained on; others are left aside."""
    wanted = list(getattr(model, "feature_names_in_", frame.columns))
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise UserError(f"{data} lacks {len(missing)} of the columns the model was trained on: {shown}.")
    return _with_numbers(model, frame[wanted], data)


def _with_numbers(model: MetricClassifier, frame: pd.DataFrame, data: Path) -> pd.DataFrame:
    """The table with text read as numbers where the model learnt from numbers; what does not read is missing, and told.

    A column of which nothing reads is another column than the model's.
    """
    kinds = model.encoder_.columns or [Number()] * frame.shape[1]
    texts = [
        name
        for name, kind in zip(frame.columns, kinds, strict=True)
        if isinstance(kind, Number) and not pd.api.types.is_numeric_dtype(frame[name])
    ]
    read = {}
    for name in texts:
        read[name] = pd.Series(Number().transform(frame[name])[:, 0], index=frame.index)
        strange = frame[name][read[name].isna() & frame[name].notna()]
        if len(strange) and read[name].isna().all():
            raise UserError(
                f"The column {name!r} of {data} holds text such as {strange.iloc[0]!r}; the model learnt from numbers "
                "there. Mend the column, or train a model on such tables."
            )
        if len(strange):
            say(f"Warning: {name!r} holds {len(strange)} entries that are no numbers, taken as missing.")
    return frame.assign(**read)


def _metrics(model: MetricClassifier, X: pd.DataFrame, y: pd.Series, threshold: float | None) -> dict[str, Any]:
    """The counts and every metric at the threshold; of several classes the model's own metric."""
    unknown = sorted(set(y.unique()) - set(model.classes_), key=str)
    if unknown:
        shown, known = (", ".join(map(str, several[:5])) for several in (unknown, list(model.classes_)))
        raise UserError(f"Labels that the model does not know: {shown}. It was trained on {known}.")
    judged, counts = get_metric(model.metric), pages.counts_of(model, X, y, threshold)
    found: dict[str, Any] = {"rows": len(y)}
    if len(model.classes_) == 2:
        at = model.threshold_ if threshold is None else threshold
        found |= {"threshold": at} | {
            key: int(value) for key, value in zip(("tp", "fp", "fn", "tn"), counts, strict=True)
        }
        shown_first = dict.fromkeys([judged, *map(get_metric, pages.plain_metrics())])
        return found | {each.name: float(each(counts)) for each in shown_first}
    if threshold is not None:
        raise UserError("--threshold is for two classes; of several, the largest score decides.")
    return found | {pages.called(model): float(averaged(judged, counts, model.average))}


def _short(value: Any) -> str:
    """As people read it; --json has all digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
