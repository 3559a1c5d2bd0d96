"""Random calls of the losses: any task, metric, step, type, batch and weight, sensible or extreme, sometimes wrong."""

import copy
import itertools
import math
import random
import warnings
from dataclasses import dataclass, field

import torch

import metricfit
from metricfit import (
    AugmentedLagrangian,
    MetricLoss,
    RankingConstraint,
    RunningCounts,
    SurrogateFBetaLoss,
    losses,
    metrics,
    steps,
)
from metricfit.constraints import RequirementConstraint
from metricfit.losses.cross_entropy import WeightedCrossEntropyLoss
from metricfit.losses.ranking import PartialAUCLoss
from metricfit.losses.surrogate import SurrogateTverskyLoss

OURS = getattr(metricfit, "MetricfitError", ValueError)

METRICS = [name for name in metrics.names() if name not in ("fbeta", "tversky", "cost", "cost_matrix")] + [
    "fbeta(beta=2)",
    "fbeta(beta=10)",
    "fbeta(beta=0)",
    "fbeta(beta=1e20)",
    "fbeta(beta=inf)",
    "tversky(0.3, 0.7)",
    "tversky(0, 1e20)",
    "cost(fp=1, fn=10)",
    "cost(fp=1e6, fn=0)",
    "cost_matrix",
    "weighted_kappa(power=0.5)",
]
THRESHOLDS = [1e-300, 1e-40, 1e-8, 1e-5, 0.1, 0.3, 0.5, 0.7, 0.9, 1 - 1e-5, 1 - 1e-8, 1 - 2**-53]
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float32, torch.float64]
SHAPES = {
    "binary": ["(n,)", "(n, 1)"],
    "multilabel": ["(n, 3)"],
    "multiclass": ["(n, 2)", "(n, 3)", "(n, 11)"],
    "images": ["(n, 3, 2, 2)", "(n, 1, 2, 2)"],
}


@dataclass
class Call:
    """A loss with its input; ``wrong`` says what is wrong with it, if anything is."""

    loss: torch.nn.Module
    logits: torch.Tensor
    target: torch.Tensor
    weight: torch.Tensor | None
    wrong: str = ""
    settings: dict = field(default_factory=dict)

    def __str__(self):
        inputs = f"{self.logits!r}, {self.target!r}, weight={self.weight!r}, {self.settings}"
        return f"{self.loss!r}({inputs}) wrong={self.wrong!r}"

    def run(self):
        """Call the loss and its backward pass, and return what is wrong with the outcome, or None."""
        x = self.logits.detach().clone().requires_grad_()
        self.before = copy.deepcopy(self.loss)  # a loss with a memory or multipliers changes with every call
        try:
            value = self.loss(x, self.target, **self._weights(), **self.settings)
            value.sum().backward()
            if isinstance(self.loss, AugmentedLagrangian):
                self.loss.update()
        except (ValueError, TypeError, OURS) as error:
            # A drawn row of shares of labels may sum to 1, which can be read as shares of classes.
            expected = self.wrong or any(words in str(error) for words in ("overflow", "can be read as multiclass"))
            return None if expected else f"refused: {type(error).__name__}: {error}"
        except Exception as error:  # which is what is looked for
            return f"raised {type(error).__name__}: {error}"
        if not value.isfinite().all():
            return f"value {value}"
        if x.grad is None:
            return "no gradient"
        if not x.grad.isfinite().all() and not self._exceeds_half(x):
            return f"gradient {x.grad}"
        return self._outside(value)

    def _weights(self):
        return {} if self.weight is None else {"weight": self.weight}

    def _exceeds_half(self, x):
        """Whether the gradient is finite, but too large for float16 to hold."""
        if x.dtype != torch.float16:
            return False
        wide = x.detach().float().requires_grad_()
        self.before(wide, self.target, **self._weights(), **self.settings).sum().backward()
        return bool(wide.grad.isfinite().all() and (wide.grad.abs().max() > 65504))

    def _outside(self, value):
        if isinstance(self.loss, MetricLoss):
            low, high = self.loss.metric.bounds
            if not self.loss.metric.minimize:
                low, high = 1 - high, 1 - low
        elif isinstance(self.loss, AugmentedLagrangian | losses.Mix | SurrogateFBetaLoss | SurrogateTverskyLoss):
            return None
        else:
            low, high = 0.0, math.inf
        slack = getattr(self.loss, "tol", 1e-5) * max(1.0, abs(high) if math.isfinite(high) else 1.0)
        if float(value.detach().min()) < low - slack or float(value.detach().max()) > high + slack:
            return f"value {value} outside {low} to {high}"
        return None


