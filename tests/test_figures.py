"""Figures drawn from invented frames of plausible size: what they show is what they were given."""

from collections.abc import Callable, Iterator
from itertools import combinations

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import FancyArrowPatch
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from inverse_depth import figures, published
from inverse_depth.figures import style
from inverse_depth.fits import PowerLawFit, fit_power_law

TABLE1 = [(0.0, 0.0), (0.0, 0.25), (0.0, 0.5), (0.0, 1.0), (0.25, 0.0), (0.5, 0.0), (1.0, 0.0)]
TABLE2 = [(2.0, 0.5), (2.0, 1.0), (2.0, 1.5), (2.0, 2.0), (0.5, 2.0), (1.0, 2.0), (1.5, 2.0)]
MIXED = [(0.25, 0.25), (0.25, 0.5), (0.5, 0.5)]
TOP16 = [(0.0, 0.0), (0.0, 0.25), (0.0, 0.5), (0.25, 0.25), (0.25, 0.5)]
DEEP = [1, 2, 4, 8, 16, 32, 64, 128, 256]


def zero_loss(d: int, exponent: float) -> float:
    return float(np.sum(np.arange(1.0, d + 1) ** -exponent))


def experiment_rows(
    name: str,
    spectra: list[tuple[float, float]],
    depths: list[int],
    loss: Callable,
    sizes: tuple[int, float],
    k: int = 2,
    seeds: int = 1,
) -> list[dict]:
    """Rows of one invented experiment; `loss(a, b, L)` is its noiseless loss."""
    noise = np.random.default_rng(len(name))
    rows = []
    for a, b in spectra:
        for L in depths:
            for seed in range(seeds):
                # Both terms keep their own small error, so that the identity holds exactly.
                limit = loss(a, b, 1e9)
                shared = limit * (1 - 0.3 / L) * (1 + 1e-4 * noise.standard_normal())
                disagreement = L * (loss(a, b, L) - limit * (1 - 0.3 / L))
                disagreement *= 1 + 0.02 * noise.standard_normal()
                value = shared + disagreement / L
                rows.append(
                    {
                        "experiment": name, "a": a, "b": b, "d": sizes[0], "P": sizes[1], "k": k,
                        "L": L, "seed": seed, "loss": value, "loss_se": 0.004 * value,
                        "shared_error": shared if L > 1 else np.nan,
                        "disagreement": disagreement if L > 1 else np.nan,
                        "context_scalar": np.nan, "norm": "rms",
                        "final_change": 10.0 ** noise.uniform(-5, -2), "run": f"{a}-{b}-{L}-{seed}",
                    }
                )  # fmt: skip
    return rows


def floor(a: float, b: float) -> float:
    return 2.007 * zero_loss(16, 1.1 * a + 1.04 * b) / 16


def make_evaluations(depths: list[int], top2: list, easy: list, seeds: int = 1) -> pd.DataFrame:
    shallow = [L for L in depths if L <= 8]
    middle = [L for L in depths if L <= 64]
    finite, small = (128, 1024.0), (16, 64.0)

    def deep(a, b, L):
        return floor(a, b) * (1 + 0.5 / L)

    def easy_linear(a, b, L):
        return zero_loss(128, a + b) * 0.4 * L ** (-1.4 * (a + b - 1) / a)

    def plateau(a, b, L):
        return 59.4 * zero_loss(128, 1.3 * a + b) / 128 * (1 + 0.03 * (L == 1))

    def easy_nonlinear(a, b, L):
        return zero_loss(16, a + b) * 1e-5 / (1 + a + b) / L

    rows = [
        *experiment_rows("linear_easy_finite", easy, middle, easy_linear, finite),
        *experiment_rows("linear_top2", [*top2, *MIXED[::2]], shallow, plateau, finite),
        *experiment_rows("nonlinear_easy", top2, middle, easy_nonlinear, small),
        *experiment_rows("nonlinear_top2", top2, depths, deep, small, seeds=seeds),
    ]
    if len(top2) > 2:
        rows += experiment_rows("nonlinear_top2_mixed", MIXED, depths, deep, small)
        rows += experiment_rows(
            "nonlinear_top16", TOP16, depths,
            lambda a, b, L: 0.137 * floor(a, b) * (1 + 0.6 * L**-0.8), small, 16,
        )  # fmt: skip
        for name in ("single_stream_top2", "layer_values_top2", "context_updates_top2"):
            rows += experiment_rows(name, [(0.0, 0.0)], middle, deep, small)
        rows += experiment_rows(
            "context_updates_top16", [(0.0, 0.0)], middle, lambda a, b, L: 0.27, small, 16
        )
    frame = pd.DataFrame(rows)
    updates = frame["experiment"].str.startswith("context_updates") & (frame["L"] > 1)
    top16 = updates & (frame["k"] == 16)
    frame.loc[updates, "context_scalar"] = -0.2 * np.log2(frame.loc[updates, "L"])
    frame.loc[top16, "context_scalar"] = -2.31 + 0.1 / frame.loc[top16, "L"]
    frame["converged"] = frame["final_change"] < 2e-3
    return frame


def make_fits(frame: pd.DataFrame, experiment: str, start: int, floor: float | None = None) -> dict:
    rows = frame[(frame["experiment"] == experiment) & (frame["L"] >= start)]
    means = rows.groupby(["a", "b", "L"])["loss"].mean().reset_index("L")
    return {
        spectrum: fit_power_law(curve["L"], curve["loss"], floor)
        for spectrum, curve in means.groupby(level=["a", "b"])
    }


