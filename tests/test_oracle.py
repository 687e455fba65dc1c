"""The fast forms against the literal ones: outputs and parameter gradients."""

from dataclasses import replace

import pytest
import torch

from inverse_depth import attention, literal
from inverse_depth.contexts import SampledTeacher, sample_contexts, stream
from inverse_depth.draws import haar_rotations
from inverse_depth.models import build
from inverse_depth.run import Architecture, Data

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def double(contexts):
    """The same contexts in float64, with a rotation that is orthogonal to that precision."""

    def convert(value):
        if torch.is_tensor(value) and value.is_floating_point():
            return value.double()
        if hasattr(value, "__dataclass_fields__"):
            return type(value)(**{k: convert(v) for k, v in vars(value).items()})
        return value

    exact = convert(contexts)
    if exact.rotation is None:
        return exact
    U, _, Vh = torch.linalg.svd(exact.rotation)
    return replace(exact, rotation=U @ Vh)


def literal_tokens(contexts):
    """X (B, d, P + 1) in the data basis, test token last."""
    tokens = torch.cat([contexts.tokens, contexts.query.unsqueeze(1)], dim=1)
    return contexts.rotated(tokens).mT


def literal_prediction(architecture, parameters, contexts):
    """Predictions (B, m), one label channel after the other."""
    X = literal_tokens(contexts)
    channels = contexts.teacher.labels(contexts.tokens)
    predictions = []
    for channel in channels.unbind(-1):
        y_in = torch.nn.functional.pad(channel, (0, 1)).unsqueeze(1)
        if architecture.model == "linear":
            prediction = literal.linear(parameters, architecture.L, X, y_in)
        elif architecture.model.startswith("single_stream"):
            readouts = literal.single_stream(parameters, architecture.L, architecture.norm, X, y_in)
            prediction = readouts[:, -1]
        else:
            prediction = literal.two_stream(parameters, architecture.L, architecture.norm, X, y_in)
        predictions.append(prediction)
    return torch.stack(predictions, dim=-1)


def relative(a, b):
    return float((a - b).detach().norm() / b.detach().norm().clamp_min(1e-30))


