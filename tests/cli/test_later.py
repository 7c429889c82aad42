"""What the program loads later is what it would have loaded at once, whoever asks for it first."""

import subprocess
import sys

EACH = """
import os, sys, numpy
from vicinal.cli.later import load_later
load_later()
load_later()
for code in sys.argv[1:]:
    if os.fork() == 0:
        exec(code, {"sys": sys, "load_later": load_later})
        os._exit(0)
    assert os.wait()[1] == 0, code
"""

FIRST_USES = {
    "none": """
import inspect
import scipy.optimize, scipy.stats
assert scipy.stats.__file__.endswith("__init__.py")
inspect.getmodule(load_later.__code__, "nowhere")  # looks at all modules
assert not {"scipy.stats._stats_py", "scipy.optimize._optimize"} & set(sys.modules)
""",
    "a name": "from scipy.stats import norm, qmc; assert norm.cdf(0) == 0.5 and qmc.Sobol; "
    "assert type(__import__('scipy').stats.__loader__).__name__ == 'SourceFileLoader'",
    "an attribute": "import scipy; assert scipy.optimize.minimize(lambda x: x @ x, [1.0]).success",
    "a part": "import scipy.stats._distn_infrastructure as part, scipy; assert part.rv_continuous and scipy.stats.t",
    "no attribute": "import scipy.stats; assert getattr(scipy.stats, 'nothing', 1) == 1 and scipy.stats.norm",
    "everything": "from scipy.optimize import *; import scipy; assert linprog is scipy.optimize.linprog",
    "threads": """
import scipy.stats
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as threads:
    assert set(threads.map(lambda k: scipy.stats.binom.cdf(1, 2, 0.5), range(8))) == {0.75}
""",
    "pickle": "import pickle, scipy.stats; assert pickle.loads(pickle.dumps(scipy.stats.norm)).cdf(0) == 0.5",
    "again, after one that failed": """
import scipy.stats
real, scipy.stats.__spec__.loader.loader = scipy.stats.__spec__.loader.loader, None
try:
    scipy.stats.norm
except AttributeError:
    scipy.stats.__spec__.loader.loader = real
assert scipy.stats.norm.cdf(0) == 0.5
""",
}


def test_the_first_use_loads_it():
    """Each in a fork of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", EACH, *FIRST_USES.values()], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
