"""Tables from synthetic runs: known answers, missing runs, several seeds, failed fits."""

import io

import numpy as np
import pandas as pd
import pytest
from synthetic import (
    DEPTHS,
    LINEAR,
    paper_evaluations,
    paper_floors,
    power_law,
    runs,
)

from inverse_depth import published, tables
from inverse_depth.fits import FitSettings, fit_power_law
from inverse_depth.tables.curves import NOT_RUN

SETTINGS = FitSettings()
COLUMNS = {
    "figure6_fits": "a,b,L0,c,alpha,alpha_se,r2",
    "table1": "a,b,nonlinear_L0,nonlinear_L0_se,linear_L0,linear_L0_se,paper_nonlinear_L0,"
    "paper_linear_L0,nonlinear_deviation,linear_deviation",
    "table2": "a,b,zeta,alpha,alpha_se,two_zeta,paper_alpha",
    "table3": "k,a,b,theory,theory_se,finite_context_floor,measured,difference,paper_theory,"
    "paper_measured",
    "table4": "k,a,b,L0,alpha,alpha_se,r2,paper_L0,paper_alpha,paper_r2",
    "table5": "a,b,alpha,alpha_se,r2,paper_alpha,paper_r2",
    "table1_matched": "a,b,d,P,nonlinear_L0,linear_L0,ratio",
    "training_sensitivity": "N,init,teacher,learning_rate,L,loss,loss_se,shared_error,disagreement",
    "calibration": "k,P,L0,L0_se,paper_L0",
}


def every_table(evaluations, floors, settings=SETTINGS):
    return {
        "figure6_fits": tables.figure6_fits(evaluations, settings),
        "table1": tables.table1(evaluations, settings),
        "table2": tables.table2(evaluations, settings),
        "table3": tables.table3(evaluations, floors, settings),
        "table3_theory": tables.table3_theory(floors),
        "table4": tables.table4(evaluations, settings),
        "table5": tables.table5(evaluations, settings),
        "table1_matched": tables.table1_matched(evaluations, settings),
        "training_sensitivity": tables.training_sensitivity(evaluations),
        "calibration": tables.calibration(evaluations, settings),
    }


@pytest.fixture(scope="module")
def evaluations():
    return paper_evaluations()


@pytest.fixture(scope="module")
def all_tables(evaluations):
    return every_table(evaluations, paper_floors())


def at(frame, **where):
    return tables.curves.select(frame, **where).squeeze()


def bootstrap_of(evaluations, replicates=50, scale=1e-4):
    """Replicates that shift all depths of a spectrum alike, as common contexts do."""
    shifts = scale * np.random.default_rng(0).standard_normal(replicates)
    frames = [
        pd.DataFrame(
            {
                "experiment": run.experiment,
                "run": run.run,
                "replicate": np.arange(replicates),
                "loss": run.loss * np.exp(shifts),
                "shared_error": run.shared_error * np.exp(shifts),
            }
        )
        for run in evaluations.itertuples()
    ]
    return pd.concat(frames, ignore_index=True)


# Columns and known answers


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_those_promised(all_tables, name):
    promised = COLUMNS[name].split(",")
    assert list(all_tables[name].columns[: len(promised)]) == promised


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_do_not_need_runs(name):
    empty = paper_evaluations().iloc[:0]
    promised = COLUMNS[name].split(",")
    assert list(every_table(empty, None)[name].columns[: len(promised)]) == promised


@pytest.mark.parametrize(
    ("name", "ours", "paper"),
    [
        ("table1", "nonlinear_L0", "paper_nonlinear_L0"),
        ("table1", "linear_L0", "paper_linear_L0"),
        ("table2", "alpha", "paper_alpha"),
        ("table3", "theory", "paper_theory"),
        ("table4", "L0", "paper_L0"),
        ("table4", "alpha", "paper_alpha"),
        ("table5", "alpha", "paper_alpha"),
    ],
)
def test_runs_with_the_papers_answers_give_the_papers_tables(all_tables, name, ours, paper):
    frame = all_tables[name]
    assert frame[paper].notna().all()
    np.testing.assert_allclose(frame[ours], frame[paper], rtol=1e-3)


def test_measured_plateaus(all_tables):
    frame = all_tables["table3"]
    np.testing.assert_allclose(frame["measured"], frame["paper_measured"], rtol=1e-3)
    np.testing.assert_allclose(
        100 * frame["difference"], published.table(3)["difference_percent"], atol=0.1
    )
    assert at(frame, k=2, a=0, b=0)["plateau_depths"] == "2 3 4 8"
    assert at(frame, k=2, a=1, b=1)["plateau_depths"] == "3 4 8"


