"""Theory of linear attention against closed forms, exact arithmetic and independent sampling."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import eval_jacobi, gammaln, roots_jacobi
from scipy.stats import ortho_group

from inverse_depth.spectra import power_law
from inverse_depth.theory import (
    characteristic_depths,
    constrained_reference,
    exponent_between,
    finite_context_free_reference,
    free_loss,
    free_reference,
    jacobi_free_loss,
    mean_top_score,
    monte_carlo_floor,
    optimal_update_scale,
    predictable_component,
    predictable_geometry,
    repeated_update_loss,
    validity_conditions,
    zeta,
)
from inverse_depth.theory.exponents import easy_contexts
from inverse_depth.theory.floor import (
    draw_contexts,
    finite_context_features,
    floors_by_degree,
    population_features,
    selected_mean,
    summed_moments,
)
from inverse_depth.theory.jackknife import delete_block_jackknife


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def spectrum(d: int, exponent: float) -> np.ndarray:
    return power_law(d, exponent)


# --- Monte Carlo floor -------------------------------------------------------------------------


def test_floor_in_one_dimension_with_two_tokens():
    """At d = 1 any token of the query's sign may be selected: h = 1 / pi, T = G = 1."""
    (floor,) = monte_carlo_floor(
        1, 2, 0.0, [(0.0, 1)], degree=1, contexts=40_000, generator=rng(0), chunk=4000
    )
    assert abs(floor.population[0] - (1 - 1 / np.pi**2)) < 4 * floor.population_se[0]
    assert floor.population_se[0] < 0.01


def test_target_of_all_tokens_is_unpredictable_from_the_query():
    """With k = P the target is the mean token: the floor is tr(Sigma Omega) / P at any degree."""
    (floor,) = monte_carlo_floor(
        5, 8, 0.5, [(0.25, 8)], degree=2, contexts=20_000, generator=rng(1), chunk=500
    )
    expected = np.sum(spectrum(5, 0.75)) / 8
    assert np.all(np.abs(floor.population - expected) < 4 * floor.population_se)


def test_floor_of_table_3_at_the_dimension_of_the_paper():
    (floor,) = monte_carlo_floor(
        128, 1024, 0.0, [(0.0, 2)], degree=2, contexts=2000, generator=rng(2)
    )
    assert floor.population_se[-1] < 0.3
    assert abs(floor.population[-1] - 59.37) < 3 * floor.population_se[-1]
    # Polynomials in the context's own covariance reach lower, by about one in fifty.
    assert 0.005 < 1 - floor.finite_context[-1] / floor.population[-1] < 0.035


def test_rotation_and_literal_moments_leave_the_floor_unchanged():
    """Eq 54 with a Haar O, full matrices and eq 6 by sorting equals the eigenbasis form."""
    d, P, k, degree, contexts, seed = 4, 9, 3, 3, 60, 3
    eigenvalues, teacher = spectrum(d, 1.0), spectrum(d, 0.5)
    (floor,) = monte_carlo_floor(
        d, P, 1.0, [(0.5, k)], degree=degree, contexts=contexts, generator=rng(seed), blocks=6
    )
    rotations = ortho_group(d, seed=seed)
    moments = np.zeros((2, degree + 1, degree + 1))
    for query, tokens in draw_contexts(eigenvalues, P, contexts, 1, rng(seed)):
        rotation = rotations.rvs()
        q, X = rotation @ query[0], rotation @ tokens[0].T
        Sigma, Omega = rotation * eigenvalues @ rotation.T, rotation * teacher @ rotation.T
        S = X @ X.T / P
        cosine = X.T @ q / (np.linalg.norm(X, axis=0) * np.linalg.norm(q))
        t = X[:, np.argsort(cosine)[-k:]].mean(axis=1)
        for i, operator in enumerate((Sigma, S)):
            powers = [np.linalg.matrix_power(operator, r) @ q for r in range(1, degree + 1)]
            vectors = np.stack([t, *powers])
            moments[i] += vectors @ Omega @ vectors.T / contexts
    for moment, ours in zip(moments, (floor.population, floor.finite_context), strict=True):
        T, h, G = moment[0, 0], moment[0, 1:], moment[1:, 1:]
        for r in range(1, degree + 1):
            literal = T - h[:r] @ np.linalg.solve(G[:r, :r], h[:r])
            assert ours[r - 1] == pytest.approx(literal, rel=1e-9)


