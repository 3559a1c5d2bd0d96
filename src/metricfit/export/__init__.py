"""Models outside of this package: ONNX, MLflow, and plain parts of scikit-learn.

``onnx`` writes one graph of encoding (``columns``), families (``trees``, ``estimators``, ``networks``), calibration and
decision (``models``), and compares it with the model; ``mlflow`` saves models for MLflow's loader; ``scikit_learn``
builds a pipeline of scikit-learn. ``made_up`` makes rows to compare on.
"""