def test_table2_has_its_references(evaluations):
    references = pd.DataFrame(
        {"a": [2.0], "b": [1.0], "constrained_slope": [1.1], "free_slope": [2.2]}
    )
    frame = tables.table2(evaluations, SETTINGS, references)
    row = at(frame, a=2, b=1)
    assert (row["zeta"], row["two_zeta"]) == (1, 2)
    assert (row["constrained_reference"], row["free_reference"]) == (1.1, 2.2)
    assert row["infinite_alpha"] == pytest.approx(2)
    assert np.isnan(at(frame, a=2, b=2)["free_reference"])


def test_easy_depths_are_chosen_per_spectrum(evaluations):
    settings = FitSettings(easy_depths={"2,1": (4, 32)})
    frame = tables.table2(evaluations, settings)
    assert at(frame, a=2, b=1)["fit_depths"] == "4 8 16 32"
    assert at(frame, a=2, b=2)["fit_depths"] == "1 2 4 8 16 32 64"


def test_the_deep_regime_is_marked(evaluations):
    frame = tables.figure6_fits(evaluations, FitSettings(deep_from=16))
    assert set(frame["fit_depths"]) == {"16 32 64 128 256"}


def test_the_theory_deviates_by_combined_errors():
    floors = paper_floors()
    floors["theory"] += 3 * np.hypot(floors["theory_se"], floors["theory_se"])
    np.testing.assert_allclose(tables.table3_theory(floors)["deviation_in_se"], 3)


def test_theory_at_other_dimensions_is_not_set_beside_the_plateau(evaluations):
    frame = tables.table3(evaluations, paper_floors().assign(d=16, P=64), SETTINGS)
    assert frame[["theory", "finite_context_floor", "difference"]].isna().all().all()
    assert frame["measured"].notna().all()
    assert set(frame["note"]) == {"theory left out, it is for d = 16, P = 64"}
    unknown = tables.table3(evaluations, paper_floors().drop(columns=["d", "P"]), SETTINGS)
    assert unknown["difference"].notna().all()


# The linear floor


def test_the_linear_floor_says_how_it_was_found(evaluations):
    depths = [1, 2, 3, 4, 6, 8]
    fitted = runs("linear_top2", depths, power_law(depths, 58.3, 1.9, 4), **LINEAR)
    found = tables.linear_floor(fitted, "linear_top2", SETTINGS, a=0, b=0)
    assert (found["method"], found["fit_depths"]) == ("fit", "1 2 3 4 6 8")
    assert found["L0"] == pytest.approx(58.3)

    flat = runs("linear_top2", depths, [60, 58.2, 58.3, 58.4, 58.3, 58.4], **LINEAR)
    found = tables.linear_floor(flat, "linear_top2", FitSettings(plateau_identifiable=0), a=0, b=0)
    assert (found["method"], found["fit_depths"]) == ("plateau mean", "2 3 4 6 8")
    assert found["L0"] == pytest.approx(58.32)
    assert "no fit: " in found["note"]

    found = tables.linear_floor(flat.iloc[:1], "linear_top2", SETTINGS, a=0, b=0)
    assert np.isnan(found["L0"])
    assert found["method"] == ""
    assert "no depth at or above 2" in found["note"]


# Missing and extra runs


def test_missing_runs_are_missing_numbers(evaluations):
    few = evaluations[(evaluations["experiment"] == "nonlinear_top2") & (evaluations["b"] == 0)]
    found = every_table(few, None)
    table1 = found["table1"]
    assert len(table1) == 7
    assert table1["paper_linear_L0"].notna().all()
    assert table1["linear_L0"].isna().all()
    assert set(table1["linear_note"]) == {NOT_RUN}
    missing = table1[table1["b"] != 0]
    assert missing["nonlinear_L0"].isna().all()
    assert set(missing["nonlinear_note"]) == {NOT_RUN}
    assert table1[table1["b"] == 0]["nonlinear_L0"].notna().all()
    for name in ("table2", "table4"):
        assert set(found[name]["note"]) == {NOT_RUN}
    assert found["table3"][["theory", "measured"]].isna().all().all()
    assert len(found["table3_theory"]) == 9