def test_gram_matrix_is_the_one_of_the_spectra():
    """Empirical Gram matrix of Sigma^r q against tr(Omega Sigma^(r+s+1)) (eq 50)."""
    degree, contexts = 3, 20_000
    eigenvalues, teacher = spectrum(6, 0.5), spectrum(6, 0.25)
    query = rng(4).standard_normal((contexts, 6)) * np.sqrt(eigenvalues)
    features = population_features(query, eigenvalues, degree)
    gram = summed_moments(query, features, teacher)[1:, 1:] / contexts
    each = np.einsum("rcd,d,scd->rsc", features, teacher, features)
    error = each.std(axis=2) / np.sqrt(contexts)
    r = np.arange(1, degree + 1)
    exact = np.sum(teacher * eigenvalues ** (r[:, None, None] + r[None, :, None] + 1), axis=2)
    assert np.all(np.abs(gram - exact) < 4 * error)
    assert np.all(error < 0.02 * exact)


def test_risk_splits_into_variation_and_approximation():
    """Eq 43 with the conditional mean and the variation from disjoint contexts at one query."""
    d, P, k, half = 3, 12, 2, 100_000
    eigenvalues, teacher = spectrum(d, 1.0), spectrum(d, 0.5)
    q = rng(5).standard_normal(d) * np.sqrt(eigenvalues)
    u = 0.7 * eigenvalues * q - 0.2 * eigenvalues**2 * q
    targets = np.concatenate(
        [
            selected_mean(np.broadcast_to(q, (len(tokens), d)), tokens, k)
            for _, tokens in draw_contexts(eigenvalues, P, 2 * half, 5000, rng(6))
        ]
    )
    conditional_mean = targets[:half].mean(axis=0)
    risk = np.sum(teacher * (targets[half:] - u) ** 2, axis=1)
    variation = np.sum(teacher * (targets[half:] - conditional_mean) ** 2, axis=1)
    approximation = np.sum(teacher * (conditional_mean - u) ** 2)
    cross = risk - variation - approximation
    assert approximation > 0.05 * risk.mean()
    assert abs(cross.mean()) < 4 * np.sqrt(2) * cross.std() / np.sqrt(half)


def test_floor_is_variation_plus_approximation_error():
    """Eq 52 where it is exact: at a = 0 cosine ranking makes tbar = c q / |q|.

    The floor is then E|t - tbar|^2 + c^2 (1 - E[|q|]^2 / E[|q|^2]).
    """
    d, P, k, samples = 8, 32, 2, 20_000
    (floor,) = monte_carlo_floor(
        d, P, 0.0, [(0.0, k)], degree=2, contexts=40_000, generator=rng(7), chunk=500
    )
    q = rng(8).standard_normal(d)
    ((_, tokens),) = draw_contexts(np.ones(d), P, samples, samples, rng(9))
    targets = selected_mean(np.broadcast_to(q, (samples, d)), tokens, k)
    variation = np.sum((targets - targets.mean(axis=0)) ** 2, axis=1)
    length = np.sqrt(2) * np.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
    approximation = np.sum(targets.mean(axis=0) ** 2) * (1 - length**2 / d)
    assert approximation > 0.04 * floor.population[-1]
    error = np.hypot(floor.population_se[-1], variation.std() / np.sqrt(samples))
    assert abs(floor.population[-1] - variation.mean() - approximation) < 4 * error
    assert error < 0.01 * floor.population[-1]


