"""``metricfit fit``."""

from __future__ import annotations

import shlex
import sys
import warnings
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypedDict

import typer
from rich.markup import escape
from rich.table import Table

from metricfit._files import holds_files, new_folder
from metricfit.cli.command_rows import (
    check_aim,
    check_binary_options,
    choose_positive_label,
    describe_classes,
    read_fitted_rows,
    title_data,
)
from metricfit.cli.options import Fit
from metricfit.cli.output_paths import check_folder, next_free
from metricfit.cli.progress_display import fit_display, list_names
from metricfit.cli.terminal import (
    INTERRUPTED,
    NOT_MET,
    UserError,
    command_line,
    print_message,
    print_result,
    table_of_periods,
)
from metricfit.data.columns import quote_label
from metricfit.data.reading import ParquetTable
from metricfit.decide.refer import check_referral
from metricfit.errors import ExportError, quote
from metricfit.metrics import get_metric
from metricfit.metrics.curves import as_requirements
from metricfit.metrics.feasibility import InfeasibleWarning
from metricfit.report import formatting
from metricfit.report.evaluation import DecidedRows
from metricfit.report.evaluation_result import DecidedToday
from metricfit.report.model_page import write_model_page
from metricfit.report.todays_rule import read_today
from metricfit.runs.executor import CLUSTERS, start_backend
from metricfit.tabular import MetricClassifier
from metricfit.tabular.checks import QUALITIES
from metricfit.tabular.compare.methods import FOR_REQUIREMENTS, find_method
from metricfit.tabular.doctor.finding import Finding
from metricfit.tabular.encoding.columns import TEXT_COMPONENTS, free_text_columns
from metricfit.tabular.ensemble import ModelRow
from metricfit.tabular.facts import Ends, ModelFacts, RequirementFact, model_facts
from metricfit.tabular.families.choice import NAMES
from metricfit.tabular.insight.value_intervals import Period, describe_fall, values_by_period
from metricfit.tabular.large_rows import random_rows
from metricfit.tabular.out_of_fold import watch_fit
from metricfit.tabular.row_folds import FORWARD

GRAPH = "model.onnx"
#: Training rows that the labels of the graph are compared on; of more, a random sample.
CHECKED_ROWS = 50_000
#: The ``--backend`` of threads in this process.
THREADS = "threads"


class Result(TypedDict):
    """What ``fit --json`` prints.

    Attributes:
        metric: Name of the metric.
        value: The metric, estimated for new rows on held-out rows.
        value_interval: 95 % interval of the value.
        out_of_fold: The metric on held-out rows; it equals `value`.
        threshold: The probability of the positive class from which rows are flagged; null for several classes.
        threshold_interval: 95 % interval of the threshold.
        refer_region: The probabilities between which rows are referred to a person. Of several classes, the ratios
            between which the best class is to the second best.
        referred_share: The share of the held-out rows that are referred.
        models: The families of models.
        model: The folder of the model.
        report: The file of the report.
        positive: The positive class of two; null for several classes.
        classes: Number of rows of each class, by its label.
        requirements_met: Whether all requirements are met; true if there are none.
        confidence: The probability for which the requirements are certified; null for none.
        certificate: What the confidence says about new rows: "guaranteed", or "certified on cross-validated scores
            (approximate)"; null without a confidence.
        requirements: What is known about each requirement, by its text.
        periods: With `--time`, the metric on the held-out rows by period, the earliest first; otherwise empty.
        fall: A sentence if the last period is clearly worse than all held-out rows.
        interrupted: Families that Ctrl-C left out.
        findings: What looks wrong, the most serious first; [the page of doctor](doctor.md) lists the kinds.
        today: How the rule of `--today` decides the held-out rows; null without it.
        onnx: What was exported, as `export --json` has it; null without `--onnx`.
    """

    metric: str
    value: float
    value_interval: Ends | None
    out_of_fold: float
    threshold: float | None
    threshold_interval: Ends | None
    refer_region: Ends | None
    referred_share: float | None
    models: list[ModelRow]
    model: str
    report: str
    positive: Any
    classes: dict[str, int]
    requirements_met: bool
    confidence: float | None
    certificate: str | None
    requirements: dict[str, RequirementFact]
    periods: list[Period]
    fall: str | None
    interrupted: list[str]
    findings: tuple[Finding, ...]
    today: DecidedToday | None
    onnx: dict[str, Any] | None


#: The fields of the result that are facts of the model, by the same names.
OF_FACTS = (
    *("metric", "value", "value_interval", "threshold", "threshold_interval", "refer_region", "referred_share"),
    *("positive", "requirements_met", "confidence", "certificate"),
)


