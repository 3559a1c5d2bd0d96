"""AdversarialLoss against the game over all 2^n label vectors, a linear program for scipy, and against ap-perf."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from scipy.sparse import block_array, csr_array, eye_array, kron
from torch.func import grad, vmap

from metricfit import Counts, get_metric, metrics, parse_requirement
from metricfit.losses import Mix, WeightedBCELoss
from metricfit_papers import AdversarialLoss
from metricfit_papers.baselines import adversarial_game as games
from metricfit_papers.baselines.adversarial_loss import affine_in_tp

WITH_PARAMETERS = ["fbeta(beta=2)", "tversky(alpha=0.3,beta=0.7)", "cost(fp=1,fn=10)", "cost_matrix([[0,1],[10,0]])"]
FACTORIES = {"fbeta", "tversky", "cost", "cost_matrix"}
BENT_NAMES = {"gmean", "jaccard", "p4"}
AFFINE = [name for name in metrics.names() if name not in {*FACTORIES, *BENT_NAMES}] + WITH_PARAMETERS
BENT = [*sorted(BENT_NAMES), "tversky(alpha=0.3,beta=0.3)"]


def a_batch(n, seed, scale=0.4):
    generator = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=generator) < 0.4).long()
    return scale * (torch.randn(n, generator=generator, dtype=torch.float64) + 0.6 * y - 0.3), y


def values(metric, one_class=None):
    """The metric of every label vector (rows) against every other (columns), and the vectors."""

    def of(vectors):
        tp = vectors @ vectors.T
        k = vectors.sum(1)
        n = vectors.shape[1]
        cells = (tp, k[:, None] - tp, k[None, :] - tp, n - k[:, None] - k[None, :] + tp)
        value = metric(Counts(*(torch.as_tensor(cell, dtype=torch.float64).unsqueeze(-1) for cell in cells)))
        value = value.reshape(tp.shape).numpy().copy()
        if one_class is not None:
            value[0, 0] = value[-1, -1] = one_class
        return value

    return of


def minimum_of_linear_program(cost, A_ub, b_ub, A_eq, b_eq, nonnegative):
    """The minimum of cost x subject to A_ub x <= b_ub, A_eq x = b_eq and x >= 0 where it is asked for.

    The success that a solver claims depends on the machine, so the solution is checked instead: x is feasible,
    the dual solution is feasible, and both have the same value, which is then the minimum.
    """
    found = linprog(cost, A_ub, b_ub, A_eq, b_eq, bounds=[(0 if sign else None, None) for sign in nonnegative])
    of_inequalities, of_equalities = found.ineqlin.marginals, found.eqlin.marginals
    reduced_cost = cost - A_ub.T @ of_inequalities - A_eq.T @ of_equalities
    errors = {
        "inequalities": (A_ub @ found.x - b_ub).max(),
        "equalities": abs(A_eq @ found.x - b_eq).max(),
        "signs": -found.x[nonnegative].min(),
        "signs of the dual": of_inequalities.max(),
        "reduced costs": -reduced_cost[nonnegative].min(),
        "reduced costs of free variables": abs(reduced_cost[~nonnegative]).max(),
        "duality gap": abs(cost @ found.x - b_ub @ of_inequalities - b_eq @ of_equalities),
    }
    assert max(errors.values()) < 1e-6, errors  # the solver itself allows 1e-7
    return cost @ found.x


def game_over_all_vectors(x, y, metric, rules=(), one_class=None):
    """min over P of max over labels: a linear program in the predictor's 2^n probabilities."""
    vectors = np.array(list(itertools.product([0.0, 1.0], repeat=len(x))))
    value = values(metric, one_class)(vectors)
    loss = value if metric.minimize else 1 - value
    size = len(vectors)
    upper, bounds = [np.hstack([loss.T, -np.ones((size, 1))])], [-vectors @ x.numpy()]
    true = int(np.flatnonzero((vectors == y.numpy()).all(1))[0])
    for rule in rules:
        sign = -1.0 if rule.sense == ">=" else 1.0
        upper.append(np.append(sign * values(rule.metric)(vectors)[:, true], 0.0)[None])
        bounds.append([sign * rule.bound])
    minimum = minimum_of_linear_program(
        np.append(np.zeros(size), 1.0),
        np.vstack(upper),
        np.concatenate(bounds),
        np.append(np.ones(size), 0.0)[None],
        np.ones(1),
        nonnegative=np.arange(size + 1) < size,
    )
    return minimum - float(x @ y.double())


