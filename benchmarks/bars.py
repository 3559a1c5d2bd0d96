"""Every bar: the speeds and the memory that metricfit promises, each defined here and nowhere else.

A bar compares one line of a measured table (``tables.py``) with another line of the same table, or with a fixed limit.
The table of ``make bench``, ``RESULTS.md`` and the tests all read this list. ``before`` is what was measured before the
code was redrawn around fewer modules.
What was tried for a bar that is missed is in ``tried.py``.
"""

from __future__ import annotations

from benchmarks.verdicts import MILLISECONDS, SECONDS, Bar, Unit

BINARY_BATCHES = (32, 256, 1_024, 4_096)
FIT_BATCHES = (1_024, 128)
SEGMENTATION_SHAPES = ((8, 4, 256, 256), (2, 20, 512, 512))
STEPS = ("Linear", "Sigmoid", "RaisedCosine", "Identity")

BCE, CROSS_ENTROPY, METRIC_LOSS, MONAI = "BCEWithLogitsLoss", "cross_entropy", 'MetricLoss("f1")', "MONAI DiceLoss"
MIX, LAGRANGIAN = "Mix with cross-entropy", "AugmentedLagrangian of cross-entropy, one requirement"


def _small_batches() -> list[Bar]:
    bars = []
    kinds = [(f"batch-{n}", f"a batch of {n:,}", BCE, 3.0, "2.3x") for n in BINARY_BATCHES]
    kinds += [
        ("batch-256x10", "multiclass, 256 x 10", CROSS_ENTROPY, 3.5, "3.0x"),
        ("batch-256x20", "multilabel, 256 x 20", BCE, 3.5, "2.8x"),
    ]
    for name, size, baseline, limit, before in kinds:
        bars += [
            Bar(name, f"{METRIC_LOSS} v {baseline}, {size}, CPU", name, METRIC_LOSS, limit, baseline, before=before),
            Bar(f"{name}-mix", f"{MIX} v {METRIC_LOSS}, {size}, CPU", name, MIX, 1.5, METRIC_LOSS),
            Bar(
                f"{name}-lagrangian",
                f"{LAGRANGIAN}, v {METRIC_LOSS}, {size}, CPU",
                name,
                LAGRANGIAN,
                2.0,
                METRIC_LOSS,
            ),
        ]
    name = "batch-4096-gpu"
    return [
        *bars,
        Bar(name, f"{METRIC_LOSS} v {BCE}, a batch of 4,096, GPU, eager", name, METRIC_LOSS, 2.5, BCE, before="1.33x"),
    ]


def _binary() -> list[Bar]:
    work, compiled = f"{METRIC_LOSS} v {BCE}", f"{METRIC_LOSS}, compiled"
    cpu, gpu = f"{work}, 2^20 logits, CPU", f"{work}, 2^28 logits, GPU"
    return [
        Bar("binary-cpu-eager", f"{cpu}, both eager", "binary-cpu", METRIC_LOSS, 1.4, BCE, before="1.11x"),
        Bar(
            "binary-cpu-compiled",
            f"{cpu}, both compiled",
            "binary-cpu",
            compiled,
            1.3,
            f"{BCE}, compiled",
            before="0.90x",
        ),
        Bar(
            "binary-gpu-eager",
            f"{gpu}, both eager",
            "binary-gpu",
            METRIC_LOSS,
            0.33,
            BCE,
            before="0.26x",
        ),
        Bar(
            "binary-gpu-compiled",
            f"{gpu}, ours compiled, BCE eager",
            "binary-gpu",
            compiled,
            0.33,
            BCE,
            before="0.24x",
        ),
    ]


