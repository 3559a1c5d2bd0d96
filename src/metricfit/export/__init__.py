"""Models outside of this package: ONNX and MLflow.

``onnx`` writes one graph of encoding (``columns``), families (``trees``, ``estimators``, ``networks``), calibration and
decision (``models``), and compares it with the model, on rows of the user's or on rows that are ``made_up``. ``mlflow``
saves models for MLflow's loader.
"""
