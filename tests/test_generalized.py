"""The generalized models: identities of Appendix C, looped layers, and what is refused."""

import numpy as np
import pytest
import torch

from inverse_depth.contexts import sample_contexts, stream
from inverse_depth.fits import fit_identity
from inverse_depth.models import build
from inverse_depth.run import Architecture, Data

DATA = Data(task="top_k", k=2, a=0.0, b=0.0, d=4, P=12)


def architecture(model, **changes):
    settings = {
        "model": model,
        "N": 8,
        "L": 2,
        "norm": "rms",
        "encoder": "isometry",
        "values": "identity" if model == "context_updates" else "trained",
        "tied": False,
        "init": 0.5,
        "context_scalar": 0.0,
    }
    return Architecture(**settings | changes)


def trained(teacher, steps=100, **settings):
    """A model after a short training, in float64."""
    network = build(architecture(**settings), DATA.d, stream("weights", 0))
    generator = stream("training", 0)
    weights = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(weights, lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        network.loss(sample_contexts(DATA, 64, teacher, generator)).backward()
        optimizer.step()
    return network.double()


def evaluation_contexts(teacher):
    contexts = sample_contexts(DATA, 200, teacher, stream("evaluation", 0))
    fields = {
        k: v.double() if k in ("tokens", "query", "target") else v
        for k, v in vars(contexts).items()
    }
    return type(contexts)(**fields)


@pytest.fixture(scope="module")
def two_layers():
    return trained("averaged", model="context_updates", context_scalar=-0.5)


def test_two_layers_of_context_updates_predict_as_eq_80_and_87(two_layers):
    contexts = evaluation_contexts("averaged")
    with torch.no_grad():
        g, m = two_layers.gain(), two_layers.m
        p1, p2 = two_layers.attention(contexts).split(1, dim=1)
        A1 = two_layers.context_attention(contexts)
        y = contexts.teacher.labels(contexts.tokens)
        eq_80 = g / 2 * (p1 + p2) @ y + g * m / 4 * p2 @ A1 @ y
        eq_87 = g * ((p1 + p2) / 2 + m / 4 * p2 @ A1) @ y
        prediction = two_layers.prediction(contexts)
    assert m.item() not in (0.0, -0.5)
    torch.testing.assert_close(prediction, eq_80.squeeze(1), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(prediction, eq_87.squeeze(1), rtol=1e-10, atol=1e-12)


def test_a_mixture_of_identity_and_mean_adds_the_uniform_direction(two_layers):
    """Eq 86: p A = rho p + (1 - rho) u where A is exactly such a mixture."""
    contexts = evaluation_contexts("averaged")
    p2 = two_layers.attention(contexts)[:, 1].detach()
    P, rho = p2.shape[1], 0.3
    A = rho * torch.eye(P) + (1 - rho) / P * torch.ones(P, P)
    torch.testing.assert_close(p2 @ A.double(), rho * p2 + (1 - rho) / P, rtol=1e-6, atol=1e-7)
    assert fit_identity(A.numpy()) == pytest.approx((rho, 1.0))


def test_the_mixture_fit_is_the_least_squares_fit():
    A = np.random.default_rng(0).dirichlet(np.ones(9), size=9)
    rho, r2 = fit_identity(A)
    direction, offset = np.eye(9) - 1 / 9, A - 1 / 9
    assert rho == pytest.approx((offset * direction).sum() / (direction**2).sum())
    assert r2 == pytest.approx(1 - ((offset - rho * direction) ** 2).sum() / (offset**2).sum())


def test_attention_maps_are_distributions_over_the_context(two_layers):
    contexts = evaluation_contexts("averaged")
    for rows in (two_layers.context_attention(contexts), two_layers.test_attention(contexts)):
        torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows.sum(-1)))


def test_without_context_updates_the_model_is_the_controlled_one():
    updates = build(architecture("context_updates", L=3), DATA.d, stream("weights", 0))
    controlled = build(
        architecture("nonlinear", L=3, values="identity"), DATA.d, stream("weights", 0)
    )
    contexts = sample_contexts(DATA, 50, "averaged", stream("evaluation", 0))
    torch.testing.assert_close(updates.prediction(contexts), controlled.prediction(contexts))