def game_over_marginals(x, y, metric):
    """The adversary's n^2 marginals as scipy's linear program, for batches that 2^n is too much for.

    min t - x q, t at least the largest value for each k: a sum of k largest, k lambda_k + sum_i max(0, . - lambda_k).
    """
    n = len(x)
    slope, offset = (table.numpy() for table in affine_in_tp(metric, n))
    sizes = np.arange(n + 1)
    # unknowns: q (n x n, sizes 1..n), r (n + 1), t, lambda (n), z (n x n)
    inner = slice(1, None)
    identity, ones = eye_array(n), np.ones((1, n))
    best = block_array(
        [
            [csr_array((1, n * n)), offset[:1], -np.ones((1, 1)), csr_array((1, n)), csr_array((1, n * n))],
            [None, offset[inner], -np.ones((n, 1)), np.diag(sizes[inner]), kron(ones, identity)],
            [kron(identity, slope[inner, inner]), None, None, -kron(np.ones((n, 1)), identity), -eye_array(n * n)],
            [eye_array(n * n), kron(np.ones((n, 1)), -eye_array(n + 1).tocsr()[inner]), None, None, None],
        ]
    )
    equal = block_array(
        [
            [kron(ones, identity), -csr_array(np.diag(sizes))[inner], csr_array((n, 1 + n + n * n))],
            [csr_array((1, n * n)), np.ones((1, n + 1)), csr_array((1, 1 + n + n * n))],
        ]
    )
    cost = np.concatenate([np.repeat(-x.numpy(), n), np.zeros(n + 1), [1.0], np.zeros(n + n * n)])
    free = slice(n * n + n + 1, n * n + 2 * n + 2)  # t and lambda
    nonnegative = np.ones(len(cost), dtype=bool)
    nonnegative[free] = False
    minimum = minimum_of_linear_program(
        cost, best, np.zeros(best.shape[0]), equal, np.append(np.zeros(n), 1.0), nonnegative
    )
    return 1 - minimum - float(x @ y.double())


def value_and_gradient(loss, x, y):
    x = x.clone().requires_grad_()
    value = loss(x, y)
    value.backward()
    return value.item(), x.grad


@pytest.mark.parametrize("name", AFFINE)
def test_equals_the_game_over_all_label_vectors(name):
    metric = get_metric(name)
    loss = AdversarialLoss(metric, tol=1e-7)
    for n, seed, scale in [(1, 0, 0.4), (2, 1, 0.4), (3, 2, 0.4), (5, 3, 0.1), (5, 4, 0.5), (5, 5, 3.0)]:
        x, y = a_batch(n, seed, scale)
        assert loss(x, y).item() == pytest.approx(game_over_all_vectors(x, y, metric), abs=1e-6)


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("one_class", [None, 1.0])
def test_a_batch_of_one_class(label, one_class):
    for name in ("f1", "specificity", "mcc"):
        metric = get_metric(name)
        x, _ = a_batch(5, 7)
        y = torch.full((5,), label)
        loss = AdversarialLoss(metric, one_class=one_class, tol=1e-7)
        assert loss(x, y).item() == pytest.approx(game_over_all_vectors(x, y, metric, (), one_class), abs=1e-6)


@pytest.mark.parametrize(
    ("objective", "rules"),
    [
        ("precision", ["recall >= 0.8"]),
        ("precision", ["recall >= 0.5", "specificity >= 0.7"]),
        ("accuracy", ["fpr <= 0.2"]),
        ("f1", ["precision >= 1"]),
    ],
)
def test_requirements_bind_the_predictor(objective, rules):
    metric, parsed = get_metric(objective), [parse_requirement(rule) for rule in rules]
    loss = AdversarialLoss(metric, subject_to=rules, tol=1e-6)
    free = AdversarialLoss(metric, tol=1e-6)
    bound = 0
    for seed in range(6):
        x, y = a_batch(5, seed, 0.5)
        if 0 < int(y.sum()) < 5:
            value = loss(x, y).item()
            assert value == pytest.approx(game_over_all_vectors(x, y, metric, parsed), abs=2e-6)
            bound += value > free(x, y).item() + 1e-3
    assert bound  # in some batch a requirement costs something


