"""Figures: pure functions from data frames and finished fits to matplotlib figures."""

from .benchmarks import benchmarks
from .broader import figure14
from .context_attention import figure12
from .dimensions import calibration, table1_matched
from .exponents import local_exponents
from .generalized import figure09, figure10, figure11
from .geometry import figure08
from .linear_easy import figure03
from .linear_top2 import figure05
from .modes import figure07
from .nonlinear_easy import figure04
from .nonlinear_top2 import figure06
from .overview import figure01
from .schematic import figure02
from .selection import figure13
from .style import save
from .training import convergence, training_curves, training_sensitivity

__all__ = [
    "benchmarks",
    "calibration",
    "convergence",
    "figure01",
    "figure02",
    "figure03",
    "figure04",
    "figure05",
    "figure06",
    "figure07",
    "figure08",
    "figure09",
    "figure10",
    "figure11",
    "figure12",
    "figure13",
    "figure14",
    "local_exponents",
    "save",
    "table1_matched",
    "training_curves",
    "training_sensitivity",
]
