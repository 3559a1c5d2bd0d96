"""Draw how cost grows, and fill in the tables of docs/evidence/speed.md: docs/img/cost-growth-*.svg.

The numbers come from benchmarks/results/growth, which ``benchmarks.growth`` and ``benchmarks.growth_processes``
measure. Every picture carries a digest of them, by which a test sees that it is up to date.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from growth_network import AHEAD, DESCRIBED, SENT, seconds_of_message
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from page import BLUE, DOCS, GREEN, GREY, ORANGE, PURPLE, RED, fill, plt, save, table

PAGE = "evidence/speed.md"
RESULTS = DOCS.parent / "benchmarks" / "results" / "growth"
DEVICES = {"cpu": "CPU", "h200": "H200"}
OURS, BCE, PAIRS = 'MetricLoss("f1")', "BCEWithLogitsLoss", "PairHingeLoss"
STYLES: dict[str, tuple[str, str]] = {
    BCE: (GREY, "-"),
    "cross_entropy": (GREY, "-"),
    OURS: (BLUE, "-"),
    "FocalLoss": (ORANGE, "-"),
    "focal loss, plain torch": (ORANGE, ":"),
    "soft Dice, plain torch": (GREEN, ":"),
    PAIRS: (RED, "-"),
    "all pairs, plain torch": (RED, ":"),
    "best_threshold": (PURPLE, "-"),
    "torch.sort": (PURPLE, ":"),
}
TABLE_SAMPLES = tuple(10**power for power in (2, 4, 6, 8, 9))
TABLE_CLASSES = (10, 1_000, 10_000)
PROCESSES = (2, 8, 64, 512, 4_096, 32_768)
GRADIENT_BYTES = 100_000_000  # of 25 million weights in float32
AXES = {"samples": "samples", "multiclass": "classes", "multilabel": "classes"}
LIMITS = {"samples": (60, 1.7e9), "multiclass": (0.7, 1.5e4), "multilabel": (0.7, 1.5e4)}

Points = Sequence[Mapping[str, Any]]


def read() -> dict[str, Any]:
    """The results by name; a machine that was not measured is missing."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}


def digest(results: Mapping[str, Any]) -> str:
    return "numbers " + hashlib.sha256(json.dumps(results, sort_keys=True).encode()).hexdigest()


def points_of(results: Mapping[str, Any], device: str, axis: str) -> Points:
    return [point for point in results.get(device, {}).get("points", ()) if point["axis"] == axis]


def per_sample(point: Mapping[str, Any], quantity: str) -> float:
    """Nanoseconds or bytes per sample."""
    return float(point[quantity]) / point["samples"] * (1e9 if quantity == "seconds" else 1.0)


# The pictures.


def draw_lines(axes: Axes, points: Points, axis: str, quantity: str) -> None:
    """One line per loss over the numbers of samples or classes."""
    for name, (colour, style) in STYLES.items():
        line = [p for p in points if p["loss"] == name and p[quantity]]
        if line:
            x, y = [p[AXES[axis]] for p in line], [per_sample(p, quantity) for p in line]
            axes.plot(x, y, style, color=colour, marker="o", markersize=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel=AXES[axis], xlim=LIMITS[axis])
    if not points:
        axes.text(0.5, 0.5, "not measured", ha="center", transform=axes.transAxes)


def draw_pair(results: Mapping[str, Any], name: str, axis: str, quantity: str, unit: str) -> None:
    """The CPU beside the H200."""
    figure, panels = _panels(1, 2, (9.6, 4.9))
    for axes, (device, title) in zip(panels, DEVICES.items(), strict=True):
        draw_lines(axes, points_of(results, device, axis), axis, quantity)
        axes.set_title(title)
    panels[0].set_ylabel(unit)
    _add_legend(figure, panels)
    save(figure, name, description=digest(results))


def draw_classes(results: Mapping[str, Any]) -> None:
    """Time above, memory below; exclusive classes and labels that do not exclude each other on each machine."""
    figure, panels = _panels(2, 4, (11.6, 6.6))
    for row, (quantity, unit) in enumerate((("seconds", "ns per sample"), ("bytes", "bytes per sample"))):
        columns = [(device, axis) for device in DEVICES for axis in ("multiclass", "multilabel")]
        for axes, (device, axis) in zip(panels[4 * row : 4 * row + 4], columns, strict=True):
            draw_lines(axes, points_of(results, device, axis), axis, quantity)
            kind = "classes" if axis == "multiclass" else "labels"
            axes.set(xlabel=kind if row else "", title="" if row else f"{DEVICES[device]}, {kind}")
        panels[4 * row].set_ylabel(unit)
    _add_legend(figure, panels)
    save(figure, "cost-growth-classes", description=digest(results))


