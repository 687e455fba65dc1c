"""Power-law fits: known answers, standard errors by other means, and data that cannot be fitted."""

import time

import numpy as np
import pytest
from scipy.optimize import curve_fit, nnls

from inverse_depth import published
from inverse_depth.fits import (
    TOO_FEW,
    FitSettings,
    bootstrap_fits,
    fit_gap,
    fit_identity,
    fit_power_law,
    local_exponents,
    percentile_interval,
    plateau,
)

DEPTHS = 2.0 ** np.arange(3, 9)
LOSSES = 2.007 + 0.5 * DEPTHS**-0.98


def noisy(scale, replicates, seed=0):
    noise = np.random.default_rng(seed).standard_normal((replicates, len(DEPTHS)))
    return LOSSES * np.exp(scale * noise)


# Recovery


@pytest.mark.parametrize("alpha", [0.3, 0.98, 2.0, 6.0])
@pytest.mark.parametrize(("L0", "c"), [(2.007, 0.5), (58.3, 1.9), (1e-3, 3.0), (0.08, 0.01)])
def test_exact_data_is_recovered(L0, c, alpha):
    depths = np.array([1.0, 2, 4, 8, 16, 32, 64])
    fit = fit_power_law(depths, L0 + c * depths**-alpha)
    assert fit.ok, fit.message
    np.testing.assert_allclose([fit.L0, fit.c, fit.alpha], [L0, c, alpha], rtol=1e-6)
    assert fit.r2 == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(fit.predict(depths), L0 + c * depths**-alpha, rtol=1e-6)


@pytest.mark.parametrize("floor", [0.0, 2.007])
def test_a_fixed_floor_is_kept(floor):
    fit = fit_power_law(DEPTHS, floor + 0.5 * DEPTHS**-1.3, floor=floor)
    assert (fit.L0, fit.L0_se) == (floor, 0)
    np.testing.assert_allclose([fit.c, fit.alpha], [0.5, 1.3], rtol=1e-6)


def test_with_floor_zero_the_fit_is_a_straight_line():
    losses = DEPTHS**-1.5 * np.exp(0.1 * np.random.default_rng(0).standard_normal(len(DEPTHS)))
    fit = fit_power_law(DEPTHS, losses, floor=0)
    (slope, intercept), covariance = np.polyfit(np.log(DEPTHS), np.log(losses), 1, cov="unscaled")
    residuals = np.log(losses) - np.polyval([slope, intercept], np.log(DEPTHS))
    slope_se = np.sqrt(covariance[0, 0] * residuals @ residuals / (len(DEPTHS) - 2))
    np.testing.assert_allclose(
        [fit.alpha, fit.c, fit.alpha_se, fit.r2],
        [
            -slope,
            np.exp(intercept),
            slope_se,
            np.corrcoef(np.log(DEPTHS), np.log(losses))[0, 1] ** 2,
        ],
    )


def test_order_of_depths_does_not_matter():
    losses = noisy(1e-3, 1)[0]
    assert fit_power_law(DEPTHS[::-1], losses[::-1]) == fit_power_law(DEPTHS, losses)


def test_the_fit_is_the_least_squares_optimum():
    losses = noisy(1e-3, 1)[0]
    fit = fit_power_law(DEPTHS, losses)

    def objective(L0, c, alpha):
        return np.sum(np.log(losses / (L0 + c * DEPTHS**-alpha)) ** 2)

    best = objective(fit.L0, fit.c, fit.alpha)
    for step in (0.999, 1.001):
        assert best < objective(fit.L0 * step, fit.c, fit.alpha)
        assert best < objective(fit.L0, fit.c * step, fit.alpha)
        assert best < objective(fit.L0, fit.c, fit.alpha * step)


# Standard errors