def test_jackknife_error_is_the_spread_of_independent_floors():
    def floor(seed):
        (result,) = monte_carlo_floor(
            4, 8, 1.0, [(0.5, 2)], degree=2, contexts=200, generator=rng(seed), blocks=20, chunk=200
        )
        return result

    floors = [floor(seed) for seed in range(300)]
    for name in ("population", "finite_context"):
        spread = np.std([getattr(f, name) for f in floors], axis=0, ddof=1)
        quoted = np.sqrt(np.mean([getattr(f, name + "_se") ** 2 for f in floors], axis=0))
        assert quoted == pytest.approx(spread, rel=0.15)


def test_jackknife_of_a_mean_is_its_standard_error():
    blocks = rng(0).standard_normal(50)
    estimate, error = delete_block_jackknife(lambda m: m, blocks)
    assert estimate == pytest.approx(blocks.mean())
    assert error == pytest.approx(blocks.std(ddof=1) / np.sqrt(50))


def test_floor_depends_neither_on_chunk_nor_on_the_other_targets():
    settings = dict(degree=3, contexts=60, blocks=4)
    together = monte_carlo_floor(
        5, 12, 0.5, [(0.0, 2), (1.0, 4)], generator=rng(1), chunk=7, **settings
    )
    for b, k, floor in ((0.0, 2, together[0]), (1.0, 4, together[1])):
        (alone,) = monte_carlo_floor(5, 12, 0.5, [(b, k)], generator=rng(1), chunk=1, **settings)
        np.testing.assert_allclose(floor.population, alone.population, rtol=1e-12)
        np.testing.assert_allclose(floor.finite_context, alone.finite_context, rtol=1e-12)


def test_floor_falls_with_degree_and_survives_dependent_features():
    (floor,) = monte_carlo_floor(
        6, 24, 1.0, [(0.0, 4)], degree=6, contexts=400, generator=rng(2), blocks=20
    )
    for floors in (floor.population, floor.finite_context):
        assert np.all(np.diff(floors) <= 1e-12)
        assert floors[1] < 0.98 * floors[0]
    (isotropic,) = monte_carlo_floor(
        6, 24, 0.0, [(0.0, 4)], degree=6, contexts=400, generator=rng(2), blocks=20
    )
    np.testing.assert_allclose(isotropic.population, isotropic.population[0], rtol=1e-10)


def test_finite_context_features_are_powers_of_the_sample_covariance():
    tokens, query = rng(3).standard_normal((2, 7, 4)), rng(4).standard_normal((2, 4))
    S = np.einsum("cpi,cpj->cij", tokens, tokens) / 7
    expected = [np.linalg.matrix_power(S, r) @ query[:, :, None] for r in (1, 2, 3)]
    np.testing.assert_allclose(
        finite_context_features(query, tokens, 3), np.array(expected)[..., 0], rtol=1e-12
    )


def test_floor_of_known_moments():
    """T = 5, h = (2, 1), G = I: floors 5 - 4 and 5 - 5, whatever the features' lengths."""
    scale = np.diag([1.0, 1e-3, 1e4])
    moments = scale @ np.array([[5.0, 2, 1], [2, 1, 0], [1, 0, 1]]) @ scale
    np.testing.assert_allclose(floors_by_degree(moments), [1, 0], atol=1e-12)


def test_progress_counts_every_context():
    done = []
    monte_carlo_floor(
        2, 4, 0, [(0, 1)], degree=1, contexts=30, generator=rng(0), blocks=3, chunk=4,
        progress=done.append,
    )  # fmt: skip
    assert sum(done) == 30


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (dict(contexts=30, blocks=4), "contexts = 30"),
        (dict(contexts=30, blocks=1), "blocks = 1"),
        (dict(degree=0), "degree = 0"),
        (dict(targets=[(0.0, 9)]), "k = 9"),
        (dict(chunk=0), "chunk = 0"),
    ],
)
def test_impossible_floors_are_named(changed, named):
    settings = dict(targets=[(0.0, 2)], degree=1, contexts=40, blocks=4, generator=rng(0))
    with pytest.raises(ValueError, match=named):
        monte_carlo_floor(3, 8, 0.0, **(settings | changed))


