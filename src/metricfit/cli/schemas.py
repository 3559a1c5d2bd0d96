"""The schemas of what commands print with ``--json``: written once, for the documentation and for the tests.

They are JSON Schemas (draft 2020-12). Fields may be added within a version; a field that is renamed, removed or changes
its meaning makes a new version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def an_object(description: str, /, **fields: Schema) -> Schema:
    """Describe an object with these fields; all of them are present."""
    return {
        "type": "object",
        "description": description,
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }


def by_name(description: str, entry: Schema) -> Schema:
    """Describe an object whose names are those of classes, metrics or requirements."""
    return {"type": "object", "description": description, "additionalProperties": entry}


def list_of(description: str, entry: Schema) -> Schema:
    """Describe a list of such entries."""
    return {"type": "array", "description": description, "items": entry}


def of_type(kind: str, description: str, **more: Any) -> Schema:
    """Describe a field of a type."""
    return {"type": kind, "description": description} | more


def or_null(schema: Schema) -> Schema:
    """Describe a field that is null where it does not apply."""
    return schema | {"type": [schema["type"], "null"]}


def text(description: str, **more: Any) -> Schema:
    """Describe a text."""
    return of_type("string", description, **more)


def whole_number(description: str) -> Schema:
    """Describe a whole number from 0 on."""
    return of_type("integer", description, minimum=0)


def number(description: str) -> Schema:
    """Describe a number."""
    return of_type("number", description)


def flag(description: str) -> Schema:
    """Describe what is true or false."""
    return of_type("boolean", description)


def interval_of(description: str) -> Schema:
    """Describe an interval, or null."""
    return {
        "type": ["array", "null"],
        "description": description,
        "items": {"type": "number"},
        "minItems": 2,
        "maxItems": 2,
    }


def label(description: str) -> Schema:
    """Describe a label of a class, which has the type that it has in the table."""
    return {"type": ["string", "number", "boolean", "null"], "description": description}


#: The version of all schemas, the first field of every output.
SCHEMA_VERSION = 1


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
    return output_schema(command, FIELDS[command])


def output_schema(command: str, fields: Mapping[str, Schema]) -> Schema:
    """Return the schema of a command's output with these fields, after the version."""
    version = {"const": SCHEMA_VERSION, "description": "The version of this schema."}
    schema = an_object("", schema_version=version, **fields)
    schema["$schema"], schema["title"] = "https://json-schema.org/draft/2020-12/schema", f"metricfit {command} --json"
    return schema


_MEASURED = an_object(
    "A value and its 95 % interval.",
    value=or_null(number("The value; null if the rows do not say.")),
    interval=interval_of("Its 95 % interval; null if it is not known."),
)
_CLASSES = by_name("Number of rows of each class, by its label.", whole_number("Number of rows."))
_POSITIVE = label("The positive class of two; null for several classes.")
_THRESHOLD = or_null(
    number("The probability of the positive class from which rows are called positive; null for several classes.")
)
_LATENCY = an_object(
    "Milliseconds of one call of the graph.",
    one_row=number("For one row."),
    thousand_rows=number("For 1,000 rows."),
)

_FINDINGS = list_of(
    "What looks wrong, the most serious first.",
    an_object(
        "",
        kind=text("What it is about, such as leak; [the page of doctor](doctor.md) lists the kinds."),
        severity=text("How serious it is.", enum=["serious", "warning", "note"]),
        message=text("What was found."),
        remedy=text("What to do about it."),
        columns=list_of("The columns it is about.", text("")),
        table=or_null(text("The further table it is about; null for the one to train on.")),
    ),
)

_EXPORT: Mapping[str, Schema] = {
    "path": text("The file of the graph."),
    "bytes": whole_number("Its size."),
    "inputs": by_name("What each input of the graph holds, by its name.", text("")),
    "outputs": list_of("The names of the outputs: the label, and the probabilities of all classes.", text("")),
    "classes": list_of("The labels, in the order of the probabilities.", label("")),
    "checked_rows": whole_number("Rows on which the graph was compared with the model."),
    "unknown_text_rows": whole_number("Rows that were not compared, because they have a text that training had not."),
    "rows_from": text("Which rows these are, in words, such as made-up rows."),
    "made_up": flag("Whether these rows were made up, because none were given."),
    "different_rows": list_of("Positions of the rows with another label than the model's.", whole_number("")),
    "different_labels": whole_number("How many these are."),
    "largest_difference": number("The largest difference of a probability."),
    "load_seconds": number("Seconds that onnxruntime took to load the graph."),
    "latency": _LATENCY,
    "model_latency": _LATENCY | {"description": "The same for `predict` of the model."},
}

