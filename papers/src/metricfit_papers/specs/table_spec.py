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
#: Instead of a way of making decisions: the networks before a constraint was added.
UNCONSTRAINED = "unconstrained"
#: Instead of a dataset: the mean over all of them.
ALL = "all"


@dataclass(frozen=True)
class ColumnSpec:
    """One column of a table.

    Attributes:
        title: Title of the column on the page.
        metric: A metric of decisions by its name, or one of ``column_names.OTHERS``, such as "auroc".
        shown: Whether the page shows it. A column that is not shown is measured for another table that shares the
            cells of this one.
    """

    title: str
    metric: str
    shown: bool = True


@dataclass(frozen=True)
class TrainingSpec:
    """How a network is trained.

    Attributes:
        network: The network as text, such as "btg_mlp".
        optimizer: The optimiser as text, such as "Adam".
        lr: Learning rate.
        batch_size: Batch size; 0 for all samples at once.
        epochs: Maximum number of epochs.
        patience: Number of epochs without improvement before training stops; 0 to never stop early.
        monitor: What is watched on the validation rows.
        precision: None for float32, or "bf16-mixed".
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
class ProtocolSpec:
    """How trials differ, what is thresholded where, and which weights are scored.

    Attributes:
        name: Name of the protocol.
        says: Description in a sentence, for the page.
        split: "random" rows; "stratified"; or "apart": stratified, with copies of a row and groups in one part.
        fractions: Fractions of training, validation and test rows. Without validation rows, training rows are watched.
        varied: What differs between trials: only the "weights", also the "splits", or the test "folds".
        published_test: Whether the test rows are those that the publisher of the dataset chose, if there are such.
        thresholded: "probabilities", or the "outputs" of a row, which are probabilities or logits.
        auroc: AUROC of "scores", or of thresholded "labels" (the mean of TPR and TNR).
        checkpoint: The weights with the "best validation" value, or for each column the "best test" score over all
            weights that were the best on the validation rows at some point.
        decided: How decisions are made: "mean" over the thresholds 0.1 to 0.9, "half" for 0.5, or "tuned METRIC".
        epochs: The maximum number of epochs, if it is smaller than the table's.
        constraint: Settings of a constraint that replace the rows' own, and ``fall``: mu grows after a fall of the
            validation AUC by more than this, to at most mu times rho cubed.
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
    epochs: int | None = None
    constraint: Mapping[str, Any] = field(default_factory=dict)

    def limit(self, epochs: int | None) -> int | None:
        """Return the smaller of a limit of epochs and the protocol's own; None if there is neither.

        >>> ProtocolSpec("short", "Stopped early.", epochs=20).limit(15), ProtocolSpec("paper", "").limit(None)
        (15, None)
        """
        return min((limit for limit in (epochs, self.epochs) if limit is not None), default=None)