# --- Exponent references -----------------------------------------------------------------------


def test_zeta_of_table_2():
    assert zeta(2, 0.5) == 0.75
    assert zeta(0.5, 2) == 3
    assert zeta(1.5, 2) == pytest.approx(5 / 3)
    for a, b in ((0.0, 2.0), (0.5, 0.5)):
        with pytest.raises(ValueError, match=f"a = {a}"):
            zeta(a, b)


def test_validity_conditions():
    conditions = validity_conditions(2, 128)
    assert conditions.repeated == pytest.approx(128**2)
    assert conditions.free == pytest.approx(128)


def test_one_mode_is_solved_by_one_layer():
    assert constrained_reference([1, 3], 1.0, 1.0, 1) == pytest.approx([0, 0], abs=1e-25)
    np.testing.assert_array_equal(free_reference([1, 3], 1.0, 1.0, 1), [0, 0])


def test_one_layer_is_a_regression():
    """At L = 1 both families are 1 - gamma lambda, gamma = sum l^2 w / sum l^3 w."""
    eigenvalues, teacher = spectrum(7, 1.5), spectrum(7, 0.5)
    m1, m2, m3 = (np.sum(eigenvalues**n * teacher) for n in (1, 2, 3))
    assert optimal_update_scale(1, eigenvalues, teacher) == pytest.approx(m2 / m3, rel=1e-12)
    for reference in (constrained_reference, free_reference):
        assert reference([1], 1.5, 0.5, 7)[0] == pytest.approx(m1 - m2**2 / m3, rel=1e-12)


def test_update_scale_is_the_minimum():
    eigenvalues, teacher = spectrum(128, 2), spectrum(128, 1)
    for L in (1, 2, 8, 64):
        best = optimal_update_scale(L, eigenvalues, teacher)
        losses = [
            repeated_update_loss(L, eigenvalues, teacher, best * (1 + s)) for s in (-1e-3, 0, 1e-3)
        ]
        assert losses[1] < min(losses[0], losses[2])


def test_free_loss_against_exact_arithmetic():
    """min over deg r <= 4, r(0) = 1 at d = 6, (a, b) = (2, 1), by rational normal equations."""
    d, L = 6, 4
    moment = [sum(Fraction(1, k ** (2 * n + 3)) for k in range(1, d + 1)) for n in range(2 * L + 1)]
    rows = [[moment[i + j] for j in range(1, L + 1)] + [-moment[i]] for i in range(1, L + 1)]
    for i in range(L):
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(L):
            if j != i:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    exact = moment[0] + sum(rows[i][L] * moment[i + 1] for i in range(L))
    assert free_reference([L], 2, 1, d)[0] == pytest.approx(float(exact), rel=1e-11)


def test_free_polynomial_of_full_degree_solves_the_task():
    losses = free_reference([4, 5, 6], 1, 1, 5)
    assert losses[0] > 0
    np.testing.assert_array_equal(losses[1:], 0)


@pytest.mark.parametrize(("a", "b"), [(2, 0.5), (2, 1), (2, 2), (0.5, 2), (1, 2)])
def test_free_polynomials_lose_less_than_repeated_updates(a, b):
    depths = [1, 2, 3, 5, 8, 16, 32, 64]
    free, constrained = free_reference(depths, a, b, 128), constrained_reference(depths, a, b, 128)
    assert np.all(free[1:] < constrained[1:])
    assert free[0] == pytest.approx(constrained[0], rel=1e-10)
    assert np.all(np.diff(free) < 0)
    assert np.all(np.diff(constrained) < 0)


