"""The project's tables: pure functions from data frames to a data frame.

A number that could not be had is NaN, and the row's `note` says why: the spectrum was not run at
this scale, or its fit failed. Columns that the paper's readers look for come first; the trailing
ones say how a number was made (dimensions, depths fitted, seeds, intervals, note).
"""

from inverse_depth.tables.curves import Curve, depth_curve, replicate_curves
from inverse_depth.tables.floors import calibration, linear_floor, table1, table1_matched
from inverse_depth.tables.linear import predictable_component, table2, table3, table3_theory
from inverse_depth.tables.markdown import readable, to_markdown
from inverse_depth.tables.nonlinear import (
    deep_fit,
    experiment_fits,
    figure6_fits,
    local_exponents,
    table4,
    table5,
    training_sensitivity,
)

__all__ = [
    "Curve",
    "calibration",
    "deep_fit",
    "depth_curve",
    "experiment_fits",
    "figure6_fits",
    "linear_floor",
    "local_exponents",
    "predictable_component",
    "readable",
    "replicate_curves",
    "table1",
    "table1_matched",
    "table2",
    "table3",
    "table3_theory",
    "table4",
    "table5",
    "to_markdown",
    "training_sensitivity",
]
