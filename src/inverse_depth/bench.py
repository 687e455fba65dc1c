"""Benchmarks: every speed as a ratio to a plain form timed in the same run, and to the roofline.

The roofline of a step is the time that its multiply-adds and exponentials take at the rates of
this machine's own matrix product and exponential, measured here.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from inverse_depth import literal
from inverse_depth.contexts import Contexts, sample_contexts, stream
from inverse_depth.decomposition import decompose
from inverse_depth.model import AttentionModel
from inverse_depth.models import build
from inverse_depth.run import Architecture, Data, Run
from inverse_depth.spectra import power_law
from inverse_depth.theory import monte_carlo_floor
from inverse_depth.train import needs_tokens

DEPTHS = (1, 16, 64, 256)
TOP2 = Data(task="top_k", k=2, a=0.0, b=0.0, d=16, P=64)
NONLINEAR = Architecture(
    model="nonlinear",
    N=16,
    L=1,
    norm="rms",
    encoder="isometry",
    values="trained",
    tied=False,
    init=0.3,
    context_scalar=0.0,
)
LINEAR = replace(NONLINEAR, model="linear", N=128, values="identity", init=0.1)
BATCH = 256


def seconds(action: Callable[[], object], repeats: int = 5) -> float:
    """Shortest wall time of a call after one warm-up."""
    action()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


def machine_rates() -> tuple[float, float]:
    """Multiply-adds and exponentials a second, of a large product and a cached softmax."""
    n = 1024
    matrix = torch.randn(n, n)
    product = seconds(lambda: matrix @ matrix)
    cached = torch.randn(16, 256, 64)
    exponential = seconds(lambda: [torch.exp(cached) for _ in range(20)]) / 20
    return n**3 / product, cached.numel() / exponential


def step_operations(data: Data, N: int, L: int) -> tuple[float, float]:
    """Multiply-adds and exponentials of one context, forward and backward.

    Logits, their two gradients and the two products that make the queries: 3 L P N + 3 L N^2.
    """
    return 3 * L * data.P * N + 3 * L * N**2, L * data.P


def literal_loss(model: AttentionModel, contexts: Contexts) -> torch.Tensor:
    """The loss straight from the equations, one label a context: the least that it can cost."""
    tokens = torch.cat([contexts.tokens, contexts.query.unsqueeze(1)], dim=1)
    X = contexts.rotated(tokens).mT
    labels = contexts.teacher.labels(contexts.tokens)
    y_in = torch.nn.functional.pad(labels[..., 0], (0, 1)).unsqueeze(1)
    parameters = dict(model.named_parameters())
    if model.architecture.model == "linear":
        prediction = literal.linear(parameters, model.depth, X, y_in)
    else:
        prediction = literal.two_stream(parameters, model.depth, "rms", X, y_in)
    target = contexts.teacher.labels(contexts.target)[..., 0]
    return (prediction - target).square().mean()


def eager_loss(model: AttentionModel, contexts: Contexts) -> torch.Tensor:
    """The fast form without chunks: one autograd graph over batch x L x P logits."""
    residual = model.prediction(contexts) - contexts.teacher.labels(contexts.target)
    return residual.square().sum(-1).mean()


def backward(loss: Callable[[], torch.Tensor], model: AttentionModel) -> None:
    """One gradient."""
    model.zero_grad(set_to_none=True)
    loss().backward()


def training_steps() -> Iterator[dict]:
    """Seconds a context of a gradient: literal, eager and the form in use, against the roofline."""
    multiply_adds, exponentials = machine_rates()
    for L in DEPTHS:
        model = build(replace(NONLINEAR, L=L), TOP2.d, stream("weights", 0))
        contexts = sample_contexts(TOP2, BATCH, "averaged", stream("training", 0))
        few = max(2, min(BATCH, 1024 // L))
        small = sample_contexts(TOP2, few, "sampled", stream("training", 0))
        forms = {
            "literal": seconds(lambda m=model, c=small: backward(lambda: literal_loss(m, c), m), 2)
            / few,
            "eager": seconds(lambda m=model, c=contexts: backward(lambda: eager_loss(m, c), m))
            / BATCH,
            "in use": seconds(lambda m=model, c=contexts: backward(lambda: m.loss(c), m)) / BATCH,
        }
        operations, exps = step_operations(TOP2, NONLINEAR.N, L)
        forms["roofline"] = operations / multiply_adds + exps / exponentials
        for form, value in forms.items():
            yield {"benchmark": "training step", "case": f"L={L}", "form": form, "seconds": value}


def qr_contexts(data: Data, count: int, generator: torch.Generator) -> tuple:
    """Contexts the plain way: a QR rotation each, every token multiplied, beta drawn."""
    rotation, upper = torch.linalg.qr(torch.randn(count, data.d, data.d, generator=generator))
    rotation = rotation * upper.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)
    root = torch.from_numpy(power_law(data.d, data.a)).float().sqrt()
    X = torch.randn(count, data.P + 1, data.d, generator=generator) * root @ rotation.mT
    omega = torch.from_numpy(power_law(data.d, data.b)).float().sqrt()
    beta = torch.randn(count, data.d, generator=generator) * omega
    labels = X @ (rotation @ beta.unsqueeze(-1))
    similarity = torch.nn.functional.cosine_similarity(X[:, :-1], X[:, -1:], dim=-1)
    chosen = similarity.topk(data.k).indices
    return X, labels, labels.squeeze(-1).gather(1, chosen).mean(1)


def data_generation() -> Iterator[dict]:
    """Seconds a context, against a QR and a product for every context."""
    for a in (0.0, 1.0):
        for d, P, count in ((16, 64, 256), (128, 1024, 16)):
            data = Data(task="top_k", k=2, a=a, b=0.0, d=d, P=P)
            generator = stream("training", 0)
            forms = {
                "QR": seconds(lambda: qr_contexts(data, count, generator)),  # noqa: B023
                "in use": seconds(
                    lambda: sample_contexts(data, count, "averaged", generator)  # noqa: B023
                ),
            }
            for form, value in forms.items():
                case = f"d={d} a={a:g}"
                yield {
                    "benchmark": "data generation",
                    "case": case,
                    "form": form,
                    "seconds": value / count,
                }


def linear_chain() -> Iterator[dict]:
    """Seconds a context of a gradient of linear attention at d = 128, P = 1024."""
    top_k = Data(task="top_k", k=2, a=0.5, b=0.5, d=128, P=1024)
    easy = Data(task="easy", k=1, a=2.0, b=1.0, d=128, P=1024)
    for name, data, L in (("top-k", top_k, 1), ("top-k", top_k, 8), ("easy", easy, 64)):
        model = build(replace(LINEAR, L=L), data.d, stream("weights", 0))
        tokens = data.task == "top_k"
        contexts = sample_contexts(data, 16, "averaged", stream("training", 0), tokens)
        value = seconds(lambda m=model, c=contexts: backward(lambda: m.loss(c), m), 3) / 16
        case = f"{name} L={L}"
        yield {"benchmark": "linear chain", "case": case, "form": "in use", "seconds": value}
        if tokens:
            few = sample_contexts(data, 2, "sampled", stream("training", 0))
            value = seconds(lambda m=model, c=few: backward(lambda: literal_loss(m, c), m), 1) / 2
            yield {"benchmark": "linear chain", "case": case, "form": "literal", "seconds": value}


def evaluation() -> Iterator[dict]:
    """Seconds of evaluating 100 000 contexts at L = 256 and of one Table 3 floor's contexts."""
    model = build(replace(NONLINEAR, L=256), TOP2.d, stream("weights", 0))
    contexts = sample_contexts(TOP2, BATCH, "averaged", stream("evaluation", 0))

    def evaluate() -> None:
        with torch.no_grad():
            target = contexts.teacher.labels(contexts.target)
            decompose(model.layer_predictions(contexts), target)

    value = seconds(evaluate, 3) * 100_000 / BATCH
    yield {
        "benchmark": "evaluation",
        "case": "100 000 contexts",
        "form": "in use",
        "seconds": value,
    }
    began = time.perf_counter()
    monte_carlo_floor(
        128,
        1024,
        0.5,
        [(0.5, 2)],
        degree=4,
        contexts=200,
        generator=np.random.default_rng(0),
        blocks=20,
    )
    value = (time.perf_counter() - began) * 10_000 / 200
    yield {"benchmark": "evaluation", "case": "floor of 10 000", "form": "in use", "seconds": value}


