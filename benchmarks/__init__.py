"""The speed table: the speeds that DESIGN promises, measured on this machine. See ``python -m benchmarks --help``.

A row is a declaration, ``Row(name, work, device, bar, measure)``, in the ``ROWS`` of its module; a table of peers, for
information, is a ``PeerGroup`` in its ``PEERS``. A new module joins by being named in ``benchmarks.__main__.MODULES``,
or is run with ``--module`` if it needs a separate environment, as ``segmentation_peers`` and ``pair_peers`` do.
"""

import os

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # compile in this process: no helpers that count as load
os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler behind peak memory announces every start and stop