@pytest.mark.parametrize("floor", [None, 2.007])
def test_standard_errors_agree_with_another_fitter(floor):
    losses = noisy(1e-3, 1, seed=3)[0]
    fit = fit_power_law(DEPTHS, losses, floor=floor)

    def log_model(L, alpha, c, L0=floor):
        return np.log(L0 + c * L**-alpha)

    start = [0.98, 0.5] + ([2.007] if floor is None else [])
    best, covariance = curve_fit(
        log_model, DEPTHS, np.log(losses), p0=start, xtol=1e-14, ftol=1e-14
    )
    errors = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose([fit.alpha, fit.c], best[:2], rtol=1e-5)
    np.testing.assert_allclose(fit.alpha_se, errors[0], rtol=1e-3)
    if floor is None:
        np.testing.assert_allclose(fit.L0, best[2], rtol=1e-6)
        np.testing.assert_allclose(fit.L0_se, errors[2], rtol=1e-3)


def test_standard_errors_agree_with_monte_carlo():
    fits = [fit_power_law(DEPTHS, losses) for losses in noisy(2e-4, 500)]
    assert all(fit.ok for fit in fits)
    for name in ("L0", "alpha"):
        estimates = np.array([getattr(fit, name) for fit in fits])
        variances = np.array([getattr(fit, f"{name}_se") ** 2 for fit in fits])
        assert np.sqrt(variances.mean()) == pytest.approx(estimates.std(), rel=0.12)
        truth = {"L0": 2.007, "alpha": 0.98}[name]
        assert estimates.mean() == pytest.approx(truth, abs=4 * estimates.std() / np.sqrt(500))


# What cannot be fitted


@pytest.mark.parametrize(
    ("depths", "losses", "floor", "reason"),
    [
        ([8, 16], [2.2, 2.1], None, TOO_FEW),
        ([8, 16, 32], [2.2, 2.1, 2.05], None, TOO_FEW),
        ([8, 16], [2.2, 2.1], 0, TOO_FEW),
        ([], [], None, TOO_FEW),
        ([1, 2, 4, 8], [3, np.nan, 2, 1.9], None, "not finite at L = 2"),
        ([1, 2, 4, 8], [3, np.inf, 2, 1.9], 0, "not finite at L = 2"),
        ([1, 2, 4, 8], [3, 2, 0, 1.9], 0, "not positive at L = 4"),
        ([1, 2, 4, 8], [3, 2, -1, 1.9], None, "not positive at L = 4"),
        ([1, 2, 4, 8], [2, 2, 2, 2], None, "do not decay"),
        ([1, 2, 4, 8], [1, 2, 3, 4], None, "do not decay"),
        ([1, 2, 4, 8], [1, 2, 3, 4], 0, "alpha is at its bound, 0.01"),
        ([1, 2, 4, 8], [1, 1e-4, 1e-8, 1e-12], 0, "alpha is at its bound, 10"),
        ([1, 2, 4, 8], [1.0, 0.5, 0.25, 0.125], None, "floor is at its bound"),
        ([1, 2, 4, 8], [1.0, 0.5, 0.2, 0.05], None, "floor is at its bound"),
        ([1, 2, 4, 8], [3, 2.5, 2.2, 2.1], 5.0, "no loss is above the floor 5"),
    ],
)
def test_a_fit_that_fails_says_why(depths, losses, floor, reason):
    fit = fit_power_law(depths, losses, floor=floor)
    assert not fit.ok
    assert reason in fit.message
    numbers = [fit.L0, fit.L0_se, fit.c, fit.alpha, fit.alpha_se, fit.r2]
    assert np.isnan(numbers).all()
    assert np.isnan(fit.predict([1, 2])).all()
    assert fit.depths == tuple(depths)


def test_noise_around_a_constant_is_hardly_ever_taken_for_a_power_law():
    noise = np.random.default_rng(0).standard_normal((100, len(DEPTHS)))
    assert sum(fit_power_law(DEPTHS, np.exp(1e-2 * row)).ok for row in noise) <= 5


