"""Figure 6: nonlinear attention on the top-2 task, inverse-depth decay for every spectrum."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .curves import (
    Fits,
    by_a,
    by_b,
    drawing_note,
    fitted_floors,
    loss_panel,
    of_experiment,
    published_values,
    quantity_panel,
    setting,
)


@style.styled
def figure06(evaluations: pd.DataFrame, fits: Fits, published: pd.DataFrame) -> Figure:
    """Loss with fits (a) at a = 0 and (b) at b = 0; (c) C_L and (d) A_L − C_L at b = 0.

    `evaluations`: experiment, a, b, d, P, L, seed, loss, loss_se, shared_error, disagreement;
    `fits`: of R = L0 + c L^−α (eq 16); `published`: a, b, nonlinear_L0 (Table 1).
    """
    figure, axes = style.panels(2, 2, style.FULL_WIDTH, 5.4)
    rows = of_experiment(evaluations, "nonlinear_top2")
    floors = published_values(published, "nonlinear_L0")
    varied_b, varied_a = rows[rows["a"] == 0], rows[rows["b"] == 0]
    style.title(axes[0, 0], "a", "top-2, fixed $a=0$", setting(varied_b))
    loss_panel(axes[0, 0], varied_b, by_b, fits, floors, columns=2)
    style.title(axes[0, 1], "b", "top-2, fixed $b=0$", setting(varied_a))
    loss_panel(axes[0, 1], varied_a, by_a, fits, floors, columns=2)
    style.title(axes[1, 0], "c", "shared error, fixed $b=0$", setting(varied_a))
    quantity_panel(
        axes[1, 0], varied_a, "shared_error", "$C_L$", by_a, fitted_floors(fits), columns=3
    )
    style.title(axes[1, 1], "d", "disagreement, fixed $b=0$", setting(varied_a))
    quantity_panel(axes[1, 1], varied_a, "disagreement", "$A_L-C_L$", by_a, columns=3)
    if not rows.empty:
        style.note(figure, drawing_note(rows))
    return figure
