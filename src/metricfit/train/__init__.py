"""Training: fit, recipes and checkpoints. Needs the extra ``torch``."""

from metricfit._extras import explain_missing

with explain_missing(__name__, ("torch", "safetensors"), "metricfit[torch]"):
    from metricfit.errors import NotFiniteError
    from metricfit.train import recipes
    from metricfit.train.callbacks import Callback, Plan, ProgressBar, TensorBoard
    from metricfit.train.checkpoint.folder import CheckpointWarning
    from metricfit.train.data.batches import Batches
    from metricfit.train.engine.validation import UnmetRequirementWarning
    from metricfit.train.evaluation import Evaluation, evaluate
    from metricfit.train.fitting import fit
    from metricfit.train.monitor import Measured, Monitor
    from metricfit.train.prior import start_at_prior
    from metricfit.train.result import FitResult, History, RequirementResult
    from metricfit.train.settings import Checkpoints, Hardware, Steps
    from metricfit.train.stage import Stage

__all__ = [
    "Batches",
    "Callback",
    "CheckpointWarning",
    "Checkpoints",
    "Evaluation",
    "FitResult",
    "Hardware",
    "History",
    "Measured",
    "Monitor",
    "NotFiniteError",
    "Plan",
    "ProgressBar",
    "RequirementResult",
    "Stage",
    "Steps",
    "TensorBoard",
    "UnmetRequirementWarning",
    "evaluate",
    "fit",
    "recipes",
    "start_at_prior",
]