def test_a_requirement_that_needs_absent_samples_is_ignored():
    x, _ = a_batch(5, 0)
    y = torch.zeros(5)
    assert AdversarialLoss("accuracy", subject_to="recall >= 0.9")(x, y) == AdversarialLoss("accuracy")(x, y)


def test_a_requirement_that_the_labels_do_not_meet_is_refused():
    loss = AdversarialLoss("accuracy", subject_to=metrics.specificity <= 0.5)
    with pytest.raises(ValueError, match=r"even the true labels of this batch, 1 positives of 3, do not meet specif"):
        loss(torch.zeros(3), torch.tensor([1, 0, 0]))


@pytest.mark.parametrize("scale", [0.02, 0.1, 0.5, 3.0])
def test_equals_the_linear_program_over_marginals(scale):
    x, y = a_batch(20, 11, scale)
    for metric in (metrics.f1, metrics.kappa):
        loss = AdversarialLoss(metric, tol=1e-5)
        assert loss(x, y).item() == pytest.approx(game_over_marginals(x, y, metric), abs=1e-5)


def test_the_default_tolerance_holds_and_is_not_missed_by_far():
    """Small scores need many columns."""
    for seed in range(2):
        x, y = a_batch(30, seed, 0.06)
        exact = AdversarialLoss("f1", tol=1e-6)(x, y).item()
        assert exact - 1e-3 <= AdversarialLoss("f1")(x, y).item() <= exact + 1e-6


@pytest.mark.parametrize("rules", [None, "recall >= 0.7"])
@pytest.mark.parametrize("name", ["f1", "cost(fp=1,fn=4)", "mcc"])
def test_gradient_by_finite_differences(name, rules):
    loss = AdversarialLoss(name, subject_to=rules, tol=1e-9)
    x, y = a_batch(5, 3, 0.4)
    y[0] = 1
    _, gradient = value_and_gradient(loss, x, y)
    step = 1e-4
    for i in range(len(x)):
        nudge = torch.zeros_like(x)
        nudge[i] = step
        slope = (loss(x + nudge, y).item() - loss(x - nudge, y).item()) / (2 * step)
        assert slope == pytest.approx(gradient[i].item(), abs=1e-3)


def test_the_gradient_is_scaled_as_autograd_asks():
    x, y = a_batch(6, 1)
    _, once = value_and_gradient(AdversarialLoss("f1"), x, y)
    _, half = value_and_gradient(lambda *given: 0.5 * AdversarialLoss("f1")(*given), x, y)
    assert torch.equal(half, 0.5 * once)
    x = x.requires_grad_()
    Mix((AdversarialLoss("f1"), 0.5), (WeightedBCELoss(), 1.0))(x, y).backward()
    assert x.grad.isfinite().all()


def test_never_below_the_loss_of_the_decisions():
    """The adversary may play the true labels, so the loss is at least what the best prediction of them leaves: 0."""
    for seed in range(5):
        x, y = a_batch(10, seed, 1.0)
        assert AdversarialLoss("f1", one_class=1.0)(x, y) >= -1e-6
    far = torch.where(y == 1, 50.0, -50.0)
    value, gradient = value_and_gradient(AdversarialLoss("f1"), far, y)
    assert value == pytest.approx(0.0, abs=1e-3)
    assert gradient.abs().max() == 0


def test_huge_logits_are_right_too():
    x, y = a_batch(6, 2, 0.3)
    x[0], y[0], x[1], y[1] = 1e6, 0, -1e6, 1
    value, gradient = value_and_gradient(AdversarialLoss("f1", tol=1e-6), x, y)
    assert value == pytest.approx(game_over_all_vectors(x, y, metrics.f1), rel=1e-9, abs=1e-5)
    assert gradient[:2].tolist() == [1.0, -1.0]


def test_members_under_vmap_equal_separate_calls():
    loss = AdversarialLoss("f1")
    x = torch.stack([a_batch(7, seed)[0] for seed in range(3)])
    y = a_batch(7, 0)[1]
    together = vmap(grad(loss), in_dims=(0, None))(x, y)
    for row, gradient in zip(x, together, strict=True):
        assert torch.equal(value_and_gradient(loss, row, y)[1], gradient)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # PyTorch's, at a graph break
