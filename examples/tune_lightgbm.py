"""Tune your own LightGBM with Optuna, judged by the metric and at the decision that you will use.

    pip install optuna
    python examples/tune_lightgbm.py

Every trial is a `TunedDecisionClassifier` around LightGBM: parameters are compared at their best decisions, and not at
the threshold 0.5, which favours parameters that shift probabilities. Rows that judge the winner had no part in tuning.
"""

from __future__ import annotations

import sys

import optuna
from lightgbm import LGBMClassifier
from sklearn.datasets import load_diabetes
from sklearn.model_selection import cross_val_score, train_test_split

from metricfit import TunedDecisionClassifier, scorer

METRIC = "fbeta(beta=2)"


def decided(parameters: dict[str, float]) -> TunedDecisionClassifier:
    """Return LightGBM with these parameters and a decision for the metric."""
    model = LGBMClassifier(**parameters, n_jobs=1, random_state=0, verbose=-1)
    return TunedDecisionClassifier(model, METRIC, cv=3, random_state=0)


def main(trials: int = 20) -> tuple[optuna.Study, float]:
    """Tune, fit the winner on the training rows, and judge it on the others."""
    X, progression = load_diabetes(return_X_y=True, as_frame=True)
    y = (progression > progression.quantile(0.85)).astype(int)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=0)

    def objective(trial: optuna.Trial) -> float:
        parameters = {
            "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.3, log=True),
            "num_leaves": trial.suggest_int("num_leaves", 3, 31),
            "min_child_samples": trial.suggest_int("min_child_samples", 3, 30),
            "n_estimators": trial.suggest_int("n_estimators", 20, 100),
        }
        return float(cross_val_score(decided(parameters), X, y, scoring=scorer(METRIC), cv=3).mean())

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    study.optimize(objective, n_trials=trials)
    value = float(scorer(METRIC)(decided(study.best_params).fit(X, y), X_test, y_test))
    print(f"{METRIC} {study.best_value:.3f} in tuning, {value:.3f} on other rows, with {study.best_params}")
    return study, value


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
