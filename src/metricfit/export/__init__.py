"""Models outside of this package: ONNX, MLflow, and plain parts of scikit-learn.

``onnx`` writes one graph of encoding, families, calibration and decision (``graph``, ``column_nodes``, ``tree_nodes``,
``lightgbm_nodes``, ``network_nodes``, ``family_nodes``, ``estimator_nodes``, ``tuned_nodes``, ``decision_nodes``) and
compares it with the
model (``runtime_check``, ``made_up``); ``mlflow`` saves models for MLflow's loader; ``scikit_learn_parts`` and
``scikit_learn_encoding`` build a pipeline of scikit-learn.
"""
