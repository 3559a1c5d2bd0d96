"""Reading the rows of a table's file: what is trained under each protocol, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from metricfit.errors import InvalidValueError
from metricfit.metrics import get_metric
from metricfit_papers.rows.row_kinds import KINDS, TRAINED
from metricfit_papers.specs import vocabulary
from metricfit_papers.specs.expressions import check_expression
from metricfit_papers.specs.table_spec import (
    HALF,
    MEAN,
    OUTPUTS,
    TUNED,
    UNCONSTRAINED,
    ProtocolSpec,
    RowSpec,
    TrainingSpec,
)
from metricfit_papers.specs.toml_section import Section


def rows_of(file: Section, protocols: dict[str, ProtocolSpec]) -> Iterator[RowSpec]:
    """Read the rows of a file, each of them once per variant."""
    usual = file.section("training", optional=True)
    _check_names(usual, protocols)
    variants = list(file.section("variants", optional=True).sections())
    row_sections = list(file.section("rows").sections())
    if not row_sections:
        raise file.error("rows", "needs at least one, such as [rows.BCE]")
    for name, section in row_sections:
        if not variants:
            yield _row(name, section, usual, protocols, {})
        for title, variant in variants:
            again = Section(section.file, section.path, section.whole)
            row = _row(name, again, usual, protocols, dict(variant.remaining))
            yield replace(
                row, name=f"{name}, {title}", title=f"{row.title}, {title}", of=row.of and f"{row.of}, {title}"
            )


def _row(
    name: str, section: Section, usual: Section, protocols: dict[str, ProtocolSpec], variant: dict[str, Any]
) -> RowSpec:
    kind = section.one_of("kind", list(KINDS), "network")
    only = tuple(section.take("protocols", list, list(protocols)))
    for protocol in only:
        _check_protocol(section, "protocols", protocol, protocols)
    of, gathers = section.take("of", str, None), section.take("gathers", dict, {})
    losses = _losses(section, only, protocols)
    row_training = section.take("training", dict, {})
    training: dict[str, TrainingSpec] = {}
    if of is None and not gathers and kind in TRAINED:
        lacking = [protocol for protocol in only if protocol not in losses]
        if lacking:
            raise section.error("loss", f"is missing for {', '.join(lacking)}; add it, or list the row's protocols")
        layers = (usual.whole, row_training)
        training = {protocol: _training(section, _merged(layers, protocol, protocols) | variant) for protocol in only}
    row = RowSpec(
        name=name,
        title=section.take("title", str, name),
        kind=kind,
        loss=losses,
        outputs=section.one_of("outputs", OUTPUTS, "probabilities"),
        of=of,
        gathers=gathers,
        decided=section.checked("decided", str, check_decided, None),
        class_weight=section.checked("class_weight", str, _check_class_weight, None),
        oversample=section.take("oversample", float, None),
        training=training,
        settings=section.take("settings", dict, {}),
        protocols=only,
        tags=tuple(section.take("tags", list, [])),
        note=section.take("note", str, ""),
    )
    section.done()
    return row


def _losses(section: Section, only: tuple[str, ...], protocols: dict[str, ProtocolSpec]) -> dict[str, str]:
    """Read the loss under each protocol: one text for all, or one per protocol."""
    texts = section.take("loss", (str, dict), {})
    by_protocol = texts if isinstance(texts, dict) else dict.fromkeys(only, texts)
    for protocol, text in by_protocol.items():
        _check_protocol(section, f"loss.{protocol}", protocol, protocols)
        try:
            check_expression(text, vocabulary.LOSSES)
        except ValueError as error:
            raise section.error(f"loss.{protocol}", str(error)) from error
    return by_protocol


def _merged(layers: tuple[dict[str, Any], ...], protocol: str, protocols: dict[str, ProtocolSpec]) -> dict[str, Any]:
    """Merge the settings of several layers; in each, a protocol's own override what is for all protocols."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in layer.items() if key not in protocols}
        merged |= layer.get(protocol, {})
    return merged


def _check_names(usual: Section, protocols: dict[str, ProtocolSpec]) -> None:
    """Report misspelt keys of [training] there, and not under the first row that uses them."""
    usual.asked = [*(field.name for field in fields(TrainingSpec)), *protocols]
    usual.remaining = {key: value for key, value in usual.whole.items() if key not in usual.asked}
    usual.done()


def _check_protocol(section: Section, key: str, protocol: str, protocols: dict[str, ProtocolSpec]) -> None:
    if protocol not in protocols:
        raise section.error(key, f"there is no protocol {protocol!r}; there are {', '.join(protocols)}")


def _check_class_weight(text: str) -> None:
    if text != "balanced":
        raise InvalidValueError(f"should be 'balanced', got {text!r}")


def _check_rate(lr: float) -> None:
    if not 0 < lr < float("inf"):
        raise InvalidValueError(f"should be above 0, got {lr}")


def _training(row: Section, settings: dict[str, Any]) -> TrainingSpec:
    section = Section(row.file, f"{row.path}.training", settings)
    training = TrainingSpec(
        network=section.checked("network", str, lambda text: check_expression(text, vocabulary.NETWORKS)),
        optimizer=section.checked("optimizer", str, lambda text: check_expression(text, vocabulary.OPTIMIZERS), "Adam"),
        lr=section.checked("lr", float, _check_rate),
        batch_size=at_least(section, "batch_size", least=0),
        epochs=at_least(section, "epochs"),
        patience=at_least(section, "patience", 0, least=0),
        monitor=section.take("monitor", str, "loss"),
        precision=_precision(section) if "precision" in settings else None,
    )
    section.done()
    return training


def _precision(section: Section) -> str | None:
    name = section.one_of("precision", ["float32", "bf16-mixed"])
    return None if name == "float32" else name


def at_least(section: Section, key: str, default: Any = None, least: int = 1) -> int:
    """Take a whole number that is at least ``least``."""
    value: int = section.take(key, int) if default is None else section.take(key, int, default)
    if value < least:
        raise section.error(key, f"should be at least {least}, got {value}")
    return value


def check_decided(text: str) -> None:
    """Raise an error if the text is not a way of making decisions."""
    if text in (MEAN, HALF, UNCONSTRAINED):
        return
    if not text.startswith(TUNED):
        raise InvalidValueError(f"should be {MEAN!r}, {HALF!r} or '{TUNED}METRIC', such as '{TUNED}f1'; got {text!r}")
    get_metric(text.removeprefix(TUNED))
