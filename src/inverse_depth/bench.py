"""Benchmarks: every speed as a ratio to a plain form timed in the same run, and to the roofline.

"In use" is a form as the package runs it, in one process on all cores; "a job a core" is the same
in a process of one thread on every core at once, which is how the workflow trains.

The roofline of a step is the time that its multiply-adds and exponentials take at the rates of
this machine's own matrix product and exponential, measured here.
"""

import resource
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from inverse_depth import literal
from inverse_depth.contexts import Contexts, sample_contexts, stream
from inverse_depth.decomposition import decompose
from inverse_depth.model import AttentionModel
from inverse_depth.models import build
from inverse_depth.process import keep_freed_memory
from inverse_depth.run import Architecture, Data, Run
from inverse_depth.spectra import power_law
from inverse_depth.theory import monte_carlo_floor
from inverse_depth.train import _Training, _validate, context_block

DEPTHS = (1, 16, 64, 256)
DIMENSIONS = ((16, 64), (32, 128), (64, 256), (128, 1024))  # d and P
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


def seconds(action: Callable[[], object], repeats: int = 3, duration: float = 0.5) -> float:
    """Shortest wall time of a call, after one warm-up, of those that a while has room for.

    Other work on the machine makes calls longer, never shorter; `repeats` is the least number.
    """
    action()
    times, began = [], time.perf_counter()
    while len(times) < repeats or time.perf_counter() - began < duration:
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return min(times)


def alone(function: Callable, *arguments: object):
    """What a function returns in a process of its own, whose memory nothing else has scattered."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=keep_freed_memory) as pool:
        return pool.submit(function, *arguments).result()


@contextmanager
def one_thread() -> Iterator[None]:
    """What the workflow gives a training."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
    """Seconds a context of a gradient: eager and the form in use, against the roofline."""
    cores = torch.get_num_threads()
    for L in DEPTHS:
        model = build(replace(NONLINEAR, L=L), TOP2.d, stream("weights", 0))
        contexts = sample_contexts(TOP2, BATCH, "averaged", stream("training", 0))
        multiply_adds, exponentials = machine_rates()
        operations, exps = step_operations(TOP2, NONLINEAR.N, L)
        forms = {
            "in use": seconds(actions(TOP2, L)["gradient"]) / BATCH,
            "a job a core": np.mean(in_jobs(cores, "gradient", TOP2, L)) / BATCH / cores,
            "eager": seconds(lambda m=model, c=contexts: backward(lambda: eager_loss(m, c), m))
            / BATCH,
            "roofline": operations / multiply_adds + exps / exponentials,
        }
        for form, value in forms.items():
            yield {"benchmark": "training step", "case": f"L={L}", "form": form, "seconds": value}