def test_unpublished_spectra_come_last():
    extra = runs("nonlinear_top2", DEPTHS, power_law(DEPTHS, 1, 1, 1), a=3.0)
    for frame in (tables.table1(extra, SETTINGS), tables.table5(extra, SETTINGS)):
        assert len(frame) == 8
        assert frame.iloc[-1]["a"] == 3
        assert frame.iloc[-1].filter(like="paper_").isna().all()
    floors = pd.concat(
        [paper_floors(), pd.DataFrame([{"k": 2, "a": 9.0, "b": 0.0, "theory": 1.0}])]
    )
    assert tables.table3(extra, floors, SETTINGS).iloc[-1]["a"] == 9


def test_too_few_depths_are_said(evaluations):
    shallow = evaluations[evaluations["L"] <= 32]
    table1 = tables.table1(shallow, SETTINGS)
    assert table1["nonlinear_L0"].isna().all()
    assert table1["nonlinear_note"].str.contains("too few depths: 3, at least 4 needed").all()
    table5 = tables.table5(shallow, SETTINGS)
    assert table5["alpha"].isna().all()
    assert table5["note"].str.contains("too few depths").all()


def test_a_shared_error_above_the_floor_is_said(evaluations):
    high = evaluations.copy()
    high.loc[high["L"] == 64, "shared_error"] = 99
    table5 = tables.table5(high, SETTINGS)
    assert table5["alpha"].isna().all()
    assert table5["note"].str.contains("at L = 64").all()


def test_unconverged_runs_are_flagged(evaluations):
    flagged = evaluations.copy()
    flagged["converged"] = ~flagged["L"].isin([4, 64, 256])
    frame = tables.figure6_fits(flagged, SETTINGS)
    assert set(frame["note"]) == {"not converged at L = 64, 256"}
    assert frame["L0"].notna().all()


def test_a_diverged_run_fails_the_fit(evaluations):
    broken = evaluations.copy()
    broken.loc[broken["L"] == 64, "loss"] = np.nan
    frame = tables.table4(broken, SETTINGS)
    assert frame["L0"].isna().all()
    assert frame["note"].str.contains("not finite at L = 64").all()


# Seeds and bootstrap


def several_seeds(spread=0.01, seeds=3):
    rng = np.random.default_rng(0)
    losses = power_law(DEPTHS, 2.007, 0.8, 0.98)
    return pd.concat(
        [
            runs(
                "nonlinear_top2",
                DEPTHS,
                losses * (1 + spread * rng.standard_normal(len(DEPTHS))),
                seed=seed,
                shared_error=losses,
            )
            for seed in range(seeds)
        ],
        ignore_index=True,
    )


def test_seeds_are_averaged_and_widen_the_error():
    frame = several_seeds()
    curve = tables.depth_curve(frame, "nonlinear_top2", a=0, b=0)
    losses = frame.pivot(index="L", columns="seed", values="loss").to_numpy()
    np.testing.assert_allclose(curve.loss, losses.mean(axis=1))
    np.testing.assert_allclose(curve.loss_se**2, 1e-6 + losses.var(axis=1, ddof=1) / 3)
    assert curve.seeds == 3


def test_the_fit_is_that_of_the_averaged_seeds():
    frame = several_seeds(spread=1e-4)
    mean = frame.groupby("L")["loss"].mean().loc[8:]
    fit = fit_power_law(mean.index, mean)
    row = at(tables.figure6_fits(frame, SETTINGS), a=0, b=0)
    np.testing.assert_allclose([row["L0"], row["alpha"]], [fit.L0, fit.alpha], rtol=1e-6)
    assert row["seeds"] == 3


def test_one_seed_has_the_error_of_its_contexts():
    curve = tables.depth_curve(several_seeds(seeds=1), "nonlinear_top2", a=0, b=0)
    np.testing.assert_allclose(curve.loss_se, 1e-3)


def test_common_shifts_move_the_floor_and_not_the_exponent(evaluations):
    bootstrap = bootstrap_of(evaluations)
    row = at(tables.figure6_fits(evaluations, SETTINGS, bootstrap), a=0, b=0)
    assert row["L0_low"] < 2.007 < row["L0_high"]
    assert row["L0_high"] / row["L0_low"] - 1 == pytest.approx(4e-4, rel=0.4)
    np.testing.assert_allclose([row["alpha_low"], row["alpha_high"]], 0.98, rtol=1e-4)
    row = at(tables.table5(evaluations, SETTINGS, bootstrap), a=0, b=0)
    np.testing.assert_allclose([row["alpha_low"], row["alpha_high"]], 0.98, rtol=1e-4)
    assert tables.table4(evaluations, SETTINGS, bootstrap)["alpha_low"].notna().all()