def random_case(model, seed, **changes):
    """A model with random (not starting) weights and contexts, of random sizes."""
    generator = torch.Generator().manual_seed(seed)

    def integer(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    d = integer(2, 9)
    N, L, P = d + integer(0, 6), integer(1, 7), integer(d + 2, 30)
    settings = {
        "model": model,
        "N": N,
        "L": L,
        "norm": "rms",
        "encoder": "gaussian" if model != "linear" else "isometry",
        "values": "trained",
        "tied": False,
        "init": 0.2 if model == "linear" else 1.0,  # a contracting chain, as in training
        "context_scalar": 0.0,
    }
    architecture = Architecture(**settings | changes)
    k = integer(1, 4)
    data = Data(task="top_k", k=k, a=[0.0, 0.5, 1.0][seed % 3], b=0.5, d=d, P=P)
    network = build(architecture, d, generator)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return network, data


CASES = [
    ("nonlinear", {}),
    ("nonlinear", {"norm": "none"}),
    ("nonlinear", {"tied": True}),
    ("layer_values", {}),
    ("context_updates", {"values": "identity"}),
    ("context_updates", {"values": "identity", "norm": "none"}),
    ("context_updates", {"values": "identity", "tied": True}),
    ("single_stream", {}),
    ("single_stream", {"norm": "none"}),
    ("single_stream", {"tied": True}),
    ("single_stream_mlp", {}),
    ("single_stream_mlp", {"tied": True}),
    ("linear", {}),
    ("linear", {"values": "identity"}),
    ("linear", {"tied": True}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("model", "changes", "teacher"),
    [
        (model, changes, teacher)
        for model, changes in CASES
        for teacher in ("averaged", "sampled")
        if teacher == "sampled" or not model.startswith("single_stream")
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value.values())),
)
@pytest.mark.parametrize("seed", range(4))
def test_outputs_and_gradients_agree_with_the_literal_model(model, changes, teacher, dtype, seed):
    network, data = random_case(model, seed, **changes)
    network = network.to(dtype)
    contexts = sample_contexts(data, 7, teacher, stream("training", seed))
    if dtype == torch.float64:
        contexts = double(contexts)
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    weights = [p for p in network.parameters() if p.requires_grad]

    fast = network.prediction(contexts)
    fast_loss = network.loss(contexts)
    fast_gradients = torch.autograd.grad(fast_loss, weights)

    parameters = {name: p.detach().double() for name, p in network.named_parameters()}
    for name in names:
        parameters[name].requires_grad_()
    exact = double(contexts)
    slow = literal_prediction(network.architecture, parameters, exact)
    residual = slow - exact.teacher.labels(exact.target)
    slow_loss = residual.square().sum(-1).mean()
    slow_gradients = torch.autograd.grad(slow_loss, [parameters[name] for name in names])

    tolerance = TOLERANCE[dtype]
    assert relative(fast.double(), slow) < tolerance
    assert relative(fast_loss.double(), slow_loss) < tolerance
    scale = torch.cat([g.flatten() for g in slow_gradients]).norm()
    for name, quick, exact_gradient in zip(names, fast_gradients, slow_gradients, strict=True):
        assert float((quick.double() - exact_gradient).norm() / scale) < tolerance, name


def test_the_averaged_teacher_is_the_mean_over_sampled_ones():
    network, data = random_case("nonlinear", 1)
    contexts = sample_contexts(data, 1, "averaged", stream("training", 0))
    residual = network.prediction(contexts) - contexts.teacher.labels(contexts.target)
    averaged = residual.square().sum()
    generator = torch.Generator().manual_seed(0)
    draws = torch.randn(200_000, data.d, generator=generator) * contexts.teacher.scale
    total = []
    for beta in draws.split(50_000):
        teacher = SampledTeacher(beta)
        vector = network.attention(contexts).mean(1) @ contexts.tokens * network.gain()
        error = teacher.labels((vector.squeeze(1) - contexts.target).expand(len(beta), -1))
        total.append(error.square())
    sampled = torch.cat(total)
    standard_error = sampled.std() / len(draws) ** 0.5
    assert abs(sampled.mean() - averaged) < 4 * standard_error


def isotropic_case(task="top_k"):
    """Linear attention at its start, scaled identities with N = d, and contexts in float64."""
    network, data = random_case("linear", 1)
    network = build(replace(network.architecture, N=data.d), data.d, stream("weights", 0)).double()
    data = replace(data, task=task, k=1 if task == "easy" else data.k)
    contexts = double(sample_contexts(data, 5, "isotropic", stream("training", 1)))
    return network, contexts


@pytest.mark.parametrize("task", ["top_k", "easy"])
def test_the_gradient_of_rotated_data_is_the_rotated_gradient(task):
    network, contexts = isotropic_case(task)
    R = double(replace(contexts, rotation=contexts.rotation[:1])).rotation[0]
    weights = [network.W_x, network.W_q, network.W_k]
    rotated = replace(contexts, rotation=R @ contexts.rotation)
    before = torch.autograd.grad(network.loss(contexts), weights)
    after = torch.autograd.grad(network.loss(rotated), weights)
    for first, second in zip(before, after, strict=True):
        assert float((first - R.mT @ second @ R).abs().max()) < 1e-10 * float(first.abs().max())
        assert float((first - second).abs().max()) > 1e-3 * float(first.abs().max())


def test_the_isotropic_gradient_is_the_mean_over_haar_rotations():
    network, contexts = isotropic_case()
    network.loss(contexts).backward()
    gradient = network.W_q.grad.clone()
    R = haar_rotations(40_000, gradient.shape[-1], stream("training", 0)).double()
    network.average_gradient_over_rotations()
    for G, averaged in zip(gradient, network.W_q.grad, strict=True):
        turned = R @ G @ R.mT
        standard_error = turned.std(0) / len(R) ** 0.5
        assert ((turned.mean(0) - averaged).abs() < 5 * standard_error).all()


@pytest.mark.parametrize("model", ["nonlinear", "layer_values"])
@pytest.mark.parametrize(("chunk", "block"), [(1, 1), (600, 1), (1, 2000), (1200, 1500)])
def test_chunks_and_blocks_change_nothing_but_the_order_of_sums(model, chunk, block, monkeypatch):
    network, data = random_case(model, 2)
    contexts = double(sample_contexts(data, 23, "averaged", stream("training", 2)))
    network = network.double()
    weights = [p for p in network.parameters() if p.requires_grad]

    def loss_and_gradients():
        loss = network.loss(contexts)
        return [loss, *torch.autograd.grad(loss, weights)]

    whole = loss_and_gradients()
    monkeypatch.setitem(attention.CHUNK_BYTES, "cpu", chunk * 8)
    monkeypatch.setitem(attention.BLOCK_BYTES, "cpu", block)
    for pieces, expected in zip(loss_and_gradients(), whole, strict=True):
        torch.testing.assert_close(pieces, expected, rtol=1e-12, atol=1e-13)