@pytest.mark.parametrize("exponent", [0.75, 1.0, 1.5, 3.0])
def test_orthogonalization_reaches_the_jacobi_limit(exponent):
    """A dense measure x^(zeta-1) dx on [0, 1] (Gauss-Jacobi nodes) against eq 37-39."""
    x, weights = roots_jacobi(120, 0, exponent - 1)
    nodes, weights = (1 + x) / 2, weights / 2**exponent
    depths = [1, 4, 16, 64]
    np.testing.assert_allclose(
        free_loss(depths, nodes, weights), jacobi_free_loss(depths, exponent), rtol=1e-8
    )
    # The closed form is the sum of eq 38 at zero, P_n^(zeta-1, 0)(1) included.
    n = np.arange(17)
    values = (2 * n + exponent) * eval_jacobi(n, exponent - 1, 0, 1.0) ** 2
    assert jacobi_free_loss([16], exponent)[0] == pytest.approx(1 / values.sum(), rel=1e-10)


def test_reference_exponents_in_the_continuum():
    """Slopes tend to zeta for repeated updates and to 2 zeta for free polynomials (eq 40)."""
    exponent, depths = 1.5, [128, 256]
    free = jacobi_free_loss(depths, exponent)
    assert exponent_between(depths, free, *depths) == pytest.approx(2 * exponent, rel=0.01)
    x, weights = roots_jacobi(400, 0, exponent - 1)
    nodes, weights = (1 + x) / 2, weights / 2**exponent
    losses = []
    for L in depths:
        gamma = optimal_update_scale(L, nodes, weights / nodes)
        losses.append(repeated_update_loss(L, nodes, weights / nodes, gamma))
    assert exponent_between(depths, losses, *depths) == pytest.approx(exponent, rel=0.02)


def test_one_layer_of_a_finite_context_in_closed_form():
    """Isotropic, L = 1: d - E[q'Sq]^2 / E[q'S^2 q] with Wishart moments; SPEC's 11.6 at d = 128."""

    def one_layer(d, P):
        m, q4, q6 = P - 1, d * (d + 2), d * (d + 2) * (d + 4)
        first = (m * d + q4) / P
        second = (d * m * (m + d + 1) + 2 * m * q4 + q6) / P**2
        return d - first**2 / second

    assert one_layer(128, 1024) == pytest.approx(11.6, abs=0.05)
    reference = finite_context_free_reference(
        [1], 0, 0, 6, 20, contexts=20_000, generator=rng(0), blocks=50
    )
    assert abs(reference.loss[0] - one_layer(6, 20)) < 4 * reference.loss_se[0]
    assert reference.loss_se[0] < 0.02 * reference.loss[0]


def test_bartlett_covariances_are_those_of_drawn_tokens():
    """S and q^T S^r q of contexts of which q is a token, against explicit tokens."""
    eigenvalues, P, n = spectrum(4, 1.0), 9, 40_000

    def statistics(query, covariance):
        once = np.einsum("nij,nj->ni", covariance, query)
        return np.stack(
            [
                np.einsum("nii->n", covariance),
                np.sum(query * once, axis=1),
                np.sum(once**2, axis=1),
                np.linalg.det(covariance) * 1e3,
            ]
        )

    ours = statistics(*easy_contexts(eigenvalues, P, n, rng(1)))
    tokens = rng(2).standard_normal((n, P, 4)) * np.sqrt(eigenvalues)
    drawn = statistics(tokens[:, 3], np.einsum("npi,npj->nij", tokens, tokens) / P)
    error = np.sqrt((ours.var(axis=1) + drawn.var(axis=1)) / n)
    assert np.all(np.abs(ours.mean(axis=1) - drawn.mean(axis=1)) < 4 * error)


def test_finite_context_reference_tends_to_the_population_one():
    depths = [1, 2, 4]
    population = free_reference(depths, 1, 1, 4)
    near, far = (
        finite_context_free_reference(
            depths, 1, 1, 4, P, contexts=2000, generator=rng(3), blocks=20
        ).loss
        for P in (32, 10**7)
    )
    assert far[:2] == pytest.approx(population[:2], rel=0.1)
    assert np.all(near[1:] > 1.2 * population[1:])