FIELDS: Mapping[str, Mapping[str, Schema]] = {
    "fit": {
        "metric": text("Name of the metric."),
        "value": number("The metric, estimated for new rows: out of fold, corrected for having been chosen there."),
        "value_interval": interval_of("95 % interval of the value."),
        "out_of_fold": number("The metric on held-out rows, before the correction."),
        "threshold": _THRESHOLD,
        "threshold_interval": interval_of("95 % interval of the threshold."),
        "refer_region": interval_of("The probabilities between which rows are referred to a person."),
        "referred_share": or_null(number("The share of the held-out rows that are referred.")),
        "models": list_of(
            "The families of models.",
            an_object(
                "",
                name=text("Name of the family."),
                weight=number("Its weight in the ensemble; 0 if it is not used."),
                value=or_null(number("Its metric out of fold; null if it was not fitted.")),
                log_loss=or_null(number("Its cross-entropy out of fold.")),
                seconds=or_null(number("The time that fitting took.")),
                left_out=or_null(text("Why it was not fitted; null if it was.")),
                fitted_rows=or_null(
                    whole_number(
                        "The rows that it was fitted on, if these are a sample of a large table; null for all rows."
                    )
                ),
                table_rows=or_null(whole_number("The rows of that table.")),
            ),
        ),
        "model": text("The folder of the model."),
        "report": text("The file of the report."),
        "positive": _POSITIVE,
        "classes": _CLASSES,
        "requirements_met": flag("Whether all requirements are met; true if there are none."),
        "confidence": or_null(number("The probability for which the requirements are certified; null for none.")),
        "certificate": or_null(
            text(
                'What the confidence says about new rows: "guaranteed", or "certified on cross-validated scores '
                '(approximate)"; null without a confidence.'
            )
        ),
        "requirements": by_name(
            "What is known about each requirement, by its text.",
            an_object(
                "",
                value=number("The value on held-out rows."),
                met=flag("Whether it is met."),
                reachable=number("The best value that a threshold reaches."),
            ),
        ),
        "periods": list_of(
            "With `--time`, the metric on the held-out rows by period, the earliest first; otherwise empty.",
            an_object(
                "",
                first=text("The time of the first row."),
                last=text("The time of the last row."),
                rows=whole_number("Number of rows."),
                value=number("The metric of the decisions about them."),
                interval=interval_of("Its 95 % interval; null if the rows are of one class."),
            ),
        ),
        "fall": or_null(text("A sentence if the last period is clearly worse than all held-out rows.")),
        "interrupted": list_of("Families that Ctrl-C left out.", text("")),
        "findings": _FINDINGS,
        "onnx": or_null(an_object("What was exported, as `export --json` has it; null without `--onnx`.", **_EXPORT)),
    },
    "compare": {
        "metric": text("Name of the metric."),
        "verdict": text("The recommendation in words."),
        "recommended": or_null(text("Name of the recommended method.")),
        "recommendation": or_null(
            an_object(
                "The recommendation, for scripts.",
                method=text("Name of the recommended method, as `fit --method` takes it."),
                mean=number("Its mean over the folds."),
                interval=interval_of("95 % interval of the mean."),
                sure=flag("Whether the folds prove that no other method is better, or only negligibly."),
                not_better_than=or_null(text("Decisions without a model that it does not clearly beat.")),
                requirements_reachable=flag("Whether some method met the requirements on every fold's training rows."),
            )
        ),
        "methods": list_of(
            "The methods, the best mean first.",
            an_object(
                "",
                name=text("Name of the method."),
                mean=number("Mean of the metric over the folds."),
                interval=interval_of("95 % interval of the mean."),
                values=list_of("The metric on each fold.", number("")),
                seconds=or_null(number("Training time of all folds.")),
                versus_reference=or_null(
                    an_object(
                        "The comparison with boosted trees; null for these.",
                        difference=number("This mean minus that of the reference."),
                        interval=interval_of("Simultaneous 95 % interval of the difference."),
                        p_value=or_null(number("p-value with Holm's correction.")),
                    )
                ),
                held=or_null(whole_number("Folds on which the requirements held; null if there are none.")),
                not_reachable=list_of("What was reachable on the folds where they could not be met.", text("")),
                requirements=list_of(
                    "The requirements on the test rows of all folds together; empty for decisions that are not tuned.",
                    an_object(
                        "",
                        requirement=text("The requirement."),
                        value=number("The value of its metric."),
                        interval=interval_of("95 % interval of the value."),
                        held=flag("Whether the value meets the bound."),
                        clearly_fails=flag("Whether the whole interval is beyond the bound."),
                    ),
                ),
            ),
        ),
        "notes": list_of("What was left out, and why.", text("")),
        "table_rows": whole_number("Rows of the table."),
        "compared_rows": whole_number("Rows that were compared on: all of them, or a sample of a large table."),
        "findings": _FINDINGS,
        "command": text("The command that fits the recommended method on all rows."),
        "positive": _POSITIVE,
        "classes": _CLASSES,
        "folder": text("The folder of the trainings and the report."),
        "report": text("The file of the report."),
    },
    "evaluate": {
        "rows": whole_number("Number of rows."),
        "metric": text("Name of the model's metric, with its average if there are several classes."),
        "value": or_null(number("The metric on these rows; null where it is 0/0, as recall is without positives.")),
        "value_interval": interval_of("95 % interval of the value."),
        "training": an_object(
            "The same metric at training time.",
            value=number("The value that training estimated for new rows."),
            interval=interval_of("Its 95 % interval."),
            difference=or_null(number("The value on these rows minus that of training; null if not comparable.")),
            verdict=text("The comparison.", enum=["as expected", "better", "worse", "not comparable"]),
            sentence=text("The comparison in words."),
        ),
        "threshold": _THRESHOLD,
        "positive": _POSITIVE,
        "negative": label("The other class of two."),
        "tp": or_null(whole_number("True positives; null for several classes.")),
        "fp": or_null(whole_number("False positives.")),
        "fn": or_null(whole_number("False negatives.")),
        "tn": or_null(whole_number("True negatives.")),
        "referred": or_null(whole_number("Rows that are referred to a person; null if the model refers none.")),
        "requirements": by_name(
            "Whether each requirement held on these rows, by its text.",
            an_object(
                "",
                value=number("The value on these rows."),
                interval=interval_of("Its 95 % interval."),
                held=flag("Whether it held."),
            ),
        ),
        "better_without_model": or_null(
            text("A sentence if flagging nobody or everybody, or always the largest class, has a better value here.")
        ),
        "metrics": by_name("Every metric with its interval, the model's first.", _MEASURED),
        "ranking_rows": whole_number("Rows of auroc and average_precision: all of them, or a sample of 2 million."),
        "classes": or_null(
            by_name(
                "The classes by their labels; null for two classes.",
                an_object(
                    "",
                    rows=whole_number("Rows of the class."),
                    predicted=whole_number("Rows that are called the class."),
                    metrics=by_name("Metrics of the class against the others.", _MEASURED),
                ),
            )
        ),
        "confusion": or_null(
            by_name("For each true class, the number of its rows called each class.", by_name("", whole_number("")))
        ),
        "report": or_null(text("The file of the report; null without `--report`.")),
    },
    "predict": {
        "rows": whole_number("Number of rows."),
        "file": text("The file of the predictions."),
        "predicted": by_name("Number of rows that are called each class.", whole_number("")),
        "new_categories": by_name(
            "Number of rows with a category that the training rows did not have, by column.", whole_number("")
        ),
        "threshold": _THRESHOLD,
        "referred": or_null(whole_number("Rows that are referred to a person; null if the model refers none.")),
    },
    "doctor": {
        "table": text("The table to train on."),
        "further": list_of("The tables that were compared with it.", text("")),
        "rows": whole_number("Number of rows."),
        "columns": whole_number("Number of columns to learn from."),
        "classes": _CLASSES,
        "positive": _POSITIVE,
        "findings": _FINDINGS,
    },
    "export": _EXPORT,
    "metrics": {
        "metrics": list_of(
            "The metrics.",
            an_object("", name=text("Name, with its parameters."), formula=text("Its formula over counts.")),
        ),
    },
}
