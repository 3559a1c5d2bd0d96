"""What a table of a paper is: its datasets, rows, protocols, columns and published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SPLITS = ("random", "stratified", "apart")
VARIED = ("weights", "splits", "folds")
THRESHOLDED = ("probabilities", "outputs")
OUTPUTS = ("probabilities", "logits")
AUROC = ("scores", "labels")
CHECKPOINTS = ("best validation", "best test")
MEAN, HALF, TUNED = "mean", "half", "tuned "
#: In place of where decisions are made: the networks before a constraint was added.
UNCONSTRAINED = "unconstrained"
#: In place of a dataset: the mean over all of them.
ALL = "all"


@dataclass(frozen=True)
class Column:
    """What is measured: a metric of decisions by its name, or one of ``column_names.OTHERS``, such as "auroc".

    One that is not ``shown`` is measured for another table, which then has its numbers for nothing.
    """

    title: str
    metric: str
    shown: bool = True


@dataclass(frozen=True)
class Training:
    """How a network is trained; ``batch_size`` 0 is all samples at once, ``patience`` 0 never stops early.

    ``precision`` is None, torch's float32, or "bf16-mixed".
    """

    network: str
    optimizer: str
    lr: float
    batch_size: int
    epochs: int
    patience: int
    monitor: str = "loss"
    precision: str | None = None


@dataclass(frozen=True)
class Protocol:
    """How trials differ, what is thresholded where, and which weights are judged.

    Attributes:
        says: in a sentence, for the page.
        split: "random" rows; "stratified"; or "apart": stratified, copies of a row and groups on one side.
        fractions: of training, validation and test rows; no validation means that training rows are watched instead.
        varied: what differs between trials: "weights" alone on one split, new "splits" too, or the test "folds".
        published_test: the test rows are those the dataset's origin chose, where it did.
        thresholded: "probabilities", or a row's own "outputs", be they probabilities or logits.
        auroc: of "scores", or of thresholded "labels" (the mean of TPR and TNR).
        checkpoint: the weights of the "best validation" value, or for each column the "best test" score over all
            weights that were once the best on the validation set.
        decided: where decisions are made: "mean" over the thresholds 0.1 to 0.9, "half", or "tuned METRIC".
    """

    name: str
    says: str
    split: str = "random"
    fractions: tuple[float, float, float] = (0.64, 0.16, 0.2)
    varied: str = "weights"
    published_test: bool = False
    thresholded: str = "probabilities"
    auroc: str = "scores"
    checkpoint: str = "best validation"
    decided: str = MEAN


@dataclass(frozen=True)
class Row:
    """One row: how its scores come about, and where its decisions are made if not where the protocol says.

    Attributes:
        kind: "network", or another registered kind.
        loss: for each protocol, as text.
        outputs: what the network of the published code puts out.
        of: the row whose trials these are, decided elsewhere; then there is nothing to train.
        gathers: for each column the row whose numbers it shows; then there is nothing to train either.
        decided: as of Protocol; None is the protocol's.
        training: by protocol.
        tags: what ``--without`` goes by.
    """

    name: str
    title: str
    kind: str = "network"
    loss: Mapping[str, str] = field(default_factory=dict)
    outputs: str = "probabilities"
    of: str | None = None
    gathers: Mapping[str, str] = field(default_factory=dict)
    decided: str | None = None
    class_weight: str | None = None
    oversample: float | None = None
    training: Mapping[str, Training] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocols: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def own_trials(self) -> bool:
        """Whether there is anything to train."""
        return self.of is None and not self.gathers

    def decided_under(self, protocol: Protocol) -> str:
        """Where decisions are made."""
        return self.decided or protocol.decided


@dataclass(frozen=True)
class Dataset:
    """A dataset: a name that metricfit.data knows, a call such as ``two_blobs(0.05)``, or a file of the user's."""

    name: str
    title: str
    made: str | None = None
    file: str | None = None
    target: str | None = None
    positive: str | None = None


@dataclass(frozen=True)
class Published:
    """A published number and its standard deviation, None where the paper gives none."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class TableSpec:
    """A table of a paper, as its file says."""

    name: str
    file: str
    title: str
    paper: str
    where: str
    trials: int
    prepare: str
    datasets: Mapping[str, Dataset]
    columns: Mapping[str, Column]
    protocols: Mapping[str, Protocol]
    rows: Mapping[str, Row]
    published: Mapping[tuple[str, str, str], Published]
    notes: tuple[str, ...] = ()
    against: str | None = None

    @property
    def shown_columns(self) -> dict[str, Column]:
        """Those that are not measured for another table alone."""
        return {key: column for key, column in self.columns.items() if column.shown}

    @property
    def averaged(self) -> bool:
        """Means over all datasets are shown, and rows against one of them."""
        return self.against is not None

    def shown(self, protocol: str) -> list[Row]:
        """The rows of a protocol."""
        return [row for row in self.rows.values() if protocol in row.protocols]

    def views(self) -> list[str]:
        """All ways in which any row or protocol decides."""
        every = [MEAN, HALF, *(protocol.decided for protocol in self.protocols.values())]
        return list(dict.fromkeys([*every, *(row.decided for row in self.rows.values() if row.decided)]))

    def cell(self, protocol: str, dataset: str, row: Row, trials: int, epochs: int | None) -> dict[str, Any]:
        """All that a cell's numbers depend on, as plain values."""
        training = row.training.get(protocol)
        settings = asdict(row) | {"loss": row.loss.get(protocol), "training": training and _given(asdict(training))}
        for key in ("title", "note", "tags", "decided", "of", "gathers", "protocols"):
            del settings[key]
        how = asdict(self.protocols[protocol])
        for key in ("says", "decided"):
            del how[key]
        return {
            "dataset": asdict(self.datasets[dataset]) | {"title": None},
            "prepare": self.prepare,
            "protocol": how,
            "row": settings,
            "metrics": {key: column.metric for key, column in self.columns.items()},
            "views": self.views(),
            "trials": trials,
            "epochs": epochs,
        }


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """Without a precision that is the usual one, so that cells made before there were others are still theirs."""
    return {key: value for key, value in settings.items() if (key, value) != ("precision", None)}