def make_modes(depths: list[int]) -> pd.DataFrame:
    rows = []
    for L in depths:
        for k in range(1, 17):
            loss = 0.4 * k**-1.05 * (0.25 + 0.3 * L ** -(0.9 + 0.01 * k))
            rows.append(("nonlinear_top2", 1.0, 0.0, L, 0, k, loss))
        if L <= 64:
            for k in range(1, 129):
                loss = k**-3.0 * (1 - k**-2.0 / 1.2) ** (2 * L)
                rows.append(("linear_easy_finite", 2.0, 1.0, L, 0, k, loss))
    return pd.DataFrame(rows, columns=["experiment", "a", "b", "L", "seed", "mode", "loss"])


def make_history(depths: list[int], spectra: list[tuple[float, float]]) -> pd.DataFrame:
    steps = np.arange(0, 3001, 50)
    runs = []
    for name, L, (a, b) in [
        ("nonlinear_easy", 1, (1.0, 0.0)),
        *(("nonlinear_top2", L, spectrum) for spectrum in spectra for L in depths),
    ]:
        mass = 1 / 64 + (1 - 1 / 64) / (1 + np.exp(-(steps - 500) / 90))
        loss = floor(a, b) * (1 + 0.5 / L + 4 * np.exp(-steps / 300))
        run = {
            "experiment": name, "a": a, "b": b, "L": L, "seed": 0, "step": steps, "loss": loss,
            "validation_loss": loss, "attention_mass": mass,
        }  # fmt: skip
        runs.append(pd.DataFrame(run))
    return pd.concat(runs, ignore_index=True)


def make_references() -> pd.DataFrame:
    rows = []
    for a, b in TABLE2:
        zeta = (a + b - 1) / a
        for L in (1, 2, 4, 8, 16, 32, 64):
            scale = 0.5 * zero_loss(128, a + b)
            rows.append((a, b, L, scale * L**-zeta, 0.7 * scale * L ** (-2 * zeta)))
    return pd.DataFrame(rows, columns=["a", "b", "L", "constrained", "free"])


def make_selection(deep: int) -> pd.DataFrame:
    q = np.arange(0, 100.5, 0.5)
    curves = {
        1: 0.004 + 0.9 * (q / 100) ** 2.2 + 0.15 * (q / 100) ** 20,
        deep: 0.02 + 0.55 * (q / 100) ** 2.3 + 0.1 * (q / 100) ** 20,
    }
    return pd.concat(
        pd.DataFrame(
            {
                "experiment": "nonlinear_top2", "a": 0.0, "b": 0.0, "L": L, "seed": 0,
                "percentile": q, "selection_loss": values,
            }
        )
        for L, values in curves.items()
    )  # fmt: skip


def make_attention() -> pd.DataFrame:
    noise = np.random.default_rng(0)
    row, column = (index.ravel() for index in np.indices((64, 64)))
    frames = []
    for k, rho in ((2, 0.9999), (16, 0.0989)):
        weight = rho * (row == column) + (1 - rho) / 64 * (1 + 0.02 * noise.standard_normal(4096))
        frames.append(pd.DataFrame({"k": k, "row": row, "column": column, "weight": weight}))
    return pd.concat(frames).assign(experiment="context_updates", run="two layers")


def make_sensitivity() -> pd.DataFrame:
    rows = []
    for N in (16, 32, 64):
        for init in (0.3, 1.0):
            for teacher in ("averaged", "sampled"):
                for rate in (0.001, 0.003):
                    c = 0.1 + init + 0.3 * (teacher == "sampled") + N / 100 + 40 * rate
                    for L in (1, 4, 16, 64):
                        loss, shared = 2.01 + c / L, 2.01 - 0.2 / L
                        rows.append(
                            (
                                N,
                                "isometry",
                                init,
                                teacher,
                                rate,
                                L,
                                loss,
                                0.01,
                                shared,
                                L * (loss - shared),
                            )
                        )
    columns = [
        "N",
        "encoder",
        "init",
        "teacher",
        "learning_rate",
        "L",
        "loss",
        "loss_se",
        "shared_error",
        "disagreement",
    ]
    frame = pd.DataFrame(rows, columns=columns)
    frame.loc[frame["L"] == 1, ["shared_error", "disagreement"]] = np.nan
    return frame