def _classes() -> list[Bar]:
    work = f"multiclass {METRIC_LOSS} v {CROSS_ENTROPY}, 65,536 x 1,000"
    cpu, gpu, compiled = "multiclass-cpu", "multiclass-gpu", f"{METRIC_LOSS}, compiled"
    bars = [
        Bar(
            "multiclass-gpu-eager",
            f"{work}, GPU, both eager",
            gpu,
            METRIC_LOSS,
            1.5,
            CROSS_ENTROPY,
            before="0.96x",
        ),
        Bar(
            "multiclass-gpu-compiled",
            f"{work}, GPU, ours compiled, theirs eager",
            gpu,
            compiled,
            1.6,
            CROSS_ENTROPY,
            before="1.24x",
        ),
        Bar("multiclass-cpu-time", f"{work}, CPU", cpu, METRIC_LOSS, 1.5, CROSS_ENTROPY, before="1.33x"),
        Bar(
            "multiclass-cpu-memory",
            f"{work}, CPU: peak memory",
            cpu,
            METRIC_LOSS,
            1.0,
            CROSS_ENTROPY,
            quantity="bytes",
            before="0.68x",
        ),
    ]
    for shape in SEGMENTATION_SHAPES:
        size = " x ".join(map(str, shape))
        name = f"segmentation-{'x'.join(map(str, shape))}"
        for step, limit, before in (("Identity", 1.3, "1.1x"), ("Linear", 4.0, "3.0x")):
            work, ours = f"{METRIC_LOSS}, {step} v {MONAI}, {size}", f"{METRIC_LOSS}, {step}"
            before = before if shape == SEGMENTATION_SHAPES[0] else ""
            bars.append(
                Bar(
                    f"{name}-cpu-{step.lower()}",
                    f"{work}, CPU",
                    f"{name}-cpu",
                    ours,
                    limit,
                    MONAI,
                    before=before,
                )
            )
        for step in STEPS:
            work, ours = f"{METRIC_LOSS}, {step} v {MONAI}, {size}", f"{METRIC_LOSS}, {step}"
            bars.append(Bar(f"{name}-gpu-{step.lower()}", f"{work}, GPU", f"{name}-gpu", ours, 0.8, MONAI))
    return bars


def _pairs() -> list[Bar]:
    ours, many = "PairHingeLoss", "10,000,000 samples"
    bytes_per_sample = Unit(" B per sample", 1e7)
    return [
        Bar(
            "pairs-gpu-few",
            f"{ours}, 10^4 samples, GPU",
            "pairs-gpu",
            "10,000 samples",
            0.6,
            unit=MILLISECONDS,
            before="0.38 ms",
        ),
        Bar(
            "pairs-gpu-many",
            f"{ours}, 10^7 samples, GPU",
            "pairs-gpu",
            many,
            4.0,
            unit=MILLISECONDS,
            before="2.6 ms",
        ),
        Bar(
            "pairs-gpu-memory",
            f"{ours}, 10^7 samples, GPU: peak memory",
            "pairs-gpu",
            many,
            100.0,
            quantity="bytes",
            unit=bytes_per_sample,
            before="52 B",
        ),
        Bar(
            "pairs-cpu",
            f"{ours} v all pairs, 40,000 samples, CPU",
            "pairs-cpu",
            ours,
            300.0,
            "all pairs, plain torch",
            at_least=True,
            before="408x",
        ),
    ]


def _thresholds() -> list[Bar]:
    work, ours, sort = "best_threshold over all thresholds v the sort, 10^6 scores", "best_threshold", "torch.sort"
    return [
        Bar("threshold-cpu", f"{work}, CPU", "threshold-cpu", ours, 1.5, sort, before="1.15x"),
        Bar("threshold-arrays", f"{work}, NumPy", "threshold-arrays", ours, 1.5, "numpy.argsort"),
        Bar("threshold-gpu", f"{work}, GPU", "threshold-gpu", ours, 3.3, sort, before="2.5x"),
    ]


