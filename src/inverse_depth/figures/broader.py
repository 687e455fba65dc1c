"""Figure 14: broader targets and data spectra."""

import pandas as pd
from matplotlib.figure import Figure

from . import style
from .curves import (
    Fits,
    drawing_note,
    fitted_floors,
    loss_panel,
    of_experiment,
    published_values,
    quantity_panel,
    setting,
)


@style.styled
def figure14(
    evaluations: pd.DataFrame, fits_top2: Fits, fits_top16: Fits, published: pd.DataFrame
) -> Figure:
    """Loss (a) on top-2 with both exponents nonzero and (b) on top-16; (c) C_L, (d) A_L − C_L.

    `evaluations`: experiment, a, b, d, P, L, seed, loss, loss_se, shared_error, disagreement;
    `fits_…`: of R = L0 + c L^−α; `published`: k, a, b, L0, alpha (Table 4).
    """
    figure, axes = style.panels(2, 2, style.FULL_WIDTH, 5.6)
    top2 = of_experiment(evaluations, "nonlinear_top2_mixed")
    top16 = of_experiment(evaluations, "nonlinear_top16")
    for panel, letter, text, rows, fits, k in (
        (axes[0, 0], "a", "top-2, $a, b>0$", top2, fits_top2, 2),
        (axes[0, 1], "b", "top-16", top16, fits_top16, 16),
    ):
        style.title(panel, letter, text, setting(rows))
        floors = published_values(published, "L0", k=k)
        alphas = published_values(published, "alpha", k=k)
        loss_panel(panel, rows, style.spectrum_label, fits, floors, alphas)
    style.title(axes[1, 0], "c", "shared error, top-2", setting(top2))
    quantity_panel(
        axes[1, 0], top2, "shared_error", "$C_L$", style.spectrum_label, fitted_floors(fits_top2), 2
    )
    style.title(axes[1, 1], "d", "disagreement, top-2", setting(top2))
    quantity_panel(axes[1, 1], top2, "disagreement", "$A_L-C_L$", style.spectrum_label, columns=2)
    if len(top2) or len(top16):
        style.note(figure, drawing_note(pd.concat([top2, top16])))
    return figure
