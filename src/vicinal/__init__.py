"""Learn from neighbors and scores.

The layers, low to high: ``core``, ``similarity``, ``masks``, ``heads`` | ``encoders``, ``evaluation`` |
``report`` | ``data``, ``training``, ``estimators``, ``cli``. Each is imported by its own name.
"""

__version__ = "0.1.0"