def test_a_known_floor_above_some_losses_still_fits_the_others():
    losses = 2 + DEPTHS**-1.0
    losses[-1] = 1.999
    fit = fit_power_law(DEPTHS, losses, floor=2.0)
    assert fit.ok
    assert fit.alpha == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize(
    ("depths", "floor", "words"),
    [
        ([1, 2, 2, 4], None, "depths"),
        ([0, 1, 2, 4], None, "depths"),
        ([1, 2, 4], None, "alike"),
        ([1, 2, 4, 8], -1.0, "floor is -1"),
        ([1, 2, 4, 8], np.nan, "floor is nan"),
    ],
)
def test_wrong_arguments_are_named(depths, floor, words):
    with pytest.raises(ValueError, match=words):
        fit_power_law(depths, [4, 3, 2, 1.5], floor=floor)


# The gap


def test_the_gap_is_recovered():
    fit = fit_gap(DEPTHS, 2.007 - 0.3 * DEPTHS**-0.983, 2.007)
    np.testing.assert_allclose([fit.c, fit.alpha], [0.3, 0.983], rtol=1e-6)
    np.testing.assert_allclose(fit.predict(DEPTHS), 0.3 * DEPTHS**-0.983, rtol=1e-6)


@pytest.mark.parametrize(
    ("at_64", "L0", "reason"),
    [
        (2.1, 2.007, "not below the floor 2.007 at L = 64"),
        (2.007, 2.007, "not below the floor 2.007 at L = 64"),
        (np.nan, 2.007, "not below the floor 2.007 at L = 64"),
        (1.99, np.nan, "floor L0 is missing"),
    ],
)
def test_a_gap_that_cannot_be_fitted_says_why(at_64, L0, reason):
    shared_error = 2.007 - 0.3 * DEPTHS**-0.983
    shared_error[DEPTHS == 64] = at_64
    fit = fit_gap(DEPTHS, shared_error, L0)
    assert reason in fit.message
    assert np.isnan(fit.alpha)


# Local exponents, bootstrap, plateau


def test_local_exponents_of_a_power_law_are_its_exponent():
    np.testing.assert_allclose(local_exponents(DEPTHS, LOSSES, 2.007), 0.98)
    floors = np.array([2.007, 2.0])
    both = local_exponents(DEPTHS, np.stack([LOSSES, LOSSES - 0.007]), floors)
    np.testing.assert_allclose(both, 0.98)


def test_local_exponents_are_missing_below_the_floor():
    exponents = local_exponents([1, 2, 4], [3.0, 2.5, 1.9], 2.0)
    assert exponents[0] == pytest.approx(1)
    assert np.isnan(exponents[1])


def test_bootstrap_intervals_cover_and_are_quick():
    replicates = noisy(2e-4, 200)
    begun = time.perf_counter()
    fits = bootstrap_fits(DEPTHS, replicates)
    assert time.perf_counter() - begun < 2
    assert not fits.at_bound.any()
    low, high = percentile_interval(fits.alpha)
    assert low < 0.98 < high
    assert (high - low) / 2 == pytest.approx(1.96 * fits.alpha.std(), rel=0.2)
    one = fit_power_law(DEPTHS, replicates[7])
    assert (fits.L0[7], fits.alpha[7]) == (one.L0, one.alpha)


def test_replicates_at_a_bound_keep_it_and_unusable_ones_are_missing():
    replicates = np.stack([LOSSES, DEPTHS**-1.0, np.full(len(DEPTHS), np.nan)])
    fits = bootstrap_fits(DEPTHS, replicates)
    assert fits.at_bound.tolist() == [False, True, False]
    assert fits.L0[1] == pytest.approx(0, abs=1e-6)
    assert fits.alpha[1] == pytest.approx(1, abs=1e-3)
    assert np.isnan([fits.L0[2], fits.alpha[2]]).all()