def calls(seed, count):
    """Return an iterator over random calls, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        torch.manual_seed(rng.getrandbits(32))
        yield make_call(rng)


def make_call(rng):
    task = rng.choice(["binary", "binary", "multilabel", "multiclass", "multiclass", "images"])
    n = rng.choice([0, 1, 1, 2, 3, 5, 17])
    shape = tuple(n if size == "n" else int(size) for size in rng.choice(SHAPES[task]).strip("(,)").split(", "))
    shape = tuple(size for size in shape if size != "")
    dtype = rng.choice(DTYPES)
    logits = make_logits(rng, shape, dtype)
    exclusive = task == "multiclass" or (task == "images" and shape[1] > 1)
    target = make_target(rng, shape, exclusive)
    weight = make_weight(rng, n)
    call = Call(make_loss(rng, task, exclusive, n, shape), logits, target, weight)
    if any(isinstance(part, RankingConstraint) for part in call.loss.modules()):
        call.settings["index"] = torch.arange(n)
    if rng.random() < 0.1:
        spoil(rng, call, exclusive)
    return call


def make_logits(rng, shape, dtype):
    largest = torch.finfo(torch.float16).max
    kind = rng.choice(["normal", "normal", "wide", "signs", "equal", "mixed", "one far"])
    noise = torch.randn(shape, dtype=torch.float64)
    if kind == "normal":
        x = noise * rng.choice([0.1, 1.0, 3.0])
    elif kind == "wide":
        x = noise * rng.choice([10.0, 30.0, 100.0])
    elif kind == "signs":
        x = noise.sign() * rng.choice([3.0, 17.0, 60.0, 93.0, 100.0, 1e4, largest])
    elif kind == "equal":
        x = torch.full(shape, rng.choice([0.0, 1.0, -1.0, 100.0, -100.0, 1e4, -1e4, largest, -largest]))
    elif kind == "mixed":
        sizes = torch.tensor([1.0, 60.0, 95.0, 104.0, 1e4, largest], dtype=torch.float64)
        x = noise.sign() * sizes[torch.randint(0, len(sizes), shape)]
    else:
        x = noise.clone()
        if x.numel():
            x.view(-1)[0] = rng.choice([-1.0, 1.0]) * rng.choice([90.0, 1e4, largest])
    return x.to(dtype)


def make_target(rng, shape, exclusive):
    if exclusive:
        labels = shape[:1] + shape[2:]
        kind = rng.choice(["random", "random", "one", "two"])
        if kind == "one":
            return torch.full(labels, rng.randrange(shape[1]))
        return torch.randint(0, 2 if kind == "two" else shape[1], labels)
    kind = rng.choice(["random", "random", "rare", "zeros", "ones", "soft"])
    if kind == "soft":
        return torch.rand(shape)
    if kind in ("zeros", "ones"):
        return torch.full(shape, float(kind == "ones"))
    return (torch.rand(shape) < (0.1 if kind == "rare" else 0.5)).to(rng.choice([torch.long, torch.float32]))


def make_weight(rng, n):
    kind = rng.choice([None, None, None, "ones", "zeros", "uniform", "subnormal", "small", "large", "mixed"])
    if kind is None:
        return None
    if kind == "uniform":
        return torch.rand(n)
    if kind == "mixed":
        sizes = torch.tensor([0.0, 1e-45, 1e-40, 1e-20, 1.0, 1e6])
        return sizes[torch.randint(0, len(sizes), (n,))]
    return torch.full((n,), {"ones": 1.0, "zeros": 0.0, "subnormal": 1e-40, "small": 1e-20, "large": 1e10}[kind])


def make_step(rng):
    made = [
        lambda: None,
        lambda: steps.Linear(rng.choice([1e-6, 0.01, 0.1, 0.25, 0.3, 0.49])),
        lambda: steps.Sigmoid(k=rng.choice([1.0, 10.0, 73.0, 200.0, 1e4, 1e6])),
        steps.Identity,
        lambda: steps.RaisedCosine(rng.choice([1e-6, 0.01, 0.1, 1.0, 1e3])),
        lambda: steps.StraightThrough(steps.Sigmoid(k=rng.choice([5.0, 200.0]))),
        lambda: annealed(steps.Identity(), steps.Sigmoid(k=50), rng.random()),
        lambda: annealed(steps.Linear(), steps.RaisedCosine(), rng.choice([0.0, 1.0])),
    ]
    return rng.choice(made)()


def annealed(start, end, fraction):
    step = steps.Annealed(start, end)
    step.advance(fraction)
    return step


def make_threshold(rng, exclusive, labels):
    kind = rng.choice(["default", "default", "number", "number", "several", "tensor"])
    if kind == "default":
        return rng.choice([None, "dynamic"]) if exclusive else None
    if kind == "number":
        return rng.choice(THRESHOLDS)
    if kind == "several":
        several = rng.sample(THRESHOLDS, rng.choice([1, 3]))
        if labels == len(several) > 1:  # a list could mean both
            return (metrics.PerLabel if several[0] < several[1] else metrics.ThresholdGrid)(several)
        return several
    return torch.tensor(rng.choice(THRESHOLDS[2:-2]))


def choose_metric(rng, names, task, exclusive, shape):
    """Return a metric that the task has; only exclusive classes have a confusion matrix, and costs of their number."""
    name = rng.choice(names)
    if task == "multilabel" and name.startswith(("cost_matrix", "weighted_kappa")):
        name = "kappa"
    if name == "cost_matrix":
        classes = shape[1] if exclusive else 2
        return metrics.cost_matrix([[rng.choice([0, 1, 1e6]) for _ in range(classes)] for _ in range(classes)])
    return metrics.get_metric(name)


def make_metric_loss(rng, task, exclusive, shape):
    metric = choose_metric(rng, METRICS, task, exclusive, shape)
    if not metric.whole_matrix and not (exclusive or task == "multilabel") and rng.random() < 0.05:
        metric = metric[0]
    per_image = len(shape) == 4 and rng.random() < 0.3
    average = rng.choice(["macro", "macro", "micro", "weighted", None])
    has_classes = len(shape) > 1 and shape[1] > 1 and not metric.whole_matrix and metric.class_index is None
    return MetricLoss(
        metric,
        classes=rng.sample(range(shape[1]), rng.choice([1, 2])) if has_classes and rng.random() < 0.2 else None,
        zero_division=rng.choice(["skip"] if metric.whole_matrix else [0, 1, "skip"]) if rng.random() < 0.3 else None,
        step=make_step(rng),
        threshold=make_threshold(rng, exclusive, shape[1] if task == "multilabel" else 1),
        average="macro" if metric.class_index is not None else average,
        per_image=per_image,
        memory=RunningCounts(0.9) if not per_image and rng.random() < 0.1 else None,
    )


def make_mean_loss(rng, exclusive, binary):
    """Return a loss that is a mean over samples or over pairs."""
    if exclusive:
        return WeightedCrossEntropyLoss()
    prior = rng.choice([0.001, 0.3, 0.999])
    beta = rng.choice([1e-8, 0.5, 1.0, 2.0, 1e8])
    made = [
        lambda: losses.WeightedBCELoss(rng.choice([0.0, 1.0, 100.0])),
        lambda: losses.EffectiveNumberBCELoss(rng.choice([0.0, 0.999]), (100, 3)),
        lambda: losses.FocalLoss(rng.choice([0.0, 0.5, 2.0, 20.0]), rng.random() < 0.5),
        lambda: losses.MarginLoss(rng.choice([0.0, 1.0, 100.0]), rng.random() < 0.5),
        losses.MAELoss,
        losses.MSFELoss,
        lambda: SurrogateFBetaLoss(beta, prior=prior, q=rng.choice([0.0, 1e-3, 0.5, 1.0]), balanced=rng.random() < 0.5),
        lambda: SurrogateTverskyLoss(0.3, 0.7, prior=prior),
        lambda: losses.PairHingeLoss(rng.choice([0.1, 1.0, 10.0]), rng.choice([1, 2, 3])),
        lambda: losses.WMWLoss(0.2, rng.choice([1, 2, 3])),
        lambda: PartialAUCLoss(rng.choice([0.0, 0.5, 0.95]), rng.choice([0.1, 1.0])),
        lambda: losses.AveragePrecisionLoss(rng.choice([0.1, 1.0, 10.0]), rng.choice([1, 2, 3])),
        lambda: losses.PairSquareLoss(),
        losses.MBAUCLoss,
        lambda: losses.ClassBalanced(losses.MAELoss(), prior) if binary else losses.MAELoss(),
        lambda: losses.SoftAUROCLoss(step=make_step(rng)),
        lambda: losses.SoftAUROCLoss(rng.sample(THRESHOLDS, 4)),
    ]
    return rng.choice(made)()


def make_constraint(rng, task, exclusive, n, shape):
    names = [name for name in METRICS if "cost" not in name]
    kind = rng.choice(["requirement", "requirement", "settings", "ranking", "function"])
    if kind == "function":
        return lambda logits, target: logits.float().tanh().mean() - 0.1
    if kind == "ranking":
        per = rng.choice(["positive", "negative", "pair"])
        columns = None if len(shape) == 1 or shape[1] == 1 else rng.choice([0, [0, 1]])
        size = None if per == "pair" else max(n, 1) * math.prod(shape[2:])
        return RankingConstraint(rng.choice([0.0, 1.0]), per, size, rng.random() < 0.5, classes=columns)
    metric = choose_metric(rng, names, task, exclusive, shape)
    text = f"{metric.name} {rng.choice(['>=', '<='])} {rng.choice([0.0, 0.5, 0.9, 1.0])}"
    if kind == "requirement":
        return text
    threshold = rng.choice([None, *THRESHOLDS])
    return RequirementConstraint(text, step=make_step(rng), threshold=threshold)


def make_loss(rng, task, exclusive, n, shape):
    kind = rng.choice(["metric", "metric", "metric", "mean", "mix", "lagrangian"])
    if kind == "metric":
        return make_metric_loss(rng, task, exclusive, shape)
    mean = make_mean_loss(rng, exclusive, task == "binary")
    if kind == "mean":
        return mean
    if kind == "mix":
        other = make_metric_loss(rng, task, exclusive, shape)
        if other.average is None:
            other.average = "macro"
        return losses.Mix((mean, 1.0), (other, rng.choice([-1.0, 0.0, 0.5])))
    constraints = [make_constraint(rng, task, exclusive, n, shape) for _ in range(rng.choice([1, 2]))]
    return AugmentedLagrangian(mean, constraints, mu=rng.choice([0.3, 100.0]))


def spoil(rng, call, exclusive):
    """Make one thing about the call wrong."""
    wrong = rng.choice(["length", "label", "weight", "negative weight", "type", "target axes", "logits axes", "index"])
    x, y, n = call.logits, call.target, len(call.logits)
    if wrong == "length":
        call.target = torch.cat([y, y[:1]]) if n else y.new_zeros((1, *y.shape[1:]))
    elif wrong == "label":
        if not n:
            return
        call.target = y.clone()
        call.target.view(-1)[0] = rng.choice([-1, -100, 11, 1000])
    elif wrong == "weight":
        call.weight = torch.ones(rng.choice([n + 1, 2 * n + 3]))
    elif wrong == "negative weight":
        if not n:
            return
        call.weight = torch.full((n,), rng.choice([-1.0, math.nan, math.inf]))
    elif wrong == "type":
        call.logits = x.detach()
        call.target = rng.choice([y.to(torch.complex64), y.tolist(), None])
    elif wrong == "target axes":
        call.target = rng.choice([y.unsqueeze(0), y.unsqueeze(-1).expand(*y.shape, 2)])
    elif wrong == "logits axes":
        call.logits = x.unsqueeze(0) if rng.random() < 0.5 else x.reshape(-1)[:1].reshape(()) if x.numel() else x
    elif "index" in call.settings:
        call.settings["index"] = rng.choice(
            [torch.arange(n + 1), torch.arange(n) + 1000, torch.rand(n), torch.zeros(n, 2, dtype=torch.long), [0]]
        )
    call.wrong = wrong


def failures(seed, count, most=20):
    """Run calls and return descriptions of those with a wrong outcome, at most ``most`` of them."""
    found = (
        (number, call, outcome)
        for number, call in enumerate(calls(seed, count))
        if (outcome := quietly(call)) is not None
    )
    return [
        f"call {number} of seed {seed}: {outcome}\n    {call}"
        for number, call, outcome in itertools.islice(found, most)
    ]


def quietly(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call.run()
