"""Learn from neighbors and scores.

The layers, low to high: ``core``; ``similarity`` | ``relation`` | ``links`` | ``ranks``; ``masks`` | ``miners`` |
``metrics``; ``heads`` | ``encoders`` | ``losses`` | ``samplers``; ``data`` | ``evaluation`` | ``report``; ``training``;
``estimators``; ``cli``. Each is imported by its own name.
"""

__version__ = "0.1.0"