def test_three_depths_can_be_bootstrapped():
    fits = bootstrap_fits(DEPTHS[:3], LOSSES[None, :3])
    np.testing.assert_allclose([fits.L0[0], fits.alpha[0]], [2.007, 0.98], rtol=1e-6)


def test_bootstrap_names_a_wrong_shape():
    with pytest.raises(ValueError, match=r"replicate_losses has shape \(6,\)"):
        bootstrap_fits(DEPTHS, LOSSES)


def test_an_interval_needs_nine_in_ten_replicates():
    values = np.arange(100.0)
    values[:10] = np.nan
    low, high = percentile_interval(values)
    assert (low, high) == pytest.approx(np.percentile(values[10:], [2.5, 97.5]))
    values[:11] = np.nan
    assert np.isnan(percentile_interval(values)).all()
    assert np.isnan(percentile_interval([])).all()


def test_plateau_joins_scatter_and_shared_error():
    found = plateau([8, 4, 2, 1], [58.1, 58.2, 58.6, 60.0], 2, loss_se=[0.1, 0.2, 0.3, 9.0])
    assert found.depths == (2, 4, 8)
    assert found.loss == pytest.approx(58.3)
    variance = np.var([58.1, 58.2, 58.6], ddof=1) / 3 + (0.1**2 + 0.2**2 + 0.3**2) / 3
    assert found.se == pytest.approx(np.sqrt(variance))


def test_plateau_of_one_depth_has_the_error_of_its_loss():
    assert plateau([1, 4], [3.0, 2.0], 2, loss_se=[0.1, 0.2]).se == pytest.approx(0.2)
    assert np.isnan(plateau([1, 4], [3.0, 2.0], 2).se)


def test_a_missing_plateau_says_why():
    assert "no depth at or above 2" in plateau([1], [3.0], 2).message
    assert "not finite at L = 4" in plateau([1, 2, 4], [3.0, 2.0, np.nan], 2).message
    assert np.isnan(plateau([], [], 2).loss)


def test_identity_weight_is_the_least_squares_one():
    P = 12
    rng = np.random.default_rng(0)
    attention = 0.3 * np.eye(P) + 0.7 / P + 0.01 * rng.random((P, P))
    attention /= attention.sum(axis=1, keepdims=True)
    rho, r2 = fit_identity(attention)
    direction = (np.eye(P) - 1 / P).ravel()[:, None]
    expected, distance = nnls(direction, (attention - 1 / P).ravel())
    assert rho == pytest.approx(expected[0])
    assert r2 == pytest.approx(1 - distance**2 / ((attention - attention.mean()) ** 2).sum())
    assert fit_identity(0.0989 * np.eye(P) + 0.9011 / P) == pytest.approx((0.0989, 1))
    with pytest.raises(ValueError, match="attention has shape"):
        fit_identity(np.ones((2, 3)))


def test_settings_name_the_depths():
    settings = FitSettings(easy_depths={"2,0.5": (2, 32)})
    assert settings.easy_range(2, 0.5) == (2, 32)
    assert settings.easy_range(2, 1) == (1, np.inf)
    assert [settings.plateau_start(a) for a in (0, 0.5, 1, 1.25)] == [2, 2, 3, 3]


# The published numbers


def test_published_tables_are_complete():
    assert [len(published.table(n)) for n in range(1, 6)] == [7, 7, 9, 7, 7]
    assert all(published.table(n).notna().all().all() for n in range(1, 6))
    assert published.scalar("context_update_scalar_top16") == -2.3
    mine = published.table(1)  # a copy of the caller's own
    mine["nonlinear_L0"] = 0
    assert published.table(1)["nonlinear_L0"].iloc[0] == 2.007


def test_published_isotropic_floors():
    assert published.isotropic_floor(2) == 2.007
    assert published.isotropic_floor(16) == pytest.approx(0.1732 / 0.631, rel=1e-3)
    for call in (lambda: published.table(6), lambda: published.scalar("rho")):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError, match="k is 3"):
        published.isotropic_floor(3)