def test_a_compiled_function_breaks_its_graph_and_gives_the_same():
    loss = AdversarialLoss("f1")
    x, y = a_batch(7, 1)
    compiled = torch.compile(lambda given: loss(2 * given, y), backend="eager")
    value, gradient = value_and_gradient(lambda given, _: compiled(given), x, y)
    expected, by_hand = value_and_gradient(loss, 2 * x, y)
    assert value == expected
    assert torch.equal(gradient, 2 * by_hand)


def test_shapes_types_and_an_empty_batch():
    x, y = a_batch(6, 1)
    loss = AdversarialLoss("f1")
    value = loss(x.float(), y)
    assert value.dtype == torch.float32
    assert loss(x.float().unsqueeze(1), y.bool()) == value
    assert loss(x.bfloat16(), y).dtype == torch.float32
    assert loss(x[:0], y[:0]) == 0


@pytest.mark.parametrize("name", BENT)
def test_metrics_that_are_not_affine_are_refused(name):
    with pytest.raises(ValueError, match="is not affine in the true positives at fixed margins: with"):
        AdversarialLoss(name)
    with pytest.raises(ValueError, match="is not affine"):
        AdversarialLoss("f1", subject_to=get_metric(name) >= 0.5)


def test_a_user_defined_metric_is_tested_for_being_affine():
    x, y = a_batch(5, 4)
    own = AdversarialLoss(lambda c: (c.tp + c.tn) / c.n, tol=1e-6)
    assert own(x, y).item() == pytest.approx(AdversarialLoss("accuracy", tol=1e-6)(x, y).item(), abs=1e-5)
    slope, offset = affine_in_tp(metrics.mcc, 30)
    counts = Counts(tp=4.0, fp=6.0, fn=3.0, tn=17.0)
    assert slope[10, 7] * 4 + offset[10, 7] == pytest.approx(metrics.mcc(counts).item())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.zeros(3), torch.tensor([1, 0, 0]), torch.ones(3)), "takes no weights"),
        ((torch.zeros(3), torch.tensor([0.5, 0, 0])), "labels 0 or 1, got fractions"),
        ((torch.zeros(3, 2), torch.zeros(3, 2)), "is for binary logits"),
        ((torch.zeros(3, 2), torch.zeros(3, dtype=torch.long)), "is for binary or multilabel logits"),
        ((torch.tensor([0.0, float("nan")]), torch.tensor([0, 1])), "1 of 2 logits are NaN"),
        ((torch.tensor([0.0, float("inf")]), torch.tensor([0, 1])), "1 of 2 logits are infinite"),
    ],
)
def test_refused_inputs_are_explained(given, message):
    with pytest.raises(ValueError, match=message):
        AdversarialLoss("f1")(*given)


@pytest.mark.parametrize("tol", [0, 1.5, True, "fine"])
def test_tolerances_that_mean_nothing_are_refused(tol):
    with pytest.raises(ValueError, match="tol is how far the value may be off"):
        AdversarialLoss("f1", tol=tol)


def test_an_unsolved_game_raises_a_warning(monkeypatch):
    monkeypatch.setattr(games, "MAX_ROUNDS", 1)
    x, y = a_batch(25, 1, 0.1)
    with pytest.warns(RuntimeWarning, match=r"over 25 samples was solved to .* only, not to tol=1e-06"):
        AdversarialLoss("f1", tol=1e-6)(x, y)