_PROBE = """
from pathlib import Path
import torch
from inverse_depth.bench import BATCH, NONLINEAR, TOP2, backward, replace, seconds
from inverse_depth.contexts import sample_contexts, stream
from inverse_depth.models import build
torch.set_num_threads({threads})
model = build(replace(NONLINEAR, L={L}), TOP2.d, stream("weights", 0))
contexts = sample_contexts(TOP2, BATCH, "averaged", stream("training", 0))
def kilobytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name))
Path("/proc/self/clear_refs").write_text("5")
before = kilobytes("VmRSS")
print(seconds(lambda: backward(lambda: model.loss(contexts), model)))
print((kilobytes("VmHWM") - before) / 1024)
"""


def depth_scaling() -> Iterator[dict]:
    """Seconds and peak memory of one batch against depth, each depth in a process of its own.

    The peak is over what the process held before; it is read where Linux tells it.
    """
    for L in (16, 64, 256, 1024):
        code = _PROBE.format(L=L, threads=torch.get_num_threads())
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        value, memory = map(float, done.stdout.split())
        yield {
            "benchmark": "depth scaling",
            "case": f"L={L}",
            "form": "in use",
            "seconds": value,
            "peak_mb": memory,
        }


BENCHMARKS = (training_steps, data_generation, linear_chain, evaluation, depth_scaling)