@dataclass(frozen=True)
class RowSpec:
    """One row of a table: what is trained, and how its decisions are made.

    Attributes:
        name: Name of the row.
        title: Title of the row on the page.
        kind: "network", or another kind of ``rows.row_kinds``.
        loss: The loss as text, for each protocol.
        outputs: What the network of the published code returns: "probabilities" or "logits".
        of: Another row whose trials are shown with other decisions; nothing is trained for this one then.
        gathers: For each column the row whose numbers are shown; nothing is trained for this one then.
        decided: How decisions are made, as in ProtocolSpec; None for the protocol's way.
        class_weight: None or "balanced".
        oversample: Share of positives to oversample to.
        training: How networks are trained, for each protocol.
        settings: Settings of the kind of row.
        protocols: Names of the protocols that have this row.
        tags: What ``--without`` selects by.
        note: A remark for the page.
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
    training: Mapping[str, TrainingSpec] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    protocols: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    note: str = ""

    @property
    def own_trials(self) -> bool:
        """Whether this row is trained itself."""
        return self.of is None and not self.gathers

    def decided_under(self, protocol: ProtocolSpec) -> str:
        """Return how decisions are made under a protocol."""
        return self.decided or protocol.decided


@dataclass(frozen=True)
class DatasetSpec:
    """A dataset: one that the catalogue knows, a call such as ``two_blobs(0.05)``, or a file of the user.

    Attributes:
        name: Name of the dataset.
        title: Title on the page.
        made: The call that makes the dataset, as text.
        file: The user's file.
        target: The column of labels in the user's file.
        positive: The positive label in the user's file.
    """

    name: str
    title: str
    made: str | None = None
    file: str | None = None
    target: str | None = None
    positive: str | None = None


@dataclass(frozen=True)
class PublishedNumber:
    """A published number and its standard deviation; None if the paper gives none."""

    mean: float
    std: float | None


@dataclass(frozen=True)
class TableSpec:
    """A table of a paper, as described by its file.

    Attributes:
        name: Name of the table, such as "btg-1".
        file: Path of the file.
        title: Title on the page.
        paper: The paper.
        where: Where in the paper the table is, such as "Table 1".
        trials: Number of trials.
        prepare: How columns become numbers: one of PREPARATIONS, or "pixels".
        datasets: The datasets, by name.
        columns: The columns, by name.
        protocols: The protocols, by name.
        rows: The rows, by name.
        published: The published numbers, by dataset, row and column.
        searched: The published choices of a search, as text, by dataset and row.
        notes: Remarks for the page.
        against: The row that others are compared with over all datasets.

    Example:
        >>> from metricfit_papers import find_table
        >>> list(find_table("btg-1").protocols)
        ['paper', 'code', 'corrected']
    """

    name: str
    file: str
    title: str
    paper: str
    where: str
    trials: int
    prepare: str
    datasets: Mapping[str, DatasetSpec]
    columns: Mapping[str, ColumnSpec]
    protocols: Mapping[str, ProtocolSpec]
    rows: Mapping[str, RowSpec]
    published: Mapping[tuple[str, str, str], PublishedNumber]
    notes: tuple[str, ...] = ()
    against: str | None = None
    searched: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def shown_columns(self) -> dict[str, ColumnSpec]:
        """The columns that are not measured only for another table."""
        return {key: column for key, column in self.columns.items() if column.shown}

    @property
    def averaged(self) -> bool:
        """Whether means over all datasets are shown, and rows compared with one row."""
        return self.against is not None

    def shown(self, protocol: str) -> list[RowSpec]:
        """Return the rows of a protocol.

        Args:
            protocol: Name of the protocol.

        Returns:
            The rows, in the order of the file.
        """
        return [row for row in self.rows.values() if protocol in row.protocols]

    def views(self) -> list[str]:
        """Return all ways of making decisions of any row or protocol.

        Returns:
            The ways as text, each once.
        """
        views = [MEAN, HALF, *(protocol.decided for protocol in self.protocols.values())]
        return list(dict.fromkeys([*views, *(row.decided for row in self.rows.values() if row.decided)]))

    def cell(self, protocol: str, dataset: str, row: RowSpec, trials: int, epochs: int | None) -> dict[str, Any]:
        """Return everything that the numbers of a cell depend on.

        Args:
            protocol: Name of the protocol.
            dataset: Name of the dataset.
            row: The row.
            trials: Number of trials.
            epochs: Maximum number of epochs, if it is not the table's.

        Returns:
            Plain values, which JSON can hold.
        """
        training = row.training.get(protocol)
        settings = asdict(row) | {
            "loss": row.loss.get(protocol),
            "training": training and asdict(training),
        }
        for key in ("title", "note", "tags", "decided", "of", "gathers", "protocols"):
            del settings[key]
        how = asdict(self.protocols[protocol])
        for key in ("says", "decided", "epochs"):
            del how[key]  # the limit of epochs is below
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