def make_local(frame: pd.DataFrame, fits: dict) -> pd.DataFrame:
    rows = []
    for a, b in fits:
        for L in sorted(frame.loc[frame["experiment"] == "nonlinear_top2", "L"].unique())[:-1]:
            exponent = 1 - 0.3 / L + 0.1 * np.sin(9 * a + 5 * b + L)
            width = 0.02 * np.sqrt(L)
            rows.append((a, b, L, 2 * L, exponent, exponent - width, exponent + width))
    columns = ["a", "b", "shallow", "deep", "exponent", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def make_matched() -> pd.DataFrame:
    rows = [
        (a, b, d, P, floor(a, b) * low, floor(a, b) * high, high / low)
        for d, P, low, high in ((16, 64, 1.0, 2.8), (128, 1024, 12.0, 29.0))
        for a, b in TABLE1
    ]
    columns = ["a", "b", "d", "P", "nonlinear_L0", "linear_L0", "ratio"]
    frame = pd.DataFrame(rows, columns=columns)
    bound = "loss at L = 16, an upper bound"
    return frame.assign(nonlinear_method=np.where(frame["d"] == 128, bound, "fit"))


def make_calibration() -> pd.DataFrame:
    rows = [
        (k, P, scale * (P / 64) ** -0.14, 0.003 * scale, published.isotropic_floor(k))
        for k, scale in ((2, 2.02), (16, 0.281))
        for P in (32, 48, 64, 128)
    ]
    frame = pd.DataFrame(rows, columns=["k", "P", "L0", "L0_se", "paper_L0"])
    return frame.assign(deepest=64, deepest_loss=1.02 * frame["L0"])


def make_schematic() -> pd.DataFrame:
    noise = np.random.default_rng(4)
    tokens = noise.standard_normal((12, 2))
    labels = tokens @ noise.standard_normal(2)
    frame = pd.DataFrame({"role": "token", "x": tokens[:, 0], "y": tokens[:, 1], "label": labels})
    rows = []
    for task, query, k in (("easy", tokens[7], 1), ("top_k", noise.standard_normal(2), 2)):
        cosines = tokens @ query / np.linalg.norm(tokens, axis=1) / np.linalg.norm(query)
        chosen = np.argsort(-cosines)[:k]
        frame[f"{task}_similarity"] = cosines
        frame[f"{task}_selected"] = np.isin(np.arange(12), chosen)
        rows.append({"role": task, "x": query[0], "y": query[1], "label": labels[chosen].mean()})
    return pd.concat([frame, pd.DataFrame(rows)], ignore_index=True)


def make_geometry() -> pd.DataFrame:
    query, first, second, conditional = np.array([[1.2, 0.9], [1.6, 0.7], [0.4, 1.1], [0.8, 0.6]])
    mean = (first + second) / 2
    points = {
        "query": query, "conditional_mean": conditional, "selected_1": first, "selected_2": second,
        "mean": mean, "residual": mean - conditional,
    }  # fmt: skip
    turn = np.degrees(np.arctan2(query[1], query[0]))
    return pd.DataFrame(
        [
            (name, x, y, np.hypot(x, y), np.degrees(np.arctan2(y, x)) - turn)
            for name, (x, y) in points.items()
        ],
        columns=["point", "x", "y", "length", "angle"],
    )


def make_inputs(quick: bool) -> dict[str, tuple]:
    """The arguments of every figure: all that the paper scale has, or a quick scale's subset."""
    if quick:
        depths, deep, top2, easy = [1, 4, 16, 64], 64, [(0.0, 0.0), (1.0, 0.0)], [(2.0, 1.0)]
        evaluations = make_evaluations(depths, top2, easy)
    else:
        depths, deep, top2 = DEEP, 256, TABLE1
        evaluations = make_evaluations(depths, TABLE1, TABLE2, seeds=2)
    fits = make_fits(evaluations, "nonlinear_top2", 1 if quick else 8)
    easy_fits = make_fits(evaluations, "linear_easy_finite", 2, 0.0)
    mixed = make_fits(evaluations, "nonlinear_top2_mixed", 8)
    top16 = make_fits(evaluations, "nonlinear_top16", 8)
    stream, values, updates = (
        make_fits(evaluations, name, 8)
        for name in ("single_stream_top2", "layer_values_top2", "context_updates_top2")
    )
    modes = make_modes(depths)
    mode_fits = {
        mode: fit_power_law(rows["L"], rows["loss"])
        for mode, rows in modes[modes["experiment"] == "nonlinear_top2"].groupby("mode")
    }
    history = make_history(depths, top2)
    identity = pd.DataFrame(
        [(2, 0.9999, 0.99999, 0.9999), (16, 0.0989, 0.9999, 0.0989)],
        columns=["k", "rho", "r2", "paper_rho"],
    )
    attention = make_attention()
    table1, table2, table4 = (published.table(number) for number in (1, 2, 4))
    scalar = published.scalar("context_update_scalar_top16")
    sensitivity, matched = make_sensitivity(), make_matched()
    base = {
        "N": 16,
        "encoder": "isometry",
        "init": 0.3,
        "teacher": "averaged",
        "learning_rate": 0.003,
    }
    references = make_references()
    if quick:
        attention = attention[attention["k"] == 2]
        sensitivity, matched = sensitivity[:0], matched[:0]
    return {
        "figure01": (evaluations, "linear_easy_finite"),
        "figure02": (make_schematic(),),
        "figure03": (evaluations, modes, easy_fits, references, table2, "linear_easy_finite"),
        "figure04": (evaluations, history),
        "figure05": (evaluations, table1),
        "figure06": (evaluations, fits, table1),
        "figure07": (modes, mode_fits, 1.0, 0.0),
        "figure08": (make_geometry(),),
        "figure09": (evaluations, stream),
        "figure10": (evaluations, values),
        "figure11": (evaluations, updates, {}, scalar),
        "figure12": (attention, identity),
        "figure13": (make_selection(deep), deep),
        "figure14": (evaluations, mixed, top16, table4),
        "local_exponents": (evaluations, fits, make_local(evaluations, fits), "nonlinear_top2"),
        "training_sensitivity": (sensitivity, base, published.isotropic_floor(2)),
        "table1_matched": (matched, table1),
        "calibration": (make_calibration()[: 4 if quick else 8],),
        "training_curves": (history, "nonlinear_top2"),
        "convergence": (evaluations, 2e-3),
    }


def draw_all(quick: bool) -> dict[str, Figure]:
    return {name: getattr(figures, name)(*given) for name, given in make_inputs(quick).items()}


PANELS = {
    "figure01": 4, "figure02": 4, "figure03": 3, "figure04": 3, "figure05": 2, "figure06": 4,
    "figure07": 2, "figure08": 1, "figure09": 3, "figure10": 3, "figure11": 4, "figure12": 2,
    "figure13": 2, "figure14": 4, "local_exponents": 2, "training_sensitivity": 10,
    "table1_matched": 3, "calibration": 2, "training_curves": 8, "convergence": 1,
}  # fmt: skip
NOT_RUN = style.NOT_RUN


@pytest.fixture(scope="module")
def inputs() -> dict[str, tuple]:
    return make_inputs(quick=False)


@pytest.fixture(scope="module")
def drawn(inputs) -> dict[str, Figure]:
    return {name: getattr(figures, name)(*given) for name, given in inputs.items()}


@pytest.fixture(scope="module")
def quick() -> dict[str, Figure]:
    return draw_all(quick=True)


def panels(figure: Figure) -> list[Axes]:
    return [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]


def artist(axes: Axes, gid: str):
    found = [child for child in axes.get_children() if child.get_gid() == gid]
    assert len(found) == 1, f"{gid}: {len(found)} artists"
    return found[0]


def points(axes: Axes, name: str) -> pd.Series:
    """All points of a curve, filled and hollow, by depth."""
    lines = [artist(axes, f"{name} points"), artist(axes, f"{name} points not fitted")]
    return pd.concat(pd.Series(line.get_ydata(), line.get_xdata()) for line in lines).sort_index()


def curve_of(frame: pd.DataFrame, experiment: str, a: float, b: float, column: str) -> pd.Series:
    rows = frame[(frame["experiment"] == experiment) & (frame["a"] == a) & (frame["b"] == b)]
    return rows.dropna(subset=[column]).groupby("L")[column].mean()


def paper_lines(axes: Axes) -> list[float]:
    return sorted(line.get_ydata()[0] for line in axes.lines if line.get_gid() == "paper")


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def legend_texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


# Layout -------------------------------------------------------------------------------------------


def drawn_texts(figure: Figure, monkeypatch) -> list[tuple[Text, Bbox]]:
    """Every piece of text that rendering puts on the page, with its box in pixels."""
    found, draw = [], Text.draw

    def recorded(text, renderer, *args, **kwargs):
        if text.get_visible() and text.get_text():
            found.append((text, Text.get_window_extent(text, renderer)))
        return draw(text, renderer, *args, **kwargs)

    with matplotlib.rc_context(style.STYLE):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()  # lets the constrained layout settle
        with monkeypatch.context() as patch:
            patch.setattr(Text, "draw", recorded)
            canvas.draw()
    return found


def data_points(figure: Figure) -> Iterator[np.ndarray]:
    """Pixels of the points that lines go through, of those inside their panel."""
    for axes in figure.axes:
        for line in axes.lines:
            pixels = line.get_transform().transform(line.get_xydata())
            inside = axes.bbox.contains
            yield from (pixel for pixel in pixels if inside(*pixel))


@pytest.mark.parametrize("scale", ["paper", "quick"])
@pytest.mark.parametrize("name", PANELS)
def test_layout(name, scale, request, monkeypatch):
    """Nothing is cut off, no text covers another or lies in a legend's way, none is too small."""
    figure = request.getfixturevalue("drawn" if scale == "paper" else "quick")[name]
    placed = drawn_texts(figure, monkeypatch)
    page = figure.bbox
    for text, box in placed:
        assert text.get_fontsize() >= 7, text
        inside = page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1
        assert inside, f"{text} leaves the page"
    for (one, box), (other, other_box) in combinations(placed, 2):
        common = Bbox.intersection(box, other_box)
        overlap = common is not None and min(common.width, common.height) > 1
        assert not overlap, f"{one} and {other} overlap"
    covered = list(data_points(figure))
    for legend in figure.findobj(Legend):
        box = legend.get_window_extent()
        assert not any(box.contains(*pixel) for pixel in covered), f"{legend} covers data"


@pytest.mark.parametrize("name", PANELS)
def test_panels(name, drawn):
    figure = drawn[name]
    assert len(panels(figure)) == PANELS[name]
    assert figure.get_size_inches()[0] <= style.FULL_WIDTH
    shown = [axes for axes in panels(figure) if axes.axison]
    assert all(axes.has_data() for axes in shown)


LETTERED = [name for name in PANELS if name not in ("figure08", "training_curves", "convergence")]


@pytest.mark.parametrize("name", LETTERED)
def test_panel_letters(name, drawn):
    written = [axes.get_title(loc="left")[:14] for axes in panels(drawn[name])]
    wanted = [rf"$\mathbf{{({letter})}}$" for letter in "abcdefghij"[: PANELS[name]]]
    if name == "training_sensitivity":  # a letter a column
        wanted = [*wanted[:5], *[""] * 5]
    assert written == wanted


LOG_LOG = {
    "figure01": "0123", "figure03": "012", "figure04": "01", "figure05": "01", "figure06": "0123",
    "figure07": "01", "figure09": "012", "figure11": "01", "figure14": "0123",
    "local_exponents": "0",
}  # fmt: skip


@pytest.mark.parametrize(("name", "which"), LOG_LOG.items())
def test_log_log(name, which, drawn):
    for index in map(int, which):
        axes = panels(drawn[name])[index]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert 3 <= len(axes.get_yticks()) <= 6
        assert axes.get_xlabel() == "depth $L$"
        assert axes.get_ylabel()


# What is drawn ------------------------------------------------------------------------------------


def test_loss_is_the_mean_over_seeds_with_their_spread(drawn, inputs):
    evaluations = inputs["figure06"][0]
    axes = panels(drawn["figure06"])[0]
    shown = points(axes, "(0, 0.25) loss")
    expected = curve_of(evaluations, "nonlinear_top2", 0, 0.25, "loss")
    pd.testing.assert_series_equal(shown, expected, check_names=False, check_index_type=False)
    rows = evaluations[evaluations["experiment"] == "nonlinear_top2"]
    spread = rows[(rows["a"] == 0) & (rows["b"] == 0.25)].groupby("L")["loss"].std().to_numpy()
    np.testing.assert_allclose(error_bars(axes, "(0, 0.25) loss"), spread, rtol=1e-9)


def error_bars(axes: Axes, name: str) -> np.ndarray:
    """Half lengths of a curve's error bars."""
    bars = next(bars for bars in axes.collections if bars.get_gid() == f"{name} errors")
    return np.array([np.ptp(bar[:, 1]) / 2 for bar in bars.get_segments()])


def test_one_seed_shows_the_standard_error(drawn, inputs):
    rows = inputs["figure05"][0].query("experiment == 'linear_top2' and a == 0 and b == 0.5")
    axes = panels(drawn["figure05"])[0]
    np.testing.assert_allclose(error_bars(axes, "(0, 0.5) loss"), rows["loss_se"], rtol=1e-9)
    np.testing.assert_allclose(points(axes, "(0, 0.5) loss"), rows["loss"])


def test_panels_of_figure06_hold_their_families(drawn):
    varied_b, varied_a, shared, disagreement = panels(drawn["figure06"])
    names = {0: [f"(0, {b})" for b in ("0", "0.25", "0.5", "1")]}
    names[1] = [f"({a}, 0)" for a in ("0", "0.25", "0.5", "1")]
    for axes, family, quantity in (
        (varied_b, names[0], "loss"),
        (varied_a, names[1], "loss"),
        (shared, names[1], "shared_error"),
        (disagreement, names[1], "disagreement"),
    ):
        gids = {line.get_gid() for line in axes.lines if line.get_gid()}
        suffix = f" {quantity} points"
        assert {gid.removesuffix(suffix) for gid in gids if gid.endswith(suffix)} == set(family)


@pytest.mark.parametrize(("index", "column"), [(2, "shared_error"), (3, "disagreement")])
def test_decomposition_terms_start_at_two_layers(index, column, drawn, inputs):
    shown = points(panels(drawn["figure06"])[index], f"(1, 0) {column}")
    expected = curve_of(inputs["figure06"][0], "nonlinear_top2", 1, 0, column)
    assert shown.index.min() == 2
    np.testing.assert_allclose(shown, expected)


def test_fit_is_its_own_prediction_over_its_depths(drawn, inputs):
    fit = inputs["figure06"][1][0.0, 0.5]
    axes = panels(drawn["figure06"])[0]
    curve = artist(axes, "(0, 0.5) loss fit")
    np.testing.assert_allclose(curve.get_ydata(), fit.predict(curve.get_xdata()))
    assert curve.get_linestyle() == "--"
    np.testing.assert_allclose(curve.get_xdata()[[0, -1]], [8, 256])
    filled = artist(axes, "(0, 0.5) loss points")
    hollow = artist(axes, "(0, 0.5) loss points not fitted")
    np.testing.assert_array_equal(filled.get_xdata(), fit.depths)
    np.testing.assert_array_equal(hollow.get_xdata(), [1, 2, 4])
    assert hollow.get_markerfacecolor() == "white"
    assert f"$b=0.5$: {fit.alpha:.2f} ± {fit.alpha_se:.2f}" in legend_texts(axes)


def test_a_failed_or_missing_fit_says_so(inputs):
    evaluations, fits, table1 = inputs["figure06"]
    failed = PowerLawFit(*[np.nan] * 6, (8, 16, 32), "the losses do not decay with depth")
    fits = {(0.0, 0.0): failed, (1.0, 0.0): fits[1.0, 0.0]}
    axes = panels(figures.figure06(evaluations, fits, table1))
    assert legend_texts(axes[0])[:2] == ["$b=0$: fit failed", "$b=0.25$: not fitted"]
    assert not [line for line in axes[0].lines if str(line.get_gid()).endswith(" fit")]
    assert len([line for line in axes[2].lines if line.get_linestyle() == "--"]) == 1


def test_published_floors(drawn):
    table1, table4 = published.table(1), published.table(4)
    by_name = {
        "figure05": ("linear_L0", table1),
        "figure06": ("nonlinear_L0", table1),
        "figure14": ("L0", table4),
    }
    for name, (column, table) in by_name.items():
        for index in (0, 1):
            rows = table[table["k"] == (2, 16)[index]] if name == "figure14" else table
            if name != "figure14":
                rows = rows[rows["ab"[index]] == 0]
            if name == "figure05" and index == 1:  # (0, 0) is in the first panel only
                rows = rows[rows["a"] > 0]
            assert paper_lines(panels(drawn[name])[index]) == sorted(rows[column])


def test_published_exponents_stand_beside_ours(drawn):
    for name, index, label, alpha in (
        ("figure03", 0, "$b=0.5$", "1.121"),
        ("figure03", 1, "$a=0.5$", "3.31"),
        ("figure14", 0, "(0.25, 0.5)", "0.93"),
        ("figure14", 1, "(0, 0.25)", "0.79"),
    ):
        entries = legend_texts(panels(drawn[name])[index])
        entry = next(text for text in entries if text.startswith(label))
        assert entry.endswith(f"[{alpha}]")


def test_a_smaller_linear_model_says_where_the_published_floor_comes_from(inputs):
    evaluations, table1 = inputs["figure05"]
    axes = panels(figures.figure05(evaluations, table1))[0]
    assert legend_texts(axes)[-1] == "paper's $L_0$"
    smaller = panels(figures.figure05(evaluations.assign(d=16, P=64.0), table1))[0]
    assert legend_texts(smaller)[-1] == "paper's $L_0$, $d=128$, $P=1024$"
    assert smaller.get_title(loc="right") == "$d=16$, $P=64$"


def test_infinite_context_is_named(inputs):
    evaluations = inputs["figure01"][0].assign(P=np.inf)
    axes = panels(figures.figure01(evaluations, "linear_easy_finite"))[0]
    assert axes.get_title(loc="right") == "$d=128$, $P=∞$"


def test_reference_bands_do_not_move_the_axes(drawn, inputs):
    axes = panels(drawn["figure03"])[0]
    band = artist(axes, "(2, 1) reference")
    references = inputs["figure03"][3].query("a == 2 and b == 1")
    vertices = band.get_paths()[0].vertices
    for column in ("constrained", "free"):
        edge = references[["L", column]].to_numpy()
        distance = np.abs(np.log(vertices[None] / edge[:, None])).sum(axis=-1).min(axis=1)
        np.testing.assert_allclose(distance, 0, atol=1e-9)
    losses = inputs["figure03"][0].query("experiment == 'linear_easy_finite' and a == 2")["loss"]
    assert losses.min() / 3 < axes.get_ylim()[0] < losses.min()


def test_weak_mode_losses_lie_on_the_two_percent_line(drawn, inputs):
    axes = panels(drawn["figure03"])[2]
    modes = inputs["figure03"][1].query("experiment == 'linear_easy_finite'")
    assert artist(axes, "threshold").get_ydata()[0] == 0.02
    clipped = 0
    for mode in (1, 2, 4, 8, 16, 32):
        rows = modes[modes["mode"] == mode].set_index("L")["loss"]
        normalized = rows * mode**3.0
        shown = artist(axes, f"mode {mode} points")
        np.testing.assert_allclose(shown.get_ydata(), np.maximum(normalized, 0.02))
        clipped += int((normalized < 0.02).sum())
    assert clipped > 0
    assert axes.get_ylim()[0] < 0.02


def test_easy_losses_are_relative_to_predicting_zero(drawn, inputs):
    axes = panels(drawn["figure04"])[0]
    losses = curve_of(inputs["figure04"][0], "nonlinear_easy", 1, 0, "loss")
    shown = points_without_fit(axes, "(1, 0) loss")
    np.testing.assert_allclose(shown, losses / np.sum(1 / np.arange(1.0, 17)))


def points_without_fit(axes: Axes, name: str) -> np.ndarray:
    assert len(artist(axes, f"{name} points not fitted").get_xdata()) == 0
    return artist(axes, f"{name} points").get_ydata()


def test_an_exactly_solved_easy_task_can_be_drawn(inputs):
    evaluations, history = inputs["figure04"]
    axes = panels(figures.figure04(evaluations.assign(loss=0.0, loss_se=0.0), history))[0]
    np.testing.assert_array_equal(points_without_fit(axes, "(1, 0) loss"), 1e-8)


def test_an_unsolved_easy_task_keeps_its_marks_in_the_panel(inputs, monkeypatch):
    evaluations, history = inputs["figure04"]
    figure = figures.figure04(evaluations.assign(loss=1.0, loss_se=0.0), history)
    boxes = {text.get_text(): box for text, box in drawn_texts(figure, monkeypatch)}
    assert boxes["solved"].y0 > panels(figure)[1].bbox.y0


def test_attention_mass_of_one_layer(drawn, inputs):
    axes = panels(drawn["figure04"])[2]
    history = inputs["figure04"][1].query("experiment == 'nonlinear_easy'")
    line = artist(axes, "mass seed 0")
    np.testing.assert_array_equal(line.get_xdata(), history["step"])
    np.testing.assert_array_equal(line.get_ydata(), history["attention_mass"])
    assert any(np.isclose(line.get_ydata()[0], 1 / 64) for line in axes.lines[1:])


def test_reducible_mode_losses_are_one_at_one_layer(drawn, inputs):
    modes, fits, *_ = inputs["figure07"]
    raw, reducible = panels(drawn["figure07"])
    losses = modes.query("experiment == 'nonlinear_top2' and mode == 8").set_index("L")["loss"]
    np.testing.assert_allclose(points(raw, "mode 8"), losses)
    expected = (losses - fits[8].L0) / (losses[1] - fits[8].L0)
    np.testing.assert_allclose(points(reducible, "mode 8 reducible"), expected)
    fit = artist(raw, "mode 8 fit")
    np.testing.assert_allclose(fit.get_ydata(), fits[8].predict(fit.get_xdata()))


def test_geometry_keeps_lengths_and_points_the_query_right(drawn, inputs):
    geometry = inputs["figure08"][0].set_index("point")
    axes = panels(drawn["figure08"])[0]
    arrows = [patch for patch in axes.patches if isinstance(patch, FancyArrowPatch)]
    ends = [np.array(patch._posA_posB) for patch in arrows]
    lengths = sorted(float(np.linalg.norm(end - start)) for start, end in ends)
    np.testing.assert_allclose(lengths, sorted(geometry["length"]))
    query = next(end for start, end in ends if np.isclose(end[1], 0) and end[0] > 1.4)
    np.testing.assert_allclose(query, [geometry.loc["query", "length"], 0], atol=1e-12)
    assert axes.get_aspect() == 1
    assert "length 1.75, 13° from the query" in texts(drawn["figure08"])


def test_schematic_targets(drawn, inputs):
    schematic = inputs["figure02"][0].set_index("role")
    for axes, role in zip(panels(drawn["figure02"])[2:], ("easy", "top_k"), strict=True):
        assert artist(axes, "target").get_ydata()[0] == schematic.loc[role, "label"]
        selected = axes.collections[1].get_offsets()
        assert len(selected) == {"easy": 1, "top_k": 2}[role]
        assert np.mean(selected[:, 1]) == pytest.approx(schematic.loc[role, "label"])


@pytest.mark.parametrize("name", ["figure09", "figure10"])
def test_generalized_models_state_their_norm(name, drawn, inputs):
    assert "norm before queries and keys: rms" in texts(drawn[name])
    experiment = {"figure09": "single_stream_top2", "figure10": "layer_values_top2"}[name]
    for axes, column in zip(
        panels(drawn[name]), ("loss", "shared_error", "disagreement"), strict=True
    ):
        shown = points(axes, f"(0, 0) {column}")
        np.testing.assert_allclose(shown, curve_of(inputs[name][0], experiment, 0, 0, column))


def test_context_scalars(drawn, inputs):
    evaluations, _, _, published_scalar = inputs["figure11"]
    loss2, loss16, scalar2, scalar16 = panels(drawn["figure11"])
    for axes, k in ((scalar2, 2), (scalar16, 16)):
        expected = curve_of(evaluations, f"context_updates_top{k}", 0, 0, "context_scalar")
        np.testing.assert_allclose(points(axes, "m"), expected)
    assert paper_lines(scalar16) == [published_scalar]
    assert paper_lines(scalar2) == []
    for one, other in ((loss2, loss16), (scalar2, scalar16)):
        assert style.y_length(one) == pytest.approx(style.y_length(other))


def test_attention_maps_and_their_fit(drawn, inputs):
    attention = inputs["figure12"][0]
    for axes, k in zip(panels(drawn["figure12"]), (2, 16), strict=True):
        shown = axes.images[0].get_array()
        matrix = attention[attention["k"] == k]["weight"].to_numpy().reshape(64, 64)
        np.testing.assert_allclose(shown, np.maximum(matrix, 1e-4))
        assert axes.images[0].norm.vmax == 1
    assert r"$\rho=0.0989$ [paper 0.0989], $R^2=0.99990$" in axes.get_title(loc="left")


def test_selection_difference(drawn, inputs):
    selection, deep = inputs["figure13"]
    curves = selection.pivot(index="percentile", columns="L", values="selection_loss")
    left, right = panels(drawn["figure13"])
    assert [line.get_label() for line in left.lines] == ["$L=1$", "$L=256$"]
    np.testing.assert_array_equal(left.lines[1].get_ydata(), curves[deep])
    line = artist(right, "difference")
    np.testing.assert_array_equal(line.get_ydata(), curves[1] - curves[deep])


def test_local_exponents_are_drawn_between_their_depths(drawn, inputs):
    evaluations, fits, local, experiment = inputs["local_exponents"]
    reducible, exponents = panels(drawn["local_exponents"])
    losses = curve_of(evaluations, experiment, 0, 0, "loss")
    expected = losses - fits[0.0, 0.0].L0
    np.testing.assert_allclose(points(reducible, "(0, 0) reducible"), expected[expected > 0])
    guide = artist(reducible, "guide")
    assert np.diff(np.log(guide.get_ydata())) == pytest.approx(-np.diff(np.log(guide.get_xdata())))
    rows = local.query("a == 0.5 and b == 0")
    line = next(line for line in exponents.lines if line.get_gid() == "(0.5, 0) exponent")
    np.testing.assert_allclose(line.get_ydata().astype(float), rows["exponent"])
    assert (line.get_xdata() > rows["shallow"]).all()
    assert (line.get_xdata() < rows["deep"]).all()


def test_sensitivity_varies_one_factor_at_a_time(drawn, inputs):
    sensitivity, base, paper = inputs["training_sensitivity"]
    axes = panels(drawn["training_sensitivity"])
    rows = sensitivity.query("N == 64 and init == 0.3 and teacher == 'averaged'")
    rows = rows[rows["learning_rate"] == base["learning_rate"]]
    np.testing.assert_allclose(points(axes[0], "N=64 loss"), rows["loss"])
    np.testing.assert_allclose(points(axes[5], "N=64 disagreement"), rows["disagreement"].dropna())
    assert legend_texts(axes[8]) == ["averaged (base)", "sampled"]
    assert all(paper_lines(panel) == [paper] for panel in axes[:5])


def test_matched_floors_and_their_ratio(drawn, inputs):
    matched, table1 = inputs["table1_matched"]
    first, same, larger = panels(drawn["table1_matched"])
    np.testing.assert_array_equal(first.lines[0].get_xdata(), table1["nonlinear_L0"])
    np.testing.assert_array_equal(first.lines[1].get_xdata(), table1["linear_L0"])
    rows = matched[matched["d"] == 16]
    np.testing.assert_array_equal(same.lines[1].get_xdata(), rows["linear_L0"])
    assert "×29.8" in [text.get_text() for text in first.texts]
    assert larger.lines[0].get_markerfacecolor() == "white"  # an upper bound, not a fit
    assert same.lines[0].get_markerfacecolor() != "white"


def test_matched_floors_without_a_method(inputs):
    """As read from a CSV whose methods are all empty."""
    matched, table1 = inputs["table1_matched"]
    figure = figures.table1_matched(matched.assign(nonlinear_method=np.nan), table1)
    assert "upper bound" not in texts(figure)


def test_calibration(drawn, inputs):
    (table,) = inputs["calibration"]
    for axes, k in zip(panels(drawn["calibration"]), (2, 16), strict=True):
        line = axes.containers[0].lines[0]
        np.testing.assert_array_equal(line.get_ydata(), table[table["k"] == k]["L0"])
        assert paper_lines(axes) == [published.isotropic_floor(k)]


def test_calibration_without_a_floor_shows_the_deepest_loss(inputs):
    (table,) = inputs["calibration"]
    figure = figures.calibration(table.assign(L0=table["L0"].where(table["k"] == 2)))
    first, second = panels(figure)
    assert first.containers and not second.containers
    bound = next(line for line in second.lines if line.get_gid() == "top-16-bound")
    np.testing.assert_array_equal(bound.get_ydata(), table[table["k"] == 16]["deepest_loss"])
    assert "not run" not in texts(figure)


def test_convergence_marks_flagged_runs(drawn, inputs):
    evaluations, limit = inputs["convergence"]
    converged, flagged, line = panels(drawn["convergence"])[0].lines
    assert len(converged.get_xdata()) == (evaluations["final_change"] < limit).sum()
    assert flagged.get_xdata().min() >= limit == line.get_xdata()[0]
    assert flagged.get_markerfacecolor() == "white"


def test_training_curves(drawn, inputs):
    history, experiment = inputs["training_curves"]
    axes = panels(drawn["training_curves"])[0]
    run = history[(history["experiment"] == experiment) & (history["step"] > 0)]
    run = run[(run["a"] == 0) & (run["b"] == 0) & (run["L"] == 16)]
    line = artist(axes, "(0, 0) L=16 seed=0")
    np.testing.assert_array_equal(line.get_ydata(), run["validation_loss"])


# Missing runs -------------------------------------------------------------------------------------


def test_a_quick_scale_draws_what_it_has(quick):
    assert len(points(panels(quick["figure06"])[1], "(1, 0) loss")) == 4
    for name, missing in {
        "figure03": [1], "figure09": [0, 1, 2], "figure11": [0, 1, 2, 3], "figure12": [1],
        "figure14": [0, 1, 2, 3], "calibration": [1], "table1_matched": [1],
    }.items():  # fmt: skip
        empty = [
            index
            for index, axes in enumerate(panels(quick[name]))
            if NOT_RUN in [text.get_text() for text in axes.texts]
        ]
        assert empty == missing, name


FRAMES_ALWAYS_THERE = ("figure02", "figure08")


@pytest.mark.parametrize("name", [name for name in PANELS if name not in FRAMES_ALWAYS_THERE])
def test_no_runs_at_all(name, inputs):
    """Empty frames of runs, and no fits, leave panels that say so."""
    tables = [published.table(number) for number in (1, 2, 4)]

    def emptied(value):
        if isinstance(value, pd.DataFrame) and not any(value.equals(table) for table in tables):
            return value[:0]
        return {} if isinstance(value, dict) and name != "training_sensitivity" else value

    figure = getattr(figures, name)(*map(emptied, inputs[name]))
    assert NOT_RUN in texts(figure)


@pytest.mark.parametrize("name", ["figure04", "training_curves"])
def test_a_history_without_columns(name, inputs):
    given = [value if not is_history(value) else pd.DataFrame() for value in inputs[name]]
    assert NOT_RUN in texts(getattr(figures, name)(*given))


def is_history(value) -> bool:
    return isinstance(value, pd.DataFrame) and "step" in value


def test_modes_without_floors(inputs):
    modes, _, a, b = inputs["figure07"]
    assert "no fitted floors" in texts(figures.figure07(modes, {}, a, b))


# Style --------------------------------------------------------------------------------------------

DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)  # Machado, Oliveira and Fernandes (2009), in linear RGB


