"""Figure 5: linear attention on the top-2 task, a plateau within one or two layers."""

import pandas as pd
from matplotlib.figure import Figure

from ..published import DIMENSIONS
from . import style
from .curves import by_a, by_b, loss_panel, of_experiment, published_values, setting

PUBLISHED_SETTING = setting(pd.DataFrame([DIMENSIONS["linear"]]))

DECADES = 0.5  # least span of the loss axis, so that a plateau looks like one


@style.styled
def figure05(evaluations: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """Loss against depth (a) at a = 0 and (b) at b = 0, beside the published floors.

    `evaluations`: experiment, a, b, d, P, L, loss, loss_se; `published`: a, b, linear_L0 (Table 1).
    """
    figure, axes = style.panels(1, 2, style.FULL_WIDTH, 2.9)
    rows = of_experiment(evaluations, "linear_top2")
    floors = published_values(published, "linear_L0")
    families = (
        ("a", "a", rows[rows["a"] == 0], by_b),
        ("b", "b", rows[(rows["b"] == 0) & (rows["a"] > 0)], by_a),
    )
    for panel, (letter, fixed, family, name) in zip(axes[0], families, strict=True):
        style.title(panel, letter, f"linear, top-2, fixed ${fixed}=0$", setting(family))
        label = "paper's $L_0$"
        if setting(family) != PUBLISHED_SETTING:
            label += f", {PUBLISHED_SETTING}"
        loss_panel(panel, family, name, floors=floors, columns=3, floors_label=label)
        if not family.empty:
            style.widen(panel, DECADES)
    return figure