def test_training_with_it_learns():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(60, 2, generator=generator)
    y = (features @ torch.tensor([1.0, -2.0]) > 1.0).long()
    model, loss = torch.nn.Linear(2, 1), AdversarialLoss("f1", one_class=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        for part in torch.randperm(60, generator=generator).split(20):
            optimizer.zero_grad()
            loss(model(features[part]), y[part]).backward()
            optimizer.step()
    assert metrics.f1(Counts.hard(model(features), y)) > 0.9


# What ap-perf 0.1.1 (numba 0.68.1) gave in an environment of its own, by
#   from ap_perf import PerformanceMetric
#   from ap_perf.common_metrics import f1_score, f2_score, accuracy_metric, kappa
#   objective, q = f1_score.objective(np.array(SCORES[6]), np.array(LABELS[6]), max_iter=1000)
# and for the last row, with max_iter=3000, of the class
#   class PrecisionGivenRecall(PerformanceMetric):
#       def define(self, C): return C.tp / C.pp
#       def constraint(self, C): return C.tp / C.ap >= 0.8
# after initialize(), enforce_special_case_positive() and set_cs_special_case_positive(True).
# ``loss`` is 1 - (objective + psi y) with the objective recomputed from the package's Q by its own matrices at
# max_iter=5000 (accuracy, 12 samples: 1000), because ``max_sumlargest`` adds up k - 1 of column k's largest where k are
# meant: what the package prints as its loss is off by up to 0.17, its Q and so its gradient are not.
SCORES = {
    6: [0.214, 0.496, 0.286, 0.539, -0.003, 0.075],
    12: [-0.322, -0.031, -0.121, 0.415, 0.237, 0.25, -0.072, 0.183, 0.072, -0.129, -0.039, -0.083],
}
LABELS = {6: [0, 1, 1, 1, 0, 0], 12: [1, 0, 1, 1, 1, 1, 0, 1, 0, 0, 1, 0]}
AP_PERF = [
    ("f1", None, 0.3502, [1, 1, 1, 1, 0.5161, 0.5205]),
    ("f1", None, 0.62636, [0, 0.4471, 0, 1, 1, 1, 0.3905, 1, 0.4524, 0, 0.4322, 0]),
    ("fbeta(beta=2)", None, 0.31556, [1, 1, 1, 1, 0.2126, 1]),
    ("fbeta(beta=2)", None, 0.61528, [0, 0.1698, 0.1353, 1, 1, 1, 0.1697, 1, 1, 0, 0.1698, 0.1697]),
    ("accuracy", None, 0.41666, [1, 1, 1, 1, 0.4944, 0.4944]),
    ("accuracy", None, 0.61137, [0, 0.4907, 0, 1, 1, 1, 0.4907, 1, 0.4907, 0, 0.4907, 0.4882]),
    ("kappa", None, None, [0, 0.6308, 0.6274, 1, 1, 1, 0.6308, 1, 0.6308, 0.6041, 0.6308, 0.6307]),
    ("precision", "recall >= 0.8", None, [1, 1, 1, 1, 0, 1]),
]


@pytest.mark.parametrize(("name", "rule", "value", "q"), AP_PERF)
def test_agrees_with_ap_perf(name, rule, value, q):
    """After 1000 steps its ADMM is off by 0.003 in the value, by 0.04 in a marginal; one_class=1 is its convention."""
    x = torch.tensor(SCORES[len(q)], dtype=torch.float64)
    y = torch.tensor(LABELS[len(q)])
    ours, gradient = value_and_gradient(AdversarialLoss(name, subject_to=rule, one_class=1.0, tol=1e-6), x, y)
    torch.testing.assert_close(gradient + y, torch.tensor(q, dtype=torch.float64), atol=0.045, rtol=0)
    if value is not None:
        assert value == pytest.approx(ours, abs=0.003)
        assert value < ours + 1e-6  # its adversary is not better than the best


@pytest.mark.parametrize("given", [math.nan, math.inf, "a"])
def test_the_value_of_one_class_is_a_finite_number(given):
    with pytest.raises(ValueError, match="one_class is the value of a batch of one class"):
        AdversarialLoss("f1", one_class=given)


def test_ignored_samples_are_left_out_of_the_game():
    logits = torch.tensor([0.6, 0.5, -0.9, 3.0], dtype=torch.float64, requires_grad=True)
    value = AdversarialLoss("f1", ignore_index=-1)(logits, torch.tensor([1, 0, 0, -1]))
    value.backward()
    torch.testing.assert_close(value, AdversarialLoss("f1")(logits[:3], torch.tensor([1, 0, 0])))
    assert logits.grad[3] == 0


def test_the_adversarial_game_refuses_equalities_and_gaps():
    for requirement in ("recall == 0.5", "recall.gap(2) <= 0.1"):
        with pytest.raises(ValueError, match="AugmentedLagrangian takes equalities and gaps"):
            AdversarialLoss("precision", subject_to=requirement)
