"""The schemas of what commands print with ``--json``: written once, for the documentation and for the tests.

They are JSON Schemas (draft 2020-12). Fields may be added within a version; a field that is renamed, removed or changes
its meaning makes a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The version of all schemas, the first field of every output.
SCHEMA_VERSION = 1

Schema = dict[str, Any]


def schema_of(command: str) -> Schema:
    """Return the JSON Schema of a command's output.

    Args:
        command: Name of the command.

    Returns:
        The schema, an object with all fields and their descriptions.

    Example:
        >>> schema_of("predict")["properties"]["rows"]["type"]
        'integer'
    """
    version = {"const": SCHEMA_VERSION, "description": "The version of this schema."}
    schema = _object("", schema_version=version, **FIELDS[command])
    schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", f"metricfit {command} --json"
    return schema


def _object(description: str, /, **fields: Schema) -> Schema:
    """Describe an object with these fields; all of them are present."""
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def _by_name(description: str, entry: Schema) -> Schema:
    """Describe an object whose names are those of classes, metrics or requirements."""
    return {"type": "object", "description": description, "additionalProperties": entry}


def _list(description: str, entry: Schema) -> Schema:
    return {"type": "array", "description": description, "items": entry}


def _of(kind: str, description: str, **more: Any) -> Schema:
    return {"type": kind, "description": description} | more


def _or_null(schema: Schema) -> Schema:
    """Describe a field that is null where it does not apply."""
    return schema | {"type": [schema["type"], "null"]}


def _text(description: str, **more: Any) -> Schema:
    return _of("string", description, **more)


def _whole(description: str) -> Schema:
    return _of("integer", description, minimum=0)


def _number(description: str) -> Schema:
    return _of("number", description)


def _flag(description: str) -> Schema:
    return _of("boolean", description)


def _interval(description: str) -> Schema:
    return {
        "type": ["array", "null"],
        "description": description,
        "items": {"type": "number"},
        "minItems": 2,
        "maxItems": 2,
    }


def _label(description: str) -> Schema:
    """Describe a label of a class, which has the type that it has in the table."""
    return {"type": ["string", "number", "boolean", "null"], "description": description}


_MEASURED = _object(
    "A value and its 95 % interval.",
    value=_or_null(_number("The value; null if the rows do not say.")),
    interval=_interval("Its 95 % interval; null if it is not known."),
)
_CLASSES = _by_name("Number of rows of each class, by its label.", _whole("Number of rows."))
_POSITIVE = _label("The positive class of two; null for several classes.")
_THRESHOLD = _or_null(
    _number("The probability of the positive class from which rows are called positive; null for several classes.")
)
_LATENCY = _object(
    "Milliseconds of one call of the graph.",
    one_row=_number("For one row."),
    thousand_rows=_number("For 1,000 rows."),
)

FIELDS: Mapping[str, Mapping[str, Schema]] = {
    "fit": {
        "metric": _text("Name of the metric."),
        "value": _number("The metric, estimated for new rows: out of fold, corrected for having been chosen there."),
        "value_interval": _interval("95 % interval of the value."),
        "out_of_fold": _number("The metric on held-out rows, before the correction."),
        "threshold": _THRESHOLD,
        "threshold_interval": _interval("95 % interval of the threshold."),
        "refer_region": _interval("The probabilities between which rows are referred to a person."),
        "referred_share": _or_null(_number("The share of the held-out rows that are referred.")),
        "models": _list(
            "The families of models.",
            _object(
                "",
                name=_text("Name of the family."),
                weight=_number("Its weight in the ensemble; 0 if it is not used."),
                value=_or_null(_number("Its metric out of fold; null if it was not fitted.")),
                log_loss=_or_null(_number("Its cross-entropy out of fold.")),
                seconds=_or_null(_number("The time that fitting took.")),
                left_out=_or_null(_text("Why it was not fitted; null if it was.")),
                fitted_rows=_or_null(
                    _whole("The rows that it was fitted on, if these are a sample of a large table; null for all rows.")
                ),
                table_rows=_or_null(_whole("The rows of that table.")),
            ),
        ),
        "model": _text("The folder of the model."),
        "report": _text("The file of the report."),
        "positive": _POSITIVE,
        "classes": _CLASSES,
        "requirements_met": _flag("Whether all requirements are met; true if there are none."),
        "confidence": _or_null(_number("The probability with which the requirements hold on new rows; null for none.")),
        "requirements": _by_name(
            "What is known about each requirement, by its text.",
            _object(
                "",
                value=_number("The value on held-out rows."),
                met=_flag("Whether it is met."),
                reachable=_number("The best value that a threshold reaches."),
            ),
        ),
        "interrupted": _list("Families that Ctrl-C left out.", _text("")),
    },
    "compare": {
        "metric": _text("Name of the metric."),
        "verdict": _text("The recommendation in words."),
        "recommended": _or_null(_text("Name of the recommended method.")),
        "recommendation": _or_null(
            _object(
                "The recommendation, for scripts.",
                method=_text("Name of the recommended method, as `fit --method` takes it."),
                mean=_number("Its mean over the folds."),
                interval=_interval("95 % interval of the mean."),
                sure=_flag("Whether the folds prove that no other method is better, or only negligibly."),
                not_better_than=_or_null(_text("Decisions without a model that it does not clearly beat.")),
                requirements_reachable=_flag("Whether some method met the requirements on every fold's training rows."),
            )
        ),
        "methods": _list(
            "The methods, the best mean first.",
            _object(
                "",
                name=_text("Name of the method."),
                mean=_number("Mean of the metric over the folds."),
                interval=_interval("95 % interval of the mean."),
                values=_list("The metric on each fold.", _number("")),
                seconds=_or_null(_number("Training time of all folds.")),
                versus_reference=_or_null(
                    _object(
                        "The comparison with boosted trees; null for these.",
                        difference=_number("This mean minus that of the reference."),
                        interval=_interval("Simultaneous 95 % interval of the difference."),
                        p_value=_or_null(_number("p-value with Holm's correction.")),
                    )
                ),
                held=_or_null(_whole("Folds on which the requirements held; null if there are none.")),
                not_reachable=_list("What was reachable on the folds where they could not be met.", _text("")),
            ),
        ),
        "notes": _list("What was left out, and why.", _text("")),
        "command": _text("The command that fits the recommended method on all rows."),
        "positive": _POSITIVE,
        "classes": _CLASSES,
        "folder": _text("The folder of the trainings and the report."),
        "report": _text("The file of the report."),
    },
    "evaluate": {
        "rows": _whole("Number of rows."),
        "metric": _text("Name of the model's metric, with its average if there are several classes."),
        "value": _number("The metric on these rows."),
        "value_interval": _interval("95 % interval of the value."),
        "training": _object(
            "The same metric at training time.",
            value=_number("The value that training estimated for new rows."),
            interval=_interval("Its 95 % interval."),
            difference=_or_null(_number("The value on these rows minus that of training; null if not comparable.")),
            verdict=_text("The comparison.", enum=["as expected", "better", "worse", "not comparable"]),
            sentence=_text("The comparison in words."),
        ),
        "threshold": _THRESHOLD,
        "positive": _POSITIVE,
        "negative": _label("The other class of two."),
        "tp": _or_null(_whole("True positives; null for several classes.")),
        "fp": _or_null(_whole("False positives.")),
        "fn": _or_null(_whole("False negatives.")),
        "tn": _or_null(_whole("True negatives.")),
        "referred": _or_null(_whole("Rows that are referred to a person; null if the model refers none.")),
        "requirements": _by_name(
            "Whether each requirement held on these rows, by its text.",
            _object(
                "",
                value=_number("The value on these rows."),
                interval=_interval("Its 95 % interval."),
                held=_flag("Whether it held."),
            ),
        ),
        "metrics": _by_name("Every metric with its interval, the model's first.", _MEASURED),
        "classes": _or_null(
            _by_name(
                "The classes by their labels; null for two classes.",
                _object(
                    "",
                    rows=_whole("Rows of the class."),
                    predicted=_whole("Rows that are called the class."),
                    metrics=_by_name("Metrics of the class against the others.", _MEASURED),
                ),
            )
        ),
        "confusion": _or_null(
            _by_name("For each true class, the number of its rows called each class.", _by_name("", _whole("")))
        ),
        "report": _or_null(_text("The file of the report; null without `--report`.")),
    },
    "predict": {
        "rows": _whole("Number of rows."),
        "file": _text("The file of the predictions."),
        "predicted": _by_name("Number of rows that are called each class.", _whole("")),
        "threshold": _THRESHOLD,
        "referred": _or_null(_whole("Rows that are referred to a person; null if the model refers none.")),
    },
    "doctor": {
        "table": _text("The table to train on."),
        "further": _list("The tables that were compared with it.", _text("")),
        "rows": _whole("Number of rows."),
        "columns": _whole("Number of columns to learn from."),
        "classes": _CLASSES,
        "positive": _POSITIVE,
        "findings": _list(
            "What looks wrong, the most serious first.",
            _object(
                "",
                kind=_text("What it is about, such as leak; [the page of doctor](doctor.md) lists the kinds."),
                severity=_text("How serious it is.", enum=["serious", "warning", "note"]),
                message=_text("What was found."),
                remedy=_text("What to do about it."),
                columns=_list("The columns it is about.", _text("")),
                table=_or_null(_text("The further table it is about; null for the one to train on.")),
            ),
        ),
    },
    "export": {
        "path": _text("The file of the graph."),
        "bytes": _whole("Its size."),
        "inputs": _by_name("What each input of the graph holds, by its name.", _text("")),
        "outputs": _list("The names of the outputs: the label, and the probabilities of all classes.", _text("")),
        "classes": _list("The labels, in the order of the probabilities.", _label("")),
        "checked_rows": _whole("Rows on which the graph was compared with the model."),
        "unknown_text_rows": _whole("Rows that were not compared, because they have a text that training had not."),
        "made_up": _flag("Whether these rows were made up, because none were given."),
        "different_rows": _list("Positions of the rows with another label than the model's.", _whole("")),
        "different_labels": _whole("How many these are."),
        "largest_difference": _number("The largest difference of a probability."),
        "load_seconds": _number("Seconds that onnxruntime took to load the graph."),
        "latency": _LATENCY,
        "model_latency": _LATENCY | {"description": "The same for `predict` of the model."},
    },
    "metrics": {
        "metrics": _list(
            "The metrics.",
            _object("", name=_text("Name, with its parameters."), formula=_text("Its formula over counts.")),
        ),
    },
    "datasets": {
        "datasets": _list(
            "The datasets.",
            _object(
                "",
                name=_text("Name for `metricfit.data.load`."),
                rows=_whole("Number of rows."),
                positives=_whole("Number of positives."),
                positive=_text("What the positive class means."),
                source=_text("Where it comes from."),
                fetch=_flag("Whether `metricfit.data.fetch` downloads it."),
            ),
        ),
    },
}
