"""The tables of the trial in docs/evidence/tables.md: real or made, and written as awkwardly as tables come."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

Frames = tuple[pd.DataFrame, pd.DataFrame]
#: Words of trouble, calm words and others, of which messages are made.
WORDS = [
    re.findall(r"\w+", "down outage cannot login urgent broken error crash production failing stopped lost data"),
    re.findall(
        r"\w+", "question invoice feature request how thanks documentation update later info theme address wish"
    ),
    re.findall(r"\w+", "the a our your system please team account with and for we it is customer today since page"),
]


@dataclass(frozen=True)
class AwkwardTable:
    """A table to train on and one to judge by.

    Attributes:
        name: A short name.
        words: What it is, and what is awkward about it.
        target: The column to predict.
        positive: Its positive label; None for several classes.
        metric: What decisions are judged by, as the command line takes it.
        options: Further options of ``metricfit fit``.
        make: Makes both tables from the folder of datasets.
        write: Writes one of them to a file or a folder, whose path it returns.
        unused: Columns that neither model gets: identifiers, leaks.
    """

    name: str
    words: str
    target: str
    positive: object
    metric: str
    make: Callable[[Path], Frames]
    write: Callable[[pd.DataFrame, Path], Path]
    options: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def split(frame: pd.DataFrame, share: float) -> Frames:
    rows = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    end = int(len(rows) * share)
    return rows[:end], rows[end:].reset_index(drop=True)


def original(name: str, data: Path) -> pd.DataFrame:
    from metricfit_papers.datasets import load  # the rival's command does not wait for it

    table = load(name, data)
    return table.X.assign(target=np.asarray(table.y))


def german(data: Path) -> Frames:
    rng, rows = np.random.default_rng(7), original("adult", data).sample(9000, random_state=1).reset_index(drop=True)
    rich = rows.pop("target").astype(int)
    days = pd.to_timedelta(rng.integers(0, 2500, len(rows)) - 300 * rich, unit="D")
    rows["Eintritt"] = pd.Timestamp("2015-01-01") + days
    rows["Stundensatz"] = (rng.gamma(4, 6, len(rows)) + 4 * rich).round(2)
    rows["Einkommen über 50T?"] = rich.map({1: "ja", 0: "nein"})
    rows["Kunden-Nr"] = [f"K{number}" for number in rng.permutation(len(rows)) + 100_000]
    return split(rows, 2 / 3)


def write_german(rows: pd.DataFrame, path: Path) -> Path:
    dates = rows.assign(Eintritt=rows["Eintritt"].dt.strftime("%d.%m.%Y"))
    dates.to_csv(path.with_suffix(".csv"), sep=";", decimal=",", index=False, encoding="utf-8-sig")
    return path.with_suffix(".csv")


def write_export(rows: pd.DataFrame, path: Path) -> Path:
    """As a spreadsheet exports a sheet: a title, a line without entries, and empty columns at the end."""
    lines = [f"{line},,," for line in rows.to_csv(index=False).splitlines()]
    empty = "," * (rows.shape[1] + 2)
    path.with_suffix(".csv").write_text("\r\n".join([f"Thyroid clinic, 2024{empty}", empty, *lines]), newline="")
    return path.with_suffix(".csv")


def fraud(data: Path) -> Frames:
    rows = original("creditcard", data)
    positives = rows[rows["target"] == 1].sample(120, random_state=3)
    rows = pd.concat([positives, rows[rows["target"] == 0].sample(120_000, random_state=0)]).sort_values("Time")
    return rows[:60_000].reset_index(drop=True), rows[60_000:].reset_index(drop=True)


def write_parts(rows: pd.DataFrame, path: Path) -> Path:
    path.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(rows)), 4)):
        rows.iloc[part].to_parquet(path / f"part-{number}.parquet")
    return path


def churn(data: Path) -> Frames:
    """Made: 900 zip codes and 60 products with effects of their own, a refund that follows from churn."""
    rng, n = np.random.default_rng(7), 8000
    zips, products = rng.integers(0, 900, n), rng.integers(0, 60, n)
    age, tenure = rng.integers(18, 90, n).astype(float), rng.exponential(3, n)
    logits = -3.1 + rng.normal(0, 1.2, 900)[zips] + rng.normal(0, 0.8, 60)[products] - 0.25 * tenure
    gone = rng.random(n) < 1 / (1 + np.exp(-logits - 0.02 * (age - 45)))
    rows = pd.DataFrame({"customer_id": rng.permutation(n) + 10_000_000, "zip": [f"{10_007 + 7 * z}" for z in zips]})
    rows["product"] = [f"P-{product:02d}/ä" for product in products]
    rows["age"], rows["tenure"] = np.where(rng.random(n) < 0.1, np.nan, age), tenure.round(2)
    rows["refund_date"] = np.where(gone & (rng.random(n) < 0.97), "2024-03-11", None)
    labels = np.where(gone, "Yes, churned (paid back)", "no / still active").astype(object)
    return split(rows.assign(**{"Status?": np.where(rng.random(n) < 0.03, None, labels)}), 0.6)


def drift(data: Path) -> Frames:
    """Made: what decides changes over four years, and the rows of the first two thirds are shuffled."""
    rng, n = np.random.default_rng(7), 9000
    X, late = rng.normal(size=(n, 6)), np.arange(n) / n
    logits = -2.6 + 1.4 * late + (1.5 - 1.8 * late) * X[:, 0] + (0.2 + 1.3 * late) * X[:, 1] + 0.6 * X[:, 2] * X[:, 3]
    rows = pd.DataFrame(X.round(4), columns=list("abcdef")).assign(
        sales=(100 + 40 * late + rng.normal(0, 5, n)).round(1)
    )
    days = pd.Timestamp("2021-01-01") + pd.to_timedelta(np.arange(n) * 4, unit="h")
    rows = rows.assign(when=days.strftime("%d/%m/%Y %H:%M"), default=rng.random(n) < 1 / (1 + np.exp(-logits)))
    return rows[:6000].sample(frac=1, random_state=0).reset_index(drop=True), rows[6000:].reset_index(drop=True)


def tickets(data: Path) -> Frames:
    """Made: messages in which words of trouble are more frequent if a ticket was escalated."""
    rng, n = np.random.default_rng(7), 4000
    escalated = rng.random(n) < 0.08
    messages = []
    for serious in escalated:
        shares = [0.16, 0.12, 0.72] if serious else [0.05, 0.15, 0.8]
        pools = rng.choice(3, rng.integers(5, 22), p=shares)
        messages.append(" ".join(rng.choice(WORDS[pool]) for pool in pools).capitalize() + ".\nBye")
    rows = pd.DataFrame({"ticket": np.arange(n), "message": messages, "channel": rng.choice(["mail", "phone"], n)})
    rows["hours_open"] = rng.exponential(10, n).round(1) + 2 * escalated
    return split(rows.assign(escalated=np.where(escalated, "yes", "no")), 0.6)


def families(data: Path) -> Frames:
    rows = original("adult", data).drop(columns="relationship")
    status = rows.pop("marital-status")
    groups = {"Never-married": "single", "Married-civ-spouse": "married", "Widowed": "widowed"}
    rows = rows.assign(status=status.map(groups)).dropna(subset="status")
    few = rows[rows["status"] == "widowed"].sample(160, random_state=0)
    return split(pd.concat([few, rows[rows["status"] != "widowed"].sample(7840, random_state=0)]), 0.6)


def write_csv(rows: pd.DataFrame, path: Path) -> Path:
    rows.to_csv(path.with_suffix(".csv"), index=False)
    return path.with_suffix(".csv")


def write_tsv(rows: pd.DataFrame, path: Path) -> Path:
    rows.to_csv(path.with_suffix(".tsv"), sep="\t", index=False)
    return path.with_suffix(".tsv")


LEFT_OUT = ("--drop", "customer_id", "--drop", "refund_date", "--category", "zip", "--skip-unlabelled")
TABLES = (
    AwkwardTable(
        "german",
        "Adult as a German export: semicolons, BOM, decimal commas, 31.12.2015, an identifier",
        "Einkommen über 50T?",
        "ja",
        "f1",
        german,
        write_german,
        ("--drop", "Kunden-Nr"),
        ("Kunden-Nr",),
    ),
    AwkwardTable(
        "clinic",
        "sick_euthyroid with a title above the header and empty columns",
        "target",
        1,
        "mcc",
        lambda data: split(original("sick_euthyroid", data), 0.6),
        write_export,
    ),
    AwkwardTable(
        "fraud",
        "creditcard at 1:1000, four Parquet files, later rows held out",
        "target",
        1,
        "recall",
        fraud,
        write_parts,
        ("--subject-to", "precision >= 0.9", "--models", "linear,boosting,boosting_small"),
    ),
    AwkwardTable(
        "churn",
        "made: 900 zip codes, identifier, leak, missing labels with odd names",
        "Status?",
        "Yes, churned (paid back)",
        "fbeta(beta=2)",
        churn,
        write_csv,
        LEFT_OUT,
        ("customer_id", "refund_date"),
    ),
    AwkwardTable("families", "Adult, three classes, one of 2 %", "status", None, "f1", families, write_csv),
    AwkwardTable(
        "drift",
        "made: what decides changes with time; days first, rows shuffled",
        "default",
        True,
        "cost(fp=1, fn=10)",
        drift,
        write_csv,
        ("--time", "when"),
        ("when",),
    ),
    AwkwardTable(
        "few",
        "us_crime, 300 rows of 100 columns to train on",
        "target",
        1,
        "mcc",
        lambda data: split(original("us_crime", data), 300 / 1994),
        write_tsv,
    ),
    AwkwardTable(
        "tickets",
        "made: free text beside numbers",
        "escalated",
        "yes",
        "2*tp/(2*tp + fp + fn)",
        tickets,
        write_csv,
        ("--drop", "ticket"),
        ("ticket",),
    ),
    AwkwardTable(
        "mammography",
        "mammography without copies of rows",
        "target",
        1,
        "gmean",
        lambda data: split(original("mammography", data).drop_duplicates(), 0.6),
        write_csv,
    ),
)