def draw_cluster(results: Mapping[str, Any]) -> None:
    """The time of one message by the number of processes, from the formulas."""
    figure, axes = plt.subplots(figsize=(7.4, 4.2))
    colours = (BLUE, GREEN, ORANGE, RED, GREY)
    for (name, (operation, size)), colour in zip(messages(results).items(), colours, strict=True):
        times = [1e3 * seconds_of_message(operation, size, p) for p in PROCESSES]
        axes.plot(PROCESSES, times, color=colour, marker="o", markersize=4, label=f"{name}: {_bytes(size)}")
    axes.set(xscale="log", yscale="log", xlabel="processes", ylabel="ms per message, on paper")
    axes.set_xticks(PROCESSES, [f"{p:,}" for p in PROCESSES])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.legend(fontsize=8)
    save(figure, "cost-growth-cluster", description=digest(results))


def _panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Panels that share the y axis of their row, over a row for the legend."""
    figure = plt.figure(figsize=size)
    grid = figure.add_gridspec(rows + 1, columns, height_ratios=[1.0] * rows + [0.16 * rows])
    panels: list[Axes] = []
    for row in range(rows):
        first = None
        for column in range(columns):
            panels.append(figure.add_subplot(grid[row, column], sharey=first))
            first = first or panels[-1]
            panels[-1].tick_params(labelleft=column == 0)
    figure.add_subplot(grid[rows, :]).axis("off")
    return figure, panels


def _add_legend(figure: Figure, panels: Sequence[Axes]) -> None:
    entries = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    names = [name for name in STYLES if name in entries]
    figure.axes[-1].legend([entries[name] for name in names], names, loc="center", ncols=5, fontsize=8)


# The tables.


def messages(results: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """The messages of the picture: what is sent by which operation, and the measured bytes of one process."""
    points = results["processes"]["points"]
    sent = {(p["loss"], p["samples"], p["classes"]): p["messages"] for p in points}
    of_classes = {c: sent[(OURS, n, c)][0] for (loss, n, c) in sent if loss == OURS}
    return {
        "counts, two classes": tuple(of_classes[1]),
        "counts, 1,000 classes": tuple(of_classes[1_000]),
        "counts, 10,000 classes": tuple(of_classes[10_000]),
        "PairHingeLoss, 1,024 samples per process": tuple(max(sent[(PAIRS, 1_024, 1)], key=lambda message: message[1])),
        "gradient of 25 million weights": ("all_reduce", GRADIENT_BYTES),
    }


def samples_table(results: Mapping[str, Any], device: str, quantity: str) -> str:
    """Nanoseconds or bytes per sample of each loss at some numbers of samples."""
    points = points_of(results, device, "samples")
    measured = [n for n in TABLE_SAMPLES if any(p["samples"] == n for p in points)]
    rows = []
    for name in STYLES:
        found = {p["samples"]: p for p in points if p["loss"] == name}
        if found:
            rows.append([_name(name), *(_cell(found.get(n), quantity) for n in measured)])
    return table(["", *(f"{n:,}" for n in measured)], rows) if rows else "Not measured yet."


def classes_table(results: Mapping[str, Any], axis: str) -> str:
    """Nanoseconds per sample of each loss at some numbers of classes or labels, on both machines."""
    points = {device: points_of(results, device, axis) for device in DEVICES}
    columns = [(device, c) for device in DEVICES for c in TABLE_CLASSES]
    rows = []
    for name in STYLES:
        found = {(device, p["classes"]): p for device in DEVICES for p in points[device] if p["loss"] == name}
        if found:
            rows.append([_name(name), *(_cell(found.get(column), "seconds") for column in columns)])
    return table(["", *(f"{DEVICES[device]}, {c:,}" for device, c in columns)], rows)


def _name(loss: str) -> str:
    return loss if " " in loss else f"`{loss}`"


def _cell(point: Mapping[str, Any] | None, quantity: str) -> str:
    if point is None:
        return ""
    return point["reason"] if point["reason"] else _short(per_sample(point, quantity))


def processes_table(results: Mapping[str, Any]) -> str:
    """What one process sends per pass, and the time with and without it."""
    rows = []
    for point in results["processes"]["points"]:
        size = f"{point['samples']:,} samples" + (f" of {point['classes']:,} classes" if point["classes"] > 1 else "")
        sent = ", ".join(f"{_bytes(amount)} ({operation.replace('_', '-')})" for operation, amount in point["messages"])
        times = [f"{1e3 * point[key]:.2f} ms" for key in ("seconds_alone", "seconds")]
        rows.append([f"`{point['loss']}`, {size}", sent, *times])
    return table(["loss, per process", "sent by each process", "without messages", "with messages"], rows)


def cluster_table(results: Mapping[str, Any]) -> str:
    """The time of one message on large clusters, from the formulas."""
    rows = [
        [f"{name}, {_bytes(size)}", *(_milliseconds(seconds_of_message(operation, size, p)) for p in PROCESSES)]
        for name, (operation, size) in messages(results).items()
    ]
    return table(["message of each process", *(f"{p:,} processes" for p in PROCESSES)], rows)


def facts(results: Mapping[str, Any]) -> str:
    """The conclusions that are numbers: the fixed cost of a pass, and what each further sample costs."""
    lines = []
    for device, title in DEVICES.items():
        points = points_of(results, device, "samples")
        found = {name: [p for p in points if p["loss"] == name and p["seconds"]] for name in (OURS, BCE)}
        if not points:
            continue
        first, last = ({name: line[at] for name, line in found.items()} for at in (0, -1))
        fixed = [_milliseconds(first[name]["seconds"]) for name in (OURS, BCE)]
        each = [_short(per_sample(last[name], "seconds")) for name in (OURS, BCE)]
        held = [_short(per_sample(last[name], "bytes")) for name in (OURS, BCE)]
        largest = last[OURS]["samples"]
        flat = first[OURS]["seconds"] / (last[OURS]["seconds"] / largest)
        lines.append(
            f"- **{title}.** A pass of {first[OURS]['samples']:,} samples takes {fixed[0]} with `MetricLoss` and "
            f"{fixed[1]} with BCE: this is the fixed cost of a call. With {largest:,} samples each sample takes "
            f"{each[0]} ns and {held[0]} bytes ({each[1]} ns and {held[1]} bytes with BCE). The fixed cost of "
            f"`MetricLoss` equals the work of about {_round(flat)} samples."
        )
    return "\n".join(lines)


def provenance(results: Mapping[str, Any]) -> str:
    lines = []
    for name, found in results.items():
        versions = found["versions"]
        at = f", commit {found['commit']}" if found.get("commit") else ""
        lines.append(
            f"- `benchmarks/results/growth/{name}.json`: `{found['command']}` on {found['machine']}, torch "
            f"{versions['torch']}, {found['threads']} CPU threads{at}."
        )
    return "\n".join(lines)


def generated(results: Mapping[str, Any]) -> dict[str, str]:
    """What stands between the marks of the page."""
    return {
        "facts": facts(results),
        "time on the cpu": samples_table(results, "cpu", "seconds"),
        "time on the h200": samples_table(results, "h200", "seconds"),
        "memory on the cpu": samples_table(results, "cpu", "bytes"),
        "memory on the h200": samples_table(results, "h200", "bytes"),
        "classes": classes_table(results, "multiclass"),
        "labels": classes_table(results, "multilabel"),
        "processes": processes_table(results),
        "assumptions": f"{DESCRIBED} {SENT}\n\n{AHEAD}",
        "cluster": cluster_table(results),
        "provenance": provenance(results),
    }


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.2g} ms"


def _round(value: float) -> str:
    """One digit, because the number says no more than an order of magnitude."""
    return f"{int(float(f'{value:.0e}')):,}"


def _bytes(size: float) -> str:
    return next(f"{size / scale:,.3g} {unit}" for scale, unit in ((1e6, "MB"), (1e3, "kB"), (1, "B")) if size >= scale)


def main() -> None:
    results = read()
    for quantity, name, unit in (("seconds", "time", "ns per sample"), ("bytes", "memory", "bytes per sample")):
        draw_pair(results, f"cost-growth-{name}", "samples", quantity, unit)
    draw_classes(results)
    draw_cluster(results)
    for name, text in generated(results).items():
        fill(PAGE, name, text)


if __name__ == "__main__":
    main()
