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
    given_rows = list(file.section("rows").sections())
    if not given_rows:
        raise file.error("rows", "needs at least one, such as [rows.BCE]")
    for name, given in given_rows:
        if not variants:
            yield _row(name, given, usual, protocols, {})
        for title, variant in variants:
            again = Section(given.file, given.path, given.whole)
            made = _row(name, again, usual, protocols, dict(variant.given))
            yield replace(
                made, name=f"{name}, {title}", title=f"{made.title}, {title}", of=made.of and f"{made.of}, {title}"
            )


def _row(
    name: str, given: Section, usual: Section, protocols: dict[str, ProtocolSpec], variant: dict[str, Any]
) -> RowSpec:
    kind = given.one_of("kind", list(KINDS), "network")
    only = tuple(given.take("protocols", list, list(protocols)))
    for each in only:
        _check_protocol(given, "protocols", each, protocols)
    of, gathers = given.take("of", str, None), given.take("gathers", dict, {})
    losses = _losses(given, only, protocols)
    own = given.take("training", dict, {})
    training: dict[str, TrainingSpec] = {}
    if of is None and not gathers and kind in TRAINED:
        lacking = [each for each in only if each not in losses]
        if lacking:
            raise given.error("loss", f"is missing for {', '.join(lacking)}; give it, or name the row's protocols")
        layers = (usual.whole, own)
        training = {each: _training(given, _merged(layers, each, protocols) | variant) for each in only}
    found = RowSpec(
        name=name,
        title=given.take("title", str, name),
        kind=kind,
        loss=losses,
        outputs=given.one_of("outputs", OUTPUTS, "probabilities"),
        of=of,
        gathers=gathers,
        decided=given.checked("decided", str, check_decided, None),
        class_weight=given.checked("class_weight", str, _check_class_weight, None),
        oversample=given.take("oversample", float, None),
        training=training,
        settings=given.take("settings", dict, {}),
        protocols=only,
        tags=tuple(given.take("tags", list, [])),
        note=given.take("note", str, ""),
    )
    given.done()
    return found


def _losses(given: Section, only: tuple[str, ...], protocols: dict[str, ProtocolSpec]) -> dict[str, str]:
    """Read the loss under each protocol: one text for all, or one per protocol."""
    texts = given.take("loss", (str, dict), {})
    by_protocol = texts if isinstance(texts, dict) else dict.fromkeys(only, texts)
    for protocol, text in by_protocol.items():
        _check_protocol(given, f"loss.{protocol}", protocol, protocols)
        try:
            check_expression(text, vocabulary.LOSSES)
        except ValueError as error:
            raise given.error(f"loss.{protocol}", str(error)) from error
    return by_protocol


def _merged(layers: tuple[dict[str, Any], ...], protocol: str, protocols: dict[str, ProtocolSpec]) -> dict[str, Any]:
    """Merge the settings of several layers; in each, those of this protocol override those of all protocols."""
    merged: dict[str, Any] = {}
    for layer in layers:
        merged |= {key: value for key, value in layer.items() if key not in protocols}
        merged |= layer.get(protocol, {})
    return merged


def _check_names(usual: Section, protocols: dict[str, ProtocolSpec]) -> None:
    """Report misspelt keys of [training] there, and not under the first row that uses them."""
    usual.asked = [*(field.name for field in fields(TrainingSpec)), *protocols]
    usual.given = {key: value for key, value in usual.whole.items() if key not in usual.asked}
    usual.done()


def _check_protocol(given: Section, key: str, protocol: str, protocols: dict[str, ProtocolSpec]) -> None:
    if protocol not in protocols:
        raise given.error(key, f"there is no protocol {protocol!r}; there are {', '.join(protocols)}")


def _check_class_weight(text: str) -> None:
    if text != "balanced":
        raise InvalidValueError(f"should be 'balanced', got {text!r}")


def _check_rate(lr: float) -> None:
    if not 0 < lr < float("inf"):
        raise InvalidValueError(f"should be above 0, got {lr}")


def _training(row: Section, settings: dict[str, Any]) -> TrainingSpec:
    given = Section(row.file, f"{row.path}.training", settings)
    found = TrainingSpec(
        network=given.checked("network", str, lambda text: check_expression(text, vocabulary.NETWORKS)),
        optimizer=given.checked("optimizer", str, lambda text: check_expression(text, vocabulary.OPTIMIZERS), "Adam"),
        lr=given.checked("lr", float, _check_rate),
        batch_size=at_least(given, "batch_size", least=0),
        epochs=at_least(given, "epochs"),
        patience=at_least(given, "patience", 0, least=0),
        monitor=given.take("monitor", str, "loss"),
        precision=given.one_of("precision", ["bf16-mixed"]) if "precision" in settings else None,
    )
    given.done()
    return found


def at_least(section: Section, key: str, default: Any = None, least: int = 1) -> int:
    """Take a whole number that is at least ``least``."""
    value: int = section.take(key, int) if default is None else section.take(key, int, default)
    if value < least:
        raise section.error(key, f"should be at least {least}, got {value}")
    return value


def check_decided(text: str) -> None:
    """Refuse a text that is no way of making decisions."""
    if text in (MEAN, HALF, UNCONSTRAINED):
        return
    if not text.startswith(TUNED):
        raise InvalidValueError(f"should be {MEAN!r}, {HALF!r} or '{TUNED}METRIC', such as '{TUNED}f1'; got {text!r}")
    get_metric(text.removeprefix(TUNED))