def test_held_out_loss_is_above_the_fitted_one():
    reference = finite_context_free_reference(
        [1, 2, 4, 6], 1, 1, 6, 24, contexts=400, generator=rng(4), blocks=10
    )
    assert np.all(reference.held_out > reference.loss)
    assert np.all(np.diff(reference.loss) < 0)


def test_finite_context_reference_error_is_the_spread():
    references = [
        finite_context_free_reference(
            [1, 3], 1, 0, 3, 12, contexts=400, generator=rng(seed), blocks=20
        )
        for seed in range(150)
    ]
    spread = np.std([r.loss for r in references], axis=0, ddof=1)
    quoted = np.sqrt(np.mean([r.loss_se**2 for r in references], axis=0))
    assert quoted == pytest.approx(spread, rel=0.2)


def test_impossible_references_are_named():
    with pytest.raises(ValueError, match="P = 8"):
        finite_context_free_reference([1], 1, 1, 8, 8, contexts=4, generator=rng(0), blocks=2)
    with pytest.raises(ValueError, match="contexts = 2"):
        finite_context_free_reference([4], 1, 1, 1, 8, contexts=2, generator=rng(0), blocks=2)
    with pytest.raises(ValueError, match="depths"):
        free_reference([0, 1], 1, 1, 8)


def test_exponent_of_an_exact_power_law():
    depths = np.array([1, 2, 4, 8])
    losses = 3 * depths**-1.25
    losses[0] = 100
    assert exponent_between(depths, losses, 2, 8) == pytest.approx(1.25)
    assert exponent_between(depths, losses, 4, 8) == pytest.approx(1.25)
    with pytest.raises(ValueError, match="first = 5"):
        exponent_between(depths, losses, 5, 8)


# --- Mode-wise decay (Appendix A.4) ------------------------------------------------------------


def test_characteristic_depths_of_exponential_modes():
    """w_k = k^-3, tau_k = 2 k^2: beta - 1 = (3 - 1) / 2."""
    depths, k = np.array([1, 2, 4, 8, 16, 32]), np.arange(1, 41)
    weights, tau = k**-3.0, 2.0 * k**2
    result = characteristic_depths(
        depths, weights[:, None] * np.exp(-depths / tau[:, None]), weights
    )
    np.testing.assert_allclose(result.tau, tau, rtol=1e-12)
    assert result.aggregate_exponent == pytest.approx(1, rel=1e-12)
    assert result.beta == pytest.approx(2, rel=1e-12)
    # Only modes that have decayed by 1 / e within the measured depths are used: 2 k^2 < 32.
    np.testing.assert_array_equal(result.used, [1, 2, 3])


def test_mode_decay_explains_the_exponent_of_repeated_updates():
    a, b, d, depths = 1.5, 2, 1024, np.array([1, 2, 4, 8, 16, 32, 64])
    eigenvalues, teacher = spectrum(d, a), spectrum(d, b)
    weights = eigenvalues * teacher
    scales = np.array([optimal_update_scale(L, eigenvalues, teacher) / L for L in depths])
    modes = weights[:, None] * (1 - scales * eigenvalues[:, None]) ** (2 * depths)
    result = characteristic_depths(depths, modes, weights)
    measured = exponent_between(depths, modes.sum(axis=0), 4, 64)
    assert result.aggregate_exponent == pytest.approx(measured, rel=0.05)
    assert result.aggregate_exponent == pytest.approx(zeta(a, b), rel=0.1)


def test_modes_that_do_not_decay_are_not_fitted():
    depths, weights = [1, 2, 4], np.ones(5)
    result = characteristic_depths(depths, np.outer(weights, [1.0, 1.1, 1.2]), weights)
    assert len(result.used) == 0
    assert np.all(np.isnan(result.tau))
    assert np.isnan(result.aggregate_exponent)


# --- Predictable component ---------------------------------------------------------------------