def run(options: Fit) -> None:
    """Train a classifier, and write the model and its report; ``options.Fit`` lists the options."""
    check_folder(options.out)
    out = options.out
    check_aim(options)
    if options.backend not in (THREADS, *CLUSTERS):
        raise UserError(f"--backend is {THREADS}, {' or '.join(CLUSTERS)}; got {quote(options.backend)}.")
    if options.quality not in QUALITIES:
        raise UserError(f"--quality is one of {', '.join(QUALITIES)}; got {quote(options.quality)}.")
    families = _families_named(options.models)
    if options.method is not None and families != "auto":
        raise UserError("--method and --models both choose the models; give one of them.")
    if options.method in FOR_REQUIREMENTS and not options.subject_to:
        raise UserError(f"--method {quote(options.method)} needs a requirement, such as --subject-to 'recall >= 0.9'.")
    if options.onnx:
        check_can_export()
    if holds_files(out) and not (options.overwrite and (out / "model").is_dir()):
        remedy = "it holds no model to replace" if options.overwrite else "--overwrite replaces the model of fit in it"
        raise UserError(f"{out} is not empty; give a new folder ({remedy}).")
    # With a confidence, too few rows are refused before training, and need no warning.
    rows = read_fitted_rows(options, options.subject_to if options.confidence is None else ())
    X, y, groups = rows.X, rows.y, rows.groups
    check_binary_options(y, options.positive)
    referral = as_requirements(options.refer_subject_to)
    if options.refer is not None or referral:
        check_referral(get_metric(options.metric), y.nunique(), options.refer, referral)
        if options.confidence is not None:
            raise UserError(
                "--confidence is for decisions about all rows: leave --refer out, or refer in Python: "
                "model.refer(subject_to=..., confidence=...)"
            )
    make_classifier = (
        partial(MetricClassifier, models=families, quality=options.quality)
        if options.method is None
        else find_method(options.method).classifier
    )
    model: MetricClassifier = make_classifier(
        metric=options.metric,
        subject_to=list(options.subject_to) or None,
        confidence=options.confidence,
        average=options.average,
        calibration=options.calibration,
        members=options.folds,
        cv=None if options.time is None else FORWARD,
        time_budget=options.time_budget,
        n_jobs=options.jobs,
        pos_label=choose_positive_label(y, options.positive),
        random_state=options.seed,
    )
    if rows.today is not None:  # what cannot be read is refused before training
        labels = sorted(y.unique().tolist(), key=lambda label: (label == model.pos_label, str(label)))
        read_today(rows.today, str(options.today), labels)
    with fit_display(options.quiet or options.as_json) as display, watch_fit(display), warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleWarning)  # reported below, together with the model's folder
        display.check = _check_before_training if options.onnx else None
        with nullcontext() if options.backend == THREADS else start_backend(options.backend, options.jobs):
            model.fit(X, rows.ordered_labels.array if rows.order else y.to_numpy(), rows.weight, groups)
        if options.refer is not None or referral:
            model.refer(max_share=options.refer, subject_to=referral)
        order = model.chosen_.names.in_order.tolist()
        today = None if rows.today is None else read_today(rows.today, str(options.today), order)
        with new_folder(out, overwrite=options.overwrite) as unfinished:
            model.save(unfinished / "model", data=title_data(options.data), target=options.target)
            write_model_page(
                model,
                unfinished / "report.html",
                data=title_data(options.data),
                target=options.target,
                command=command_line(),
                rows=(X, y.to_numpy()) if options.insight else None,
                group=options.group,
                times=rows.times,
                today=today,
            )
            exported = export_fitted(model, X, unfinished, out) if options.onnx else None
    periods, facts, counts = values_by_period(model, rows.times), model_facts(model), y.value_counts()
    fall = describe_fall(periods, facts.held_out_value, get_metric(model.metric))
    held_out = DecidedRows.of_training(model)
    judged = 0.0 if today is None else held_out.judge(model.chosen_.basis.take(today.decided))[1]
    result = {name: getattr(facts, name) for name in OF_FACTS} | {
        "today": None if today is None else DecidedToday(name=today.name, value=judged),
        "out_of_fold": facts.held_out_value,
        "models": facts.families,
        "model": str(out / "model"),
        "report": str(out / "report.html"),
        "classes": {str(label): int(rows) for label, rows in counts.items()},
        "requirements": {each.text: each for each in facts.requirements},
        "periods": periods,
        "fall": fall,
        "interrupted": display.interrupted,
        "findings": rows.findings,
        "onnx": None if exported is None else exported.to_dict(),
    }
    lines = [describe_classes(counts, facts.positive), *_text_lines(X, facts), *_lines(model, facts)]
    if today is not None:
        lines.append(f"{today.name}: {facts.label} {judged:.3f} on the held-out rows.")
    if periods:
        lines += [table_of_periods(periods, facts.label), *([] if fall is None else [f"Warning: {fall}"])]
    lines += [f"Model: {result['model']}", f"Report: {result['report']}"]
    print_result(result, options.as_json, lines if exported is None else [*lines, *str(exported).splitlines()])
    if not facts.requirements_met:
        print_message(
            f"The requirements are not met: {facts.not_reachable}. The model is kept and decides as near to them as it "
            "can. To choose again without training, in Python: "
            f"MetricClassifier.load({result['model']!r}).rethreshold(subject_to='...')."
        )
    if display.interrupted:
        print_message(
            f"Interrupted: the model does without {list_names(display.interrupted)}. To train these too, give a new "
            f"folder: {_command_with(out, next_free(out))}"
        )
        raise typer.Exit(INTERRUPTED)
    if not facts.requirements_met or (options.onnx and exported is None):
        raise typer.Exit(NOT_MET)