def linear_rgb(color: str) -> np.ndarray:
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def perceived(color: str, matrix: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of a colour seen through `matrix`."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(matrix @ linear_rgb(color), 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", [np.eye(3), DEUTERANOPIA], ids=["normal", "deuteranopia"])
def test_spectra_of_one_panel_can_be_told_apart(vision):
    for together in ([*TABLE1, *MIXED, (1.0, 0.25), (1.0, 1.0)], TABLE2, TOP16):
        for one, other in combinations(together, 2):
            colors = [
                perceived(style.spectrum_color(*spectrum), vision) for spectrum in (one, other)
            ]
            markers = {style.spectrum_marker(*spectrum) for spectrum in (one, other)}
            distance = np.linalg.norm(colors[0] - colors[1])
            assert distance > (18 if len(markers) == 1 else 8), (one, other)


def test_every_spectrum_is_legible_on_white():
    for spectrum in (*TABLE1, *TABLE2, *MIXED, (1.0, 0.25), (1.0, 1.0), (1.25, 0.0)):
        lightness = perceived(style.spectrum_color(*spectrum), np.eye(3))[0]
        assert lightness < 80, spectrum


@pytest.mark.parametrize(
    ("low", "high"), [(1e-8, 1), (0.3, 3.2), (1.99, 2.07), (2.1, 4.9), (0.02, 1.4), (55, 63)]
)
def test_log_ticks_are_few_and_inside(low, high):
    ticks = style.log_ticks(low, high)
    assert 3 <= len(ticks) <= 6
    assert low <= ticks.min() < ticks.max() <= high