def test_the_context_scalar_is_reported_only_where_it_matters():
    for depth, reported in ((1, None), (2, -1.5)):
        network = build(
            architecture("context_updates", L=depth, context_scalar=-1.5),
            DATA.d,
            stream("weights", 0),
        )
        assert network.context_scalar() == reported
    assert build(architecture("nonlinear"), DATA.d, stream("weights", 0)).context_scalar() is None


@pytest.mark.parametrize("model", ["single_stream", "single_stream_mlp"])
def test_the_single_stream_decomposes_into_its_increments(model):
    """Eq 67-70: f_l average to the prediction, and R = C + (A - C) / L."""
    L = 5
    network = trained("sampled", 30, model=model, L=L)
    contexts = evaluation_contexts("sampled")
    with torch.no_grad():
        test, context = network.states(contexts)
        updates, rows = network.updates(test, context)
        states = torch.cat([test.unsqueeze(1), test.unsqueeze(1) + updates.cumsum(1) / L], dim=1)
        z = (states @ network.W_o.mT).squeeze(-1)
        f = network.layer_predictions(contexts).squeeze(-1)
        prediction = network.prediction(contexts).squeeze(-1)
        target = contexts.teacher.labels(contexts.target).squeeze(-1)
    torch.testing.assert_close(f, z[:, :1] + L * z.diff(dim=1))
    torch.testing.assert_close(prediction, z[:, -1])
    torch.testing.assert_close(rows.sum(-1), torch.ones_like(rows.sum(-1)))
    e = f - target[:, None]
    products = (e.unsqueeze(1) * e.unsqueeze(2)).mean(0)
    shared = (products.sum() - products.trace()) / (L * (L - 1))
    disagreement = (f - prediction[:, None]).square().sum(1).mean() / (L - 1)
    loss = (prediction - target).square().mean()
    assert disagreement > 1e-3
    torch.testing.assert_close(shared + disagreement / L, loss)


def test_the_single_stream_starts_by_averaging_labels():
    """No input leaks into the readout of the start, and the gain is one."""
    network = build(architecture("single_stream"), DATA.d, stream("weights", 0))
    assert network.gain().item() == pytest.approx(1)
    assert (network.W_o @ network.W_x).abs().max() < 1e-6


@pytest.mark.parametrize("depth", [1, 2, 7, 32])
def test_looped_layers_of_the_controlled_model_never_disagree(depth):
    network = build(architecture("nonlinear", L=depth, tied=True), DATA.d, stream("weights", 0))
    single = build(architecture("nonlinear", L=1, tied=True), DATA.d, stream("weights", 0))
    contexts = sample_contexts(DATA, 50, "averaged", stream("evaluation", 0))
    layers = network.layer_predictions(contexts)
    assert (layers - layers.mean(1, keepdim=True)).abs().max() < 1e-6
    torch.testing.assert_close(network.prediction(contexts), single.prediction(contexts))
    torch.testing.assert_close(network.loss(contexts), single.loss(contexts))


def test_looped_layers_of_the_single_stream_do_disagree():
    network = build(architecture("single_stream", L=4, tied=True), DATA.d, stream("weights", 0))
    layers = network.layer_predictions(sample_contexts(DATA, 50, "sampled", stream("training", 0)))
    assert layers.std(1).min() > 1e-6


def test_what_a_model_cannot_do_is_refused():
    weights = stream("weights", 0)
    with pytest.raises(ValueError, match="values: trained .* allowed is identity"):
        build(architecture("context_updates", values="trained"), DATA.d, weights)
    network = build(architecture("single_stream"), DATA.d, weights)
    with pytest.raises(ValueError, match="teacher: averaged .* allowed is sampled"):
        network.loss(sample_contexts(DATA, 2, "averaged", stream("training", 0)))