def _command_with(out: Path, other: Path) -> str:
    """Return the running command with another ``--out``."""
    spelled = {str(out): str(other), f"--out={out}": f"--out={other}"}
    return shlex.join(["metricfit", *(spelled.get(word, word) for word in sys.argv[1:])])


def _families_named(models: str) -> str | list[str]:
    """Return the names of families in an option, or "auto"."""
    if models.strip() == "auto":
        return "auto"
    names = [name.strip() for name in models.split(",")]
    for name in names:
        if name not in NAMES:
            raise UserError(f"There is no family of models {quote(name)} for --models; it knows {', '.join(NAMES)}.")
    return list(dict.fromkeys(names))


def _text_lines(X: Any, facts: ModelFacts) -> list[str]:
    """Say which columns are read as free text, and how."""
    names = [quote_label(X.columns[at]) for at in free_text_columns(X)]
    if not names:
        return []
    weighed = any(row.name == "text" and row.left_out is None for row in facts.families)
    reading = f"{TEXT_COMPONENTS} components of {'its' if len(names) == 1 else 'their'} letters"
    how = f"the model 'text' reads TF-IDF of words and letters, the others {reading}" if weighed else reading
    return [f"Free text in {list_names(names)}: {how}."]


def _lines(model: MetricClassifier, facts: ModelFacts) -> list[str | Table]:
    """Write what there is to say about the model as text: families, value, decision and requirements."""
    table = Table("model", f"{facts.label} out of fold", "weight", "seconds")
    for row in facts.families:
        if row.left_out is None:
            weight = f"{row.weight:.2f}" if row.weight > 0 else "not used"
            table.add_row(escape(row.name), f"{row.value:.3f}", weight, f"{row.seconds:.1f}")
    lines: list[str | Table] = [table]
    lines += [f"{row.name} was {row.sample}." for row in facts.families if row.sample is not None]
    lines += [f"{row.name} is left out: {row.left_out}." for row in facts.families if row.left_out is not None]
    metric = get_metric(model.metric)
    if metric.needs_matrix:
        order = ", ".join(quote_label(each.name) for each in facts.classes)
        lines.append(f"Order of the classes in {metric.base_name}: {order}.")
    interval = _interval(facts.value_interval)
    lines.append(f"{facts.label} {facts.value:.3f}{interval}, estimated for new rows: {facts.basis}.")
    better = DecidedRows.of_training(model).better_without_model(facts.held_out_value)
    lines += [] if better is None else [f"Warning: {better}"]
    if facts.threshold is not None:
        lines.append(f"Threshold {formatting.threshold(facts.threshold)}{_interval(facts.threshold_interval)}.")
    elif metric.columns:
        lines.append("Every row has a threshold of its own, by its costs.")
    lines += [] if facts.referral is None else [facts.referral]
    return [*lines, *(f"Requirement {each.text}: {each.description}." for each in facts.requirements)]


def _interval(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f" (95 % interval {ends[0]:.3f} to {ends[1]:.3f})"


def _check_before_training(model: MetricClassifier) -> None:
    """Refuse ``--onnx`` for a table or a metric that cannot be exported, before anything is trained."""
    try:
        import_module("metricfit.export.onnx").check_table(model)
    except ExportError as error:
        raise UserError(f"Nothing was trained, because the model could not be exported (--onnx): {error}.") from None


def check_can_export() -> None:
    """Report a missing package before anything is trained."""
    import_module("metricfit.export.onnx")


def export_fitted(model: MetricClassifier, X: Any, folder: Path, out: Path) -> Any:
    """Export a model that was just fitted, and compare it with its graph on the training rows.

    Args:
        model: The fitted model.
        X: The table that it was fitted on.
        folder: The folder to write to.
        out: What this folder will be called.

    Returns:
        What was exported; None if that is not possible, which is printed.
    """
    rows = len(X)
    drawn = random_rows(rows, CHECKED_ROWS)
    table = X.take(drawn) if isinstance(X, ParquetTable) else X.iloc[drawn]
    rows_from = "training rows" if len(drawn) == rows else f"of {rows:,} training rows, drawn at random"
    try:
        result = import_module("metricfit.export.onnx").export_onnx(model, folder / GRAPH, table, rows_from=rows_from)
    except ExportError as error:
        print_message(f"The model is kept, and not exported: {error}.")
        return None
    return replace(result, path=out / GRAPH, different_rows=tuple(drawn[list(result.different_rows)].tolist()))