@pytest.mark.parametrize("name", ["figure02", "figure06", "figure12"])
def test_the_same_data_give_the_same_bytes(name, inputs, tmp_path):
    written = []
    for attempt in ("first", "second"):
        figure = getattr(figures, name)(*inputs[name])
        paths = figures.save(figure, tmp_path / f"{attempt}.{name}")
        assert [path.name for path in paths] == [f"{attempt}.{name}.pdf", f"{attempt}.{name}.png"]
        written.append([path.read_bytes() for path in paths])
    assert written[0] == written[1]
    pdf, png = written[0]
    assert b"CreationDate" not in pdf
    assert b"/Subtype /Image" not in pdf or name == "figure12"
    width = int.from_bytes(png[16:20], "big")
    assert width == round(200 * figure.get_size_inches()[0])


def test_frames_and_settings_of_the_caller_are_left_alone(inputs):
    before = {key: matplotlib.rcParams[key] for key in style.STYLE if key in matplotlib.rcParams}
    for name in ("figure03", "figure04", "figure06", "figure07", "local_exponents"):
        given = inputs[name]
        copies = [value.copy() if isinstance(value, pd.DataFrame) else None for value in given]
        getattr(figures, name)(*given)
        for value, copy in zip(given, copies, strict=True):
            if copy is not None:
                pd.testing.assert_frame_equal(value, copy)
    assert {key: matplotlib.rcParams[key] for key in before} == before
