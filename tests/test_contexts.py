"""The data against its definition: covariances, the Wishart shortcut, targets."""

import pytest
import torch
from statistical import within

from inverse_depth.contexts import WishartCovariance, bartlett_factors, sample_contexts, stream
from inverse_depth.run import Data
from inverse_depth.spectra import power_law
from inverse_depth.tasks.top_k import cosine_top_k


def test_tokens_and_teacher_have_their_spectra_in_the_contexts_own_basis():
    data = Data(task="top_k", k=2, a=1.0, b=0.5, d=5, P=40)
    contexts = sample_contexts(data, 4000, "sampled", stream("training", 0))
    tokens = contexts.tokens.flatten(0, 1)
    covariance = tokens.T @ tokens / len(tokens)
    assert torch.allclose(
        covariance, torch.diag(torch.from_numpy(power_law(5, 1.0)).float()), atol=0.02
    )
    beta = contexts.teacher.beta
    teacher = beta.T @ beta / len(beta)
    assert torch.allclose(
        teacher, torch.diag(torch.from_numpy(power_law(5, 0.5)).float()), atol=0.1
    )
    labels = contexts.teacher.labels(contexts.tokens)
    assert torch.allclose(labels[3, 7, 0], contexts.tokens[3, 7] @ beta[3], atol=1e-5)


def test_the_teacher_of_isotropic_inputs_is_rotated_by_its_own_haar_rotation():
    data = Data(task="top_k", k=1, a=0.0, b=2.0, d=4, P=8)
    beta = sample_contexts(data, 40_000, "sampled", stream("training", 1)).teacher.beta
    covariance = beta.T @ beta / len(beta)
    mean = float(power_law(4, 2.0).mean())
    assert torch.allclose(covariance, mean * torch.eye(4), atol=0.03)
    square = beta.square().sum(-1)
    omega = torch.from_numpy(power_law(4, 2.0))
    assert within(square, float(omega.sum()), len(beta))
    assert float(square.var()) == pytest.approx(float(2 * omega.square().sum()), rel=0.05)


def test_bartlett_factor_gives_wishart_moments():
    d, freedom, n = 3, 6, 60_000
    factor = bartlett_factors(n, d, freedom, stream("training", 5))
    wishart = factor @ factor.mT
    for i in range(d):
        assert within(wishart[:, i, i], freedom, n)
        assert float(wishart[:, i, i].var()) == pytest.approx(2 * freedom, rel=0.05)
    assert within(wishart[:, 0, 2], 0.0, n)
    assert float(wishart[:, 0, 2].var()) == pytest.approx(freedom, rel=0.05)
    with pytest.raises(ValueError, match=r"P - 1 = 2 must be at least d = 3"):
        bartlett_factors(1, 3, 2, stream("training", 5))


def test_the_wishart_shortcut_agrees_with_explicit_tokens():
    """E[q^T S q], E[q^T S^2 q] and E[|S q - q|^2], where the query is one of the tokens."""
    data = Data(task="easy", k=1, a=1.0, b=0.0, d=4, P=8)
    n = 60_000
    explicit = sample_contexts(data, n, "averaged", stream("training", 6))
    sampled = sample_contexts(data, n, "averaged", stream("training", 7), tokens=False)
    assert isinstance(sampled.covariance, WishartCovariance)

    def statistics(contexts):
        query = contexts.query.unsqueeze(1)
        once = contexts.covariance.apply(query)
        twice = contexts.covariance.apply(once)
        return [(query * once).sum(-1), (query * twice).sum(-1), (once - query).square().sum(-1)]

    for a, b in zip(statistics(explicit), statistics(sampled), strict=True):
        spread = (a.var() + b.var()).sqrt()
        assert within(a.flatten() - b.mean(), 0.0, n, spread)


def test_the_easy_query_is_a_token_and_its_target_is_itself():
    data = Data(task="easy", k=1, a=0.5, b=0.0, d=3, P=6)
    contexts = sample_contexts(data, 500, "averaged", stream("training", 8))
    rows = torch.arange(500)
    assert torch.equal(contexts.query, contexts.tokens[rows, contexts.selected[:, 0]])
    assert torch.equal(contexts.target, contexts.query)
    counts = torch.bincount(contexts.selected[:, 0], minlength=6)
    assert counts.min() > 40


def test_top_k_is_by_cosine_and_the_target_is_the_mean():
    data = Data(task="top_k", k=3, a=1.0, b=0.0, d=5, P=9)
    contexts = sample_contexts(data, 20, "averaged", stream("training", 9))
    for i in range(20):
        cosine = torch.nn.functional.cosine_similarity(
            contexts.tokens[i], contexts.query[i], dim=-1
        )
        best = sorted(range(9), key=lambda j: -cosine[j])[:3]
        assert set(best) == set(contexts.selected[i].tolist())
        assert torch.allclose(contexts.target[i], contexts.tokens[i, best].mean(0), atol=1e-6)
    again = cosine_top_k(contexts.tokens * 3.0, contexts.query * 0.1, 3)
    assert torch.equal(again.sort().values, contexts.selected.sort().values)


def test_spectra_are_not_normalized():
    assert power_law(3, 1.0).tolist() == [1.0, 0.5, pytest.approx(1 / 3)]
