"""The speeds that metricfit promises, measured on this machine. See ``python -m benchmarks --help``.

``bars.py`` has every bar. A module measures tables, ``Table(name, title, device, measure)`` in its ``TABLES``; a bar
compares two lines of a table. A new module joins by being named in ``benchmarks.__main__.MODULES``, or is run with
``--module`` if it needs a separate environment, as ``adversarial_peers`` does. ``growth.py`` measures how cost grows.
"""

import os

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # compile in this process: no helpers that count as load
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler behind peak memory announces every start and stop