def _pointwise() -> list[Bar]:
    bars = []
    for table, size in (("256", "256 logits, CPU"), ("cpu", "2^20 logits, CPU"), ("gpu", "2^28 logits, GPU")):
        for ours, before in (("FocalLoss", "0.64x"), ("WeightedBCELoss", "1.05x")):
            name, plain, measured = f"{ours.lower()}-{table}", f"{ours}, plain torch", f"pointwise-{table}"
            work, before = f"{ours} v the same in plain torch, {size}", before if table == "cpu" else ""
            limit = 1.0 if table == "gpu" else 1.05
            bars.append(Bar(name, work, measured, ours, limit, plain, before=before))
            if table != "256":
                name, work = f"{name}-memory", f"{work}: peak memory"
                bars.append(Bar(name, work, measured, ours, 1.0, plain, quantity="bytes"))
    return bars


def _training() -> list[Bar]:
    bars = []
    for batch in FIT_BATCHES:
        before = "1.08x" if batch == FIT_BATCHES[0] else ""
        bars.append(
            Bar(
                f"fit-{batch}",
                f"fit v a loop by hand, a small MLP, batches of {batch:,}, CPU",
                f"fit-{batch}",
                "fit",
                1.15,
                "a loop by hand",
                before=before,
            )
        )
    for peer in ("skorch", "Lightning"):
        bars.append(
            Bar(
                f"fit-{peer.lower()}",
                f"fit v {peer}, the same, batches of 1,024, CPU",
                "fit-1024",
                "fit",
                4.0,
                peer,
                at_least=True,
            )
        )
    trials, row = "10 stacked trials v 10 in a row, a small MLP", "10 in a row"
    return [
        *bars,
        Bar(
            "population-cpu",
            f"{trials}, CPU",
            "population-cpu",
            "10 stacked",
            2.0,
            row,
            at_least=True,
            before="2.62x",
        ),
    ]


def _estimator() -> list[Bar]:
    work = "MetricClassifier's default"
    sizes = (
        (1_500, 8, 5, "3.4 s"),
        (3_000, 14, 8, "5.2 s"),
        (48_842, 14, 30, "19.8 s"),
        (284_807, 30, 200, "152 s"),
    )
    return [
        *(
            Bar(
                f"classifier-{rows}",
                f"{work}, {rows:,} x {columns}, 2 cores",
                f"classifier-{rows}",
                "fit",
                limit,
                unit=SECONDS,
                before=before,
            )
            for rows, columns, limit, before in sizes
        ),
        Bar(
            "compare",
            "compare's default, 1,484 x 8, 2 cores",
            "compare",
            "compare",
            30,
            unit=SECONDS,
            before="79 s",
        ),
    ]


def _compilation() -> list[Bar]:
    losses = (METRIC_LOSS, 'MetricLoss("mcc")', f"{METRIC_LOSS}, multiclass", "FocalLoss", "PairHingeLoss")
    work = "torch.compile of {} with an empty cache, CPU, processor seconds"
    return [Bar(f"compile-{loss}", work.format(loss), "compilation", loss, 5, unit=SECONDS) for loss in losses]


def _starting() -> list[Bar]:
    tuned, libraries = "TunedDecisionClassifier", "the libraries for tables"
    work = f"import of {tuned} v NumPy, SciPy, pandas, scikit-learn and LightGBM"
    return [
        Bar("import-seconds", f"{work}, processor seconds", "imports", tuned, 1.3, libraries, before="2.7x"),
        Bar("import-memory", f"{work}, memory", "imports", tuned, 1.2, libraries, quantity="bytes", before="2.0x"),
        *(
            Bar(f"command-{name}", f"metricfit {command}", "commands", command, 0.5, unit=SECONDS, before=before)
            for name, command, before in (("help", "fit --help", "7.6 s"), ("metrics", "metrics", "7.6 s"))
        ),
    ]


#: Bars by what they are about, in the order of the page.
GROUPS = {
    "Small batches": _small_batches(),
    "Two classes": _binary(),
    "Several classes, and segmentation": _classes(),
    "Pairs": _pairs(),
    "Thresholds": _thresholds(),
    "Pointwise losses": _pointwise(),
    "Training": _training(),
    "Tables": _estimator(),
    "Starting": _starting(),
    "Compilation": _compilation(),
}
BARS = tuple(bar for bars in GROUPS.values() for bar in bars)