def run_benchmarks(progress: Callable[[str], None]) -> pd.DataFrame:
    """All benchmarks: benchmark, case, form, seconds, peak_mb, ratio (to the form in use)."""
    rows = []
    for benchmark in BENCHMARKS:
        progress(benchmark.__doc__.splitlines()[0])
        rows += benchmark()
    frame = pd.DataFrame(rows)
    used = frame[frame["form"] == "in use"].set_index(["benchmark", "case"])["seconds"]
    keys = pd.MultiIndex.from_frame(frame[["benchmark", "case"]])
    frame["ratio"] = frame["seconds"] / used.reindex(keys).to_numpy()
    frame["threads"] = torch.get_num_threads()
    frame["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return frame


def step_seconds(run: Run, count: int = 3) -> float:
    """Seconds of one training step of a run, data included, on one thread."""
    model = build(run.architecture, run.data.d, stream("weights", 0))
    generator = stream("training", 0)
    optimization = run.optimization

    def step() -> None:
        contexts = sample_contexts(
            run.data, optimization.batch, optimization.teacher, generator, needs_tokens(run)
        )
        backward(lambda: model.loss(contexts), model)

    return seconds(step, count)


def estimate(runs: list[Run]) -> pd.DataFrame:
    """Training seconds of runs on one core, each distinct shape of a step timed once."""
    timed: dict[tuple, float] = {}
    rows = []
    for run in runs:
        optimization = run.optimization
        shape = (
            replace(run.architecture, init=0.1),  # where weights start costs nothing
            replace(run.data, a=min(run.data.a, 1.0), b=0.0),
            optimization.batch,
            optimization.teacher,
        )
        if shape not in timed:
            timed[shape] = step_seconds(run)
        rows.append({"experiment": run.experiment, "seconds": timed[shape] * optimization.steps})
    frame = pd.DataFrame(rows).groupby("experiment", sort=False)["seconds"].agg(["size", "sum"])
    return frame.rename(columns={"size": "runs", "sum": "core_seconds"}).reset_index()
