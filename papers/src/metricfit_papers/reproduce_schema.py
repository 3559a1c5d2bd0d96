"""The schemas of what ``metricfit reproduce`` and ``metricfit datasets`` print with ``--json``."""

from __future__ import annotations

from collections.abc import Mapping

from metricfit.cli.schemas import (
    Schema,
    an_object,
    by_name,
    flag,
    list_of,
    number,
    of_type,
    or_null,
    output_schema,
    text,
    whole_number,
)

_VALUES = by_name("One value per trial, by the name of the column.", list_of("", or_null(number(""))))
_ROWS = by_name(
    "The measured rows of the table, by their names.",
    an_object(
        "",
        values=_VALUES,
        seconds=number("Seconds of training."),
        epochs=list_of("Number of epochs of each trial.", whole_number("")),
        machine=text("The machine."),
        versions=by_name("Versions of the packages.", text("")),
        chosen=or_null(of_type("object", "What a search chose; null if nothing was searched.")),
    ),
)

FIELDS: Mapping[str, Schema] = {
    "table": or_null(text("Name of the table; null for `--list`, and if cells are only copied.")),
    "protocols": list_of(
        "The results of each protocol.",
        an_object(
            "",
            table=text("Name of the table."),
            protocol=text("Name of the protocol."),
            trials=whole_number("Number of trials."),
            smaller=text("How much smaller the run is than the table, in words; empty if it is not."),
            command=text("The command that was run."),
            datasets=by_name("The results on each dataset, by its name.", _ROWS),
            average=or_null(
                by_name(
                    "For each row the means over its trials, one per dataset; null if the table has no such average.",
                    an_object("", values=_VALUES, seconds=number("Seconds of training, of all datasets.")),
                )
            ),
            file=text("The file of the results."),
        ),
    ),
    "copied": list_of(
        "What was copied from each folder of `--from`.",
        an_object(
            "",
            source=text("The folder."),
            copied=whole_number("Cells that were copied."),
            here=whole_number("Cells that were finished here already."),
            unfinished=list_of("Cells that are not finished there.", text("")),
            damaged=list_of("Cells that cannot be read.", text("")),
        ),
    ),
    "tables": or_null(
        list_of(
            "The tables of `--list`; otherwise null.",
            an_object(
                "",
                name=text("Name of the table."),
                title=text("Its title."),
                paper=text("The paper."),
                where=text("Where it is in the paper."),
                protocols=list_of("Names of the protocols.", text("")),
                datasets=list_of("Names of the datasets.", text("")),
                rows=list_of("Names of the rows.", text("")),
                run=an_object(
                    "How much of the published size was run for the pages, in words; empty if nothing was.",
                    protocols=text("The protocols that were run."),
                    datasets=text("Datasets, such as `3 of 4`."),
                    trials=text("Trials."),
                    epochs=text("Epochs of the longest training."),
                    smaller=text("What is smaller than published."),
                ),
            ),
        )
    ),
}


def reproduce_schema() -> Schema:
    """Return the JSON Schema of the output of ``metricfit reproduce --json``."""
    return output_schema("reproduce", FIELDS)


def datasets_schema() -> Schema:
    """Return the JSON Schema of the output of ``metricfit datasets --json``."""
    dataset = an_object(
        "",
        name=text("Name for `metricfit_papers.datasets.load`."),
        rows=whole_number("Number of rows."),
        positives=whole_number("Number of positives."),
        positive=text("What the positive class means."),
        source=text("Where it comes from."),
        fetch=flag("Whether `metricfit_papers.datasets.fetch` downloads it."),
    )
    return output_schema("datasets", {"datasets": list_of("The datasets.", dataset)})