def literal_steps() -> Iterator[dict]:
    """Seconds a context of a gradient of the literal form."""
    for L in DEPTHS:
        model = build(replace(NONLINEAR, L=L), TOP2.d, stream("weights", 0))
        few = max(2, min(BATCH, 1024 // L))
        contexts = sample_contexts(TOP2, few, "sampled", stream("training", 0))
        value = seconds(lambda m=model, c=contexts: backward(lambda: literal_loss(m, c), m)) / few
        yield {"benchmark": "training step", "case": f"L={L}", "form": "literal", "seconds": value}


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


def actions(data: Data, L: int, device: str = "cpu") -> dict[str, Callable[[], object]]:
    """What a training step of nonlinear attention, N = d, consists of: contexts and a gradient."""
    model = build(replace(NONLINEAR, N=data.d, L=L), data.d, stream("weights", 0)).to(device)
    generator = stream("training", 0, device)
    batch = max(8, BATCH * TOP2.P * TOP2.d // (data.P * data.d))
    drawn = [sample_contexts(data, batch, "averaged", generator)]

    def contexts() -> None:
        drawn[0] = sample_contexts(data, batch, "averaged", generator)

    def gradient() -> None:
        backward(lambda: model.loss(drawn[0]), model)

    def step() -> None:
        contexts()
        gradient()

    return {"contexts": contexts, "gradient": gradient, "step": step}


_together = None  # in a job, the barrier of all jobs


def _join(barrier) -> None:
    global _together
    _together = barrier
    keep_freed_memory()
    torch.set_num_threads(1)


def _median_seconds(name: str, data: Data, L: int, duration: float) -> float:
    """Median seconds of an action, repeated for a while that starts in all jobs together."""
    action = actions(data, L)[name]
    action()
    _together.wait()
    times = [time.perf_counter()]
    while times[-1] < times[0] + duration:
        action()
        times.append(time.perf_counter())
    return float(np.median(np.diff(times)))


def in_jobs(jobs: int, name: str, data: Data, L: int, duration: float = 2.0) -> list[float]:
    """Median seconds of an action in each of several processes of one thread that run at once."""
    context = get_context("spawn")
    shared = {"mp_context": context, "initializer": _join, "initargs": (context.Barrier(jobs),)}
    with ProcessPoolExecutor(jobs, **shared) as pool:
        asked = [pool.submit(_median_seconds, name, data, L, duration) for _ in range(jobs)]
        return [answer.result() for answer in asked]


def shares() -> Iterator[dict]:
    """Seconds a batch of drawing contexts and of the gradient at L = 64, on one thread."""
    for d, P in DIMENSIONS:
        for a in (0.0, 1.0):
            parts = actions(Data(task="top_k", k=2, a=a, b=0.0, d=d, P=P), 64)
            for form in ("contexts", "gradient"):
                with one_thread():
                    value = seconds(parts[form])
                case = f"d={d} a={a:g}"
                yield {"benchmark": "shares", "case": case, "form": form, "seconds": value}


def sharing(rounds: int = 3) -> Iterator[dict]:
    """Seconds of a step, contexts included, at L = 64, of jobs of one thread that run at once."""
    cores = torch.get_num_threads()
    for jobs in (1, cores, 2 * cores):
        value = min(np.mean(in_jobs(jobs, "step", TOP2, 64)) for _ in range(rounds))
        case = f"jobs={jobs}"
        yield {"benchmark": "sharing", "case": case, "form": "jobs", "seconds": value}


def gpu_steps() -> Iterator[dict]:
    """Seconds a batch of a step's parts on a GPU; nothing where there is none."""
    if not torch.cuda.is_available():
        return
    for L in DEPTHS:
        for form, action in actions(TOP2, L, "cuda").items():

            def finished(action=action) -> None:
                action()
                torch.cuda.synchronize()

            value = seconds(finished)
            yield {"benchmark": "gpu step", "case": f"L={L}", "form": form, "seconds": value}


def _kilobytes(name: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(name))


def _time_and_memory(L: int) -> tuple[float, float]:
    """Seconds and peak MB, over what the process held before, of one gradient."""
    gradient = actions(TOP2, L)["gradient"]
    Path("/proc/self/clear_refs").write_text("5")
    before = _kilobytes("VmRSS")
    value = seconds(gradient)
    return value, (_kilobytes("VmHWM") - before) / 1024


def depth_scaling() -> Iterator[dict]:
    """Seconds and peak memory of one batch against depth, each depth in a process of its own.

    The peak is read where Linux tells it.
    """
    for L in (16, 64, 256, 1024):
        value, memory = alone(_time_and_memory, L)
        yield {
            "benchmark": "depth scaling",
            "case": f"L={L}",
            "form": "in use",
            "seconds": value,
            "peak_mb": memory,
        }


BENCHMARKS = (
    training_steps,
    literal_steps,
    data_generation,
    shares,
    sharing,
    gpu_steps,
    linear_chain,
    evaluation,
    depth_scaling,
)


def _rows(benchmark: Callable[[], Iterator[dict]]) -> list[dict]:
    return list(benchmark())


def run_benchmarks(progress: Callable[[str], None]) -> pd.DataFrame:
    """All benchmarks: benchmark, case, form, seconds, peak_mb, ratio (to the form in use)."""
    rows = []
    for benchmark in BENCHMARKS:
        progress(benchmark.__doc__.splitlines()[0])
        rows += alone(_rows, benchmark)
    frame = pd.DataFrame(rows)
    used = frame[frame["form"] == "in use"].set_index(["benchmark", "case"])["seconds"]
    keys = pd.MultiIndex.from_frame(frame[["benchmark", "case"]])
    frame["ratio"] = frame["seconds"] / used.reindex(keys).to_numpy()
    frame["threads"] = torch.get_num_threads()
    frame["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return frame


def run_seconds(run: Run) -> float:
    """Seconds that a run trains on one thread, from a few steps and a validation of a few contexts.

    They are steps of the trainer itself.
    """
    optimization = run.optimization
    few = min(context_block(run.data), optimization.validation_contexts)
    training = _Training(
        replace(run, optimization=replace(optimization, validation_contexts=few)),
        torch.device("cpu"),
    )
    validations = (optimization.validations + 1) * optimization.validation_contexts / few
    with one_thread():
        step = seconds(training.advance, 3, 0.1)
        validation = seconds(lambda: _validate(training.model, training.validation), 3, 0.1)
    return optimization.steps * step + validations * validation


def estimate(runs: list[Run]) -> pd.DataFrame:
    """Training seconds of runs on one core, each distinct shape of a run timed once."""
    timed: dict[tuple, float] = {}
    rows = []
    for run in runs:
        optimization = run.optimization
        shape = (
            replace(run.architecture, init=0.1),  # where weights start costs nothing
            replace(run.data, a=min(run.data.a, 1.0), b=0.0),
            replace(optimization, seed=0, learning_rate=0.0),
        )
        if shape not in timed:
            timed[shape] = run_seconds(run)
        rows.append({"experiment": run.experiment, "seconds": timed[shape]})
    frame = pd.DataFrame(rows).groupby("experiment", sort=False)["seconds"].agg(["size", "sum"])
    return frame.rename(columns={"size": "runs", "sum": "core_seconds"}).reset_index()


def goals(frame: pd.DataFrame, core_hours: dict[str, float]) -> pd.DataFrame:
    """What is asked of the speed, and what was measured: goal, low, high, measured, met.

    Args:
        frame: of `run_benchmarks`.
        core_hours: of training, by scale.
    """

    def timed(benchmark: str) -> pd.DataFrame:
        rows = frame[frame["benchmark"] == benchmark]
        return rows.pivot(index="case", columns="form", values="seconds")

    steps, parts = timed("training step"), timed("shares")
    growth = frame[frame["benchmark"] == "depth scaling"]
    depths = growth["case"].str.removeprefix("L=").astype(int)

    def slope(values: pd.Series) -> float:
        return np.polyfit(np.log(depths), np.log(values), 1)[0]

    sharing = frame.loc[frame["benchmark"] == "sharing", "seconds"].to_numpy()
    cores = int(frame["threads"].iloc[0])
    deep = steps.loc["L=64"]
    rows = [
        ("gradient, L=64: literal to in use", 100, np.inf, deep["literal"] / deep["in use"]),
        ("gradient, L=64: a job a core to roofline", 0, 3, deep["a job a core"] / deep["roofline"]),
        ("gradient, L=64: in use to roofline", 0, 3, deep["in use"] / deep["roofline"]),
        *(
            (f"step, L=64, {case}: share of contexts", 0, 0.2, part["contexts"] / part.sum())
            for case, part in parts.iterrows()
        ),
        ("step: a job alone to a job a core", 0.9, np.inf, sharing[0] / sharing[1]),
        ("time against L=16...1024: slope", 0.8, 1.1, slope(growth["seconds"])),
        ("memory against L=16...1024: slope", -np.inf, 1, slope(growth["peak_mb"])),
    ]
    if "quick" in core_hours:
        minutes = 60 * core_hours["quick"] / cores
        rows.append(("scale quick: minutes on these cores", 0, 8, minutes))
    if "paper" in core_hours:
        rows.append(("scale paper: hours on these cores", 0, 6, core_hours["paper"] / cores))
    table = pd.DataFrame(rows, columns=["goal", "low", "high", "measured"])
    table["met"] = table["measured"].between(table["low"], table["high"])
    return table