def test_mean_top_score_against_normal_order_statistics():
    assert mean_top_score(1, 1) == pytest.approx(0, abs=1e-14)
    assert mean_top_score(2, 1) == pytest.approx(1 / np.sqrt(np.pi), rel=1e-13)
    assert mean_top_score(3, 1) == pytest.approx(1.5 / np.sqrt(np.pi), rel=1e-13)
    assert mean_top_score(5, 1) == pytest.approx(1.1629644736, rel=1e-9)
    assert mean_top_score(5, 2) == pytest.approx((1.1629644736 + 0.4950189705) / 2, rel=1e-9)
    assert mean_top_score(7, 7) == pytest.approx(0, abs=1e-14)
    sampled = np.sort(rng(0).standard_normal((20_000, 64)), axis=1)[:, -16:].mean(axis=1)
    error = sampled.std() / np.sqrt(len(sampled))
    assert abs(mean_top_score(64, 16) - sampled.mean()) < 4 * error
    with pytest.raises(ValueError, match="k = 3"):
        mean_top_score(2, 3)


def test_coefficient_in_one_dimension():
    """At d = 1, P = 2, k = 1: measured 1 / pi, predicted 1 / sqrt(pi), and validity 2."""
    component = predictable_component(
        1, 2, 0, 1, contexts=40_000, generator=rng(1), chunk=4000, blocks=100
    )
    assert abs(component.measured - 1 / np.pi) < 4 * component.measured_se
    assert component.predicted == pytest.approx(1 / np.sqrt(np.pi))
    assert component.validity == pytest.approx(2)
    assert component.deviation == pytest.approx(component.measured * np.sqrt(np.pi) - 1)
    # E|q| / E q^2 in place of 1 / sqrt(E q^2).
    assert component.fixed_query / component.predicted == pytest.approx(
        np.sqrt(2 / np.pi), rel=0.02
    )


def test_prediction_holds_where_it_is_said_to():
    """Small validity measure at a = 0: within 3 %; at a = 1 the deviation is many times that."""
    flat, steep = (
        predictable_component(64, 256, a, 16, contexts=2000, generator=rng(2)) for a in (0, 1)
    )
    assert flat.validity < 0.05
    assert abs(flat.deviation) < 0.03
    assert flat.deviation_se < 0.01
    assert steep.validity > 0.5
    assert steep.deviation < -0.15


def test_geometry_of_one_context():
    geometry = predictable_geometry(rng(3), P=16, k=2, samples=40_000)
    cosines = geometry.tokens @ geometry.query
    cosines /= np.linalg.norm(geometry.tokens, axis=1) * np.linalg.norm(geometry.query)
    best = np.argsort(-cosines)[:2]
    np.testing.assert_array_equal(geometry.selected, geometry.tokens[best])
    np.testing.assert_allclose(geometry.mean, geometry.tokens[best].mean(axis=0))
    np.testing.assert_allclose(geometry.residual + geometry.conditional_mean, geometry.mean)
    assert geometry.angles["query"] == 0
    assert np.cos(np.radians(geometry.angles["selected 1"])) == pytest.approx(cosines[best[0]])
    assert geometry.lengths["selected 2"] == pytest.approx(np.linalg.norm(geometry.tokens[best[1]]))


def test_conditional_mean_points_along_the_query():
    """At d = 2 the angles are uniform: |tbar| = sqrt(pi/2) E[mean of cos of the 2 least of P]."""
    P = 16
    geometry = predictable_geometry(rng(4), P=P, k=2, samples=40_000)

    def density(x):  # of the mean of the two least of P uniforms on [0, 1], counted twice
        return P * (1 - x) ** (P - 1) + P * (P - 1) * x * (1 - x) ** (P - 2)

    cosine = quad(lambda x: np.cos(np.pi * x) * density(x) / 2, 0, 1)[0]
    error = np.linalg.norm(geometry.conditional_mean_se)
    direction = geometry.query / np.linalg.norm(geometry.query)
    along = geometry.conditional_mean @ direction
    across = np.linalg.norm(geometry.conditional_mean - along * direction)
    assert abs(along - np.sqrt(np.pi / 2) * cosine) < 4 * error
    assert across < 4 * error
    assert error < 0.01