def test_the_bootstrap_draws_seeds_too():
    frame = several_seeds(spread=1e-4)
    bootstrap = bootstrap_of(frame, replicates=400, scale=0)
    drawn, shared_error = tables.replicate_curves(
        bootstrap, frame, "nonlinear_top2", DEPTHS, seed=0, a=0, b=0
    )
    assert drawn.shape == shared_error.shape == (400, 9)
    losses = frame.pivot(index="L", columns="seed", values="loss").to_numpy()
    np.testing.assert_allclose(drawn.std(axis=0), losses.std(axis=1) / np.sqrt(3), rtol=0.15)
    np.testing.assert_allclose(drawn.mean(axis=0), losses.mean(axis=1), rtol=1e-4)
    row = at(tables.figure6_fits(frame, SETTINGS, bootstrap), a=0, b=0)
    assert row["alpha_high"] - row["alpha_low"] > 1e-4


def test_without_replicates_there_is_no_interval(evaluations):
    bootstrap = bootstrap_of(evaluations[evaluations["L"] != 64])
    for given in (None, bootstrap, bootstrap.iloc[:0]):
        frame = tables.figure6_fits(evaluations, SETTINGS, given)
        assert frame[["alpha_low", "alpha_high"]].isna().all().all()
        assert frame["alpha"].notna().all()


def test_mixed_and_repeated_runs_are_refused(evaluations):
    wider = evaluations[evaluations["experiment"] == "nonlinear_top2"].assign(N=64, seed=1)
    with pytest.raises(ValueError, match="mixes N = 16, 64"):
        tables.figure6_fits(pd.concat([evaluations, wider]), SETTINGS)
    with pytest.raises(ValueError, match="two runs of one depth and seed"):
        tables.figure6_fits(pd.concat([evaluations, evaluations]), SETTINGS)
    with pytest.raises(ValueError, match="2 rows have"):
        tables.table3_theory(pd.concat([paper_floors(), paper_floors()]))


# The other tables


def test_matched_dimensions_pair_the_experiments(evaluations):
    linear = runs("linear_matched", [1, 2, 3, 4], [7, 6, 6, 6], **LINEAR | {"d": 16, "P": 64.0})
    wide = runs("nonlinear_matched", [1, 2, 4], [30, 25, 22], **LINEAR | {"model": "nonlinear"})
    frame = tables.table1_matched(pd.concat([evaluations, linear, wide]), SETTINGS)
    assert list(zip(frame["d"], frame["P"], strict=True)) == 7 * [(16, 64)] + 7 * [(128, 1024)]
    small, large = at(frame, a=0, b=0, d=16), at(frame, a=0, b=0, d=128)
    assert small["ratio"] == pytest.approx(6 / 2.007, rel=1e-3)
    assert small["nonlinear_method"] == "fit"
    assert large["nonlinear_L0"] == 22
    assert large["nonlinear_method"] == "loss at L = 4, an upper bound"
    assert "too few depths" in large["nonlinear_note"]
    missing = at(frame, a=1, b=0, d=16)
    assert np.isnan(missing["ratio"])
    assert missing["linear_note"] == NOT_RUN


def test_calibration_singles_out_a_context_length():
    frames = [
        runs(f"calibration_top{k}", DEPTHS, power_law(DEPTHS, L0, 1, 1), k=k, P=float(P))
        for k, P, L0 in [(2, 128, 1.9), (2, 64, 2.007), (16, 64, 0.2744)]
    ]
    frame = tables.calibration(pd.concat(frames), SETTINGS)
    assert frame["P"].tolist() == [64, 128, 64]
    np.testing.assert_allclose(frame["L0"], [2.007, 1.9, 0.2744], rtol=1e-6)
    np.testing.assert_allclose(frame["deviation"], [0, 1.9 / 2.007 - 1, 0], atol=1e-3)


def test_calibration_of_few_depths_keeps_the_deepest_loss():
    frame = tables.calibration(runs("calibration_top2", [4, 16], [2.2, 2.1]), SETTINGS)
    assert np.isnan(frame["L0"].iloc[0])
    assert (frame["deepest"].iloc[0], frame["deepest_loss"].iloc[0]) == (16, 2.1)


