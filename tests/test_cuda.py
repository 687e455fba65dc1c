"""CPU and CUDA share every line but the device; what only a GPU can show is skipped without one."""

import ast
import sys
from dataclasses import is_dataclass, replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inverse_depth import attention, bench, checkpoint, train
from inverse_depth.contexts import sample_contexts, stream
from inverse_depth.draws import haar_rotations
from inverse_depth.models import build
from inverse_depth.settings import load_settings, resolve_runs

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src/inverse_depth"
MODELS = sorted(path.stem for path in PACKAGE.glob("models/[a-z]*.py"))
TASKS = sorted(path.stem for path in PACKAGE.glob("tasks/[a-z]*.py"))

NEEDS_GPU = (
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA GPU"),
)


def on_gpu(test):
    """A test that needs a GPU, skipped where there is none."""
    for mark in NEEDS_GPU:
        test = mark(test)
    return test


@pytest.fixture(autouse=True)
def arithmetic():
    """PyTorch's settings, as they were before the test."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, torch.are_deterministic_algorithms_enabled()
    yield
    matmul.allow_tf32, cudnn.allow_tf32 = before[:2]
    torch.use_deterministic_algorithms(before[2])


def small_run(model="nonlinear", task="top_k"):
    """A run of scale tiny on another model and task, with rotations and a few steps."""
    runs = resolve_runs(load_settings(ROOT / "tests/tiny.yaml"))
    run = next(run for run in runs if run.experiment == "nonlinear_top2" and run.architecture.L > 1)
    values = "identity" if model == "context_updates" else "trained"
    return replace(
        run,
        data=replace(run.data, task=task, a=1.0),
        architecture=replace(run.architecture, model=model, values=values),
        optimization=replace(run.optimization, teacher="sampled"),
    )


def asked_for_the_device(path):
    """The functions, classes and values of a module that name CUDA or ask what a device is."""
    for top in ast.parse(path.read_text(encoding="utf-8")).body:
        for node in ast.walk(top):
            attribute = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
            if attribute.endswith((".cuda", ".is_cuda", ".is_cpu", "device.type")) or (
                isinstance(node, ast.Constant) and node.value == "cuda"
            ):
                yield f"{path.stem}.{getattr(top, 'name', None) or ast.unparse(top).split(' =')[0]}"


def test_few_places_know_of_the_device():
    assert {place for path in PACKAGE.rglob("*.py") for place in asked_for_the_device(path)} == {
        # what a user may choose, and what comes of it
        "settings.Settings",
        "cli.parser",
        "train.select_device",
        # how many contexts fit
        "attention.CHUNK_BYTES",
        "attention.BLOCK_BYTES",
        "attention.chunk_size",
        "attention._ensemble_sum",
        # loops for a CPU
        "draws.standard_normal",
        "draws.haar_rotations",
        # a benchmark of its own
        "bench.gpu_steps",
        # what the checkpoint says of its origin
        "train.train",
    }


class Elsewhere(TorchDispatchMode):
    """On the device `meta`, which knows shapes alone: every number read from it is one.

    An operation that gets tensors from two devices fails, as on a GPU.
    """

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        tensors = [x for x in tree_leaves((args, kwargs)) if torch.is_tensor(x) and x.dim()]
        if len({tensor.device for tensor in tensors}) > 1:
            raise RuntimeError(f"{operation} got tensors on two devices")
        if operation is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return 1.0
        return operation(*args, **kwargs or {})


class Generator(torch.Generator):
    """A generator for `meta`, for which PyTorch has none."""

    device = torch.device("meta")


@pytest.fixture
def meta(monkeypatch):
    """`meta` as a device that trains: with chunks, generators, and an Adam that it has."""

    def stream_on(name, seed, device="cpu"):
        elsewhere = torch.device(device).type == "meta"
        generator = stream(name, seed, "cpu" if elsewhere else device)
        return Generator() if elsewhere else generator

    def adam(model):
        return torch.optim.Adam(p for p in model.parameters() if p.requires_grad)

    for sizes in (attention.CHUNK_BYTES, attention.BLOCK_BYTES):
        monkeypatch.setitem(sizes, "meta", sizes["cpu"])
    monkeypatch.setattr(train, "stream", stream_on)
    monkeypatch.setattr(train, "_optimizer", adam)
    return torch.device("meta")


def lines_of_training(run, device):
    """The package's lines that a step and two validations go through, in their order.

    Not those of `draws`, which has loops of its own for a CPU.
    """
    lines = []

    def trace(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(PACKAGE) or path.stem == "draws":
            return None
        if event == "line":
            lines.append(f"{path.relative_to(PACKAGE)}:{frame.f_lineno}")
        return trace

    with Elsewhere():
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            training = train._Training(run, device)
            training.record()
            training.advance()
            training.record()
        finally:
            sys.settrace(before)
    gradients = [p.grad for p in training.model.parameters() if p.requires_grad]
    assert {gradient.device.type for gradient in gradients} == {device.type}
    return lines


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
def test_training_goes_through_the_same_lines_on_another_device(model, task, meta):
    run = small_run(model, task)
    lines_of_training(run, meta)  # once, so that everything is imported
    expected = lines_of_training(run, torch.device("cpu"))
    assert len(expected) > 100
    assert lines_of_training(run, meta) == expected


@pytest.mark.parametrize("name", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_choosing_a_device_turns_fast_arithmetic_off(name):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.use_deterministic_algorithms(False)
    device = train.select_device(name)
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
    assert torch.are_deterministic_algorithms_enabled()
    a, b = torch.randn(2, 512, 512, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    product = (a.float().to(device) @ b.float().to(device)).double().cpu()
    # TF32 is off by 3e-4 here, bf16 by 2e-3.
    assert (product - a @ b).norm() < 1e-6 * (a @ b).norm()


def moved(value, device):
    """Contexts on another device."""
    if torch.is_tensor(value):
        return value.to(device)
    if is_dataclass(value):
        return type(value)(**{name: moved(part, device) for name, part in vars(value).items()})
    return value


@on_gpu
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", MODELS)
def test_losses_and_gradients_agree(model, task):
    run = small_run(model, task)
    contexts = sample_contexts(run.data, 256, "sampled", stream("training", 0))
    results = []
    for device in (train.select_device("cpu"), train.select_device("cuda")):
        network = build(run.architecture, run.data.d, stream("weights", 0)).to(device)
        loss = network.loss(moved(contexts, device))
        loss.backward()
        results.append([loss, *(p.grad for p in network.parameters() if p.requires_grad)])
    for on_cpu, on_cuda in zip(*results, strict=True):
        torch.testing.assert_close(on_cuda.cpu(), on_cpu, rtol=1e-4, atol=1e-6)


@on_gpu
def test_the_benchmark_times_every_part_of_a_step():
    rows = list(bench.gpu_steps())
    assert {row["form"] for row in rows} == {"contexts", "gradient", "step"}
    assert len(rows) == 3 * len(bench.DEPTHS)
    assert all(row["seconds"] > 0 for row in rows)


@on_gpu
@pytest.mark.parametrize("d", [1, 4, 128])
def test_rotations_are_orthogonal(d):
    rotation = haar_rotations(200, d, stream("training", 0, train.select_device("cuda"))).double()
    identity = torch.eye(d, dtype=torch.float64, device="cuda").expand_as(rotation)
    torch.testing.assert_close(rotation @ rotation.mT, identity, rtol=0, atol=1e-5)


@on_gpu
def test_rotations_are_haar():
    """The trace of a Haar matrix has mean 0 and variance 1, its determinant both signs."""
    rotation = haar_rotations(20_000, 4, stream("training", 0, train.select_device("cuda")))
    trace = rotation.diagonal(dim1=1, dim2=2).sum(1).double()
    assert abs(trace.mean().item()) < 0.04
    assert abs(trace.square().mean().item() - 1) < 0.06
    assert abs(torch.linalg.det(rotation).mean().item()) < 0.04


class Killed(Exception):
    """Stands for the signal that ends a training."""


@on_gpu
@pytest.mark.parametrize("model", MODELS)
def test_training_repeats_to_the_same_bits(model, tmp_path):
    run, device = small_run(model), train.select_device("cuda")

    def trained(name, progress=lambda step, loss: None, **options):
        folder = tmp_path / name
        files = folder / "run.safetensors", folder / "run.csv", folder / "snapshot.safetensors"
        train.train(run, "id", *files, device, progress, print, **options)
        return checkpoint.load(files[0]).tensors

    def kill(step, loss):
        if step == 21:
            raise Killed

    first, second = trained("first"), trained("second")
    with pytest.raises(Killed):
        trained("interrupted", kill, snapshot_seconds=0.0)
    continued = trained("interrupted")
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name])
        assert torch.equal(tensor, continued[name])