def test_training_sensitivity_has_a_row_per_factor_and_depth():
    frames = [
        runs("sensitivity", [1, 4], [3, N / 16], N=N, seed=seed, teacher=teacher)
        for N in (64, 16)
        for teacher in ("averaged", "sampled")
        for seed in (0, 1)
    ]
    frame = tables.training_sensitivity(pd.concat(frames))
    assert len(frame) == 8
    assert frame["N"].tolist() == 4 * [16] + 4 * [64]
    assert at(frame, N=64, L=4, teacher="sampled")["loss"] == 4
    assert set(frame["seeds"]) == {2}


def test_sensitivity_chooses_the_exponent_nearest_to_the_published_one():
    depths = [8, 32, 128]
    laws = {1: (2.02, 0.9), 2: (2.03, 0.7), 3: (2.2, 0.98)}  # the last floor is too high
    frames = [
        runs("sensitivity", depths, power_law(depths, L0, 2, alpha), init=init)
        for init, (L0, alpha) in laws.items()
    ]
    frames.append(runs("sensitivity", depths, [2.1, 2.09, 2.0], init=4))
    frame = tables.training_sensitivity(pd.concat(frames)).groupby("init")
    np.testing.assert_allclose(frame["L0"].mean().iloc[:3], [2.02, 2.03, 2.2])
    np.testing.assert_allclose(frame["alpha"].mean().iloc[:3], [0.9, 0.7, 0.98])
    assert np.isnan(frame["alpha"].mean()[4])
    assert frame["chosen"].all().to_dict() == {1: True, 2: False, 3: False, 4: False}


def test_local_exponents_stay_at_the_exponent(evaluations):
    frame = tables.local_exponents(
        evaluations, "nonlinear_top2", SETTINGS, bootstrap_of(evaluations)
    )
    assert len(frame) == 7 * 8
    np.testing.assert_allclose(frame[["exponent", "low", "high"]], 0.98, rtol=1e-3)
    first = frame.iloc[0]
    assert (first["shallow"], first["deep"]) == (1, 2)
    failed = tables.local_exponents(evaluations[evaluations["L"] < 64], "nonlinear_top2", SETTINGS)
    assert len(failed) == 7
    assert failed["exponent"].isna().all()
    assert failed["note"].str.contains("too few depths").all()


def test_experiment_fits_have_every_spectrum(evaluations):
    frame = tables.experiment_fits(evaluations, "nonlinear_top16", SETTINGS)
    assert frame[["k", "a", "b"]].values.tolist() == [
        [16, 0, 0.25],
        [16, 0, 0.5],
        [16, 0.25, 0.25],
        [16, 0.25, 0.5],
    ]
    assert tables.experiment_fits(evaluations, "looped", SETTINGS).empty


def test_predictable_component_deviates_with_a():
    given = pd.DataFrame(
        {
            "k": 2,
            "a": [1.0, 0.0],
            "b": 0.0,
            "d": 128,
            "P": 1024,
            "measured": [0.9, 1.01],
            "measured_se": 0.01,
            "predicted": 1.0,
            "validity": [0.5, 0.01],
        }
    )
    frame = tables.predictable_component(given)
    np.testing.assert_allclose(frame["deviation"], [0.01, -0.1])


# Markdown


def test_markdown_is_readable():
    frame = pd.DataFrame(
        {
            "a": [0.25, 1.0],
            "L0": [2.0071234, np.nan],
            "L0_se": [0.0123456, np.nan],
            "r2": [0.999812, np.nan],
            "nonlinear_deviation": [0.0123, -0.2],
            "P": [1024.0, np.inf],
            "L": [8, 16],
            "converged": [True, False],
            "note": ["", "not run"],
            "tiny": [1.23456e-7, 0.0],
        }
    )
    lines = tables.to_markdown(frame).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == list(frame.columns)
    first = ["0.25", "2.007", "0.012", "0.99981", "+1.2 %", "1024", "8", "yes", "–", "1.235e-07"]
    assert cells[2] == first
    assert cells[3] == ["1", "–", "–", "–", "-20.0 %", "∞", "16", "no", "not run", "0"]


def test_every_table_has_markdown_and_survives_csv(all_tables):
    for name, frame in all_tables.items():
        text = tables.to_markdown(frame)
        assert "nan" not in text.lower(), name
        assert len(text.splitlines()) == len(frame) + 2
        again = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
        assert list(again.columns) == list(frame.columns)
    assert tables.to_markdown(all_tables["calibration"].iloc[:0]).startswith("|")
