"""Training: deterministic, resumable to the same bits, and clear when it cannot go on."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from filelock import FileLock

from inverse_depth import checkpoint
from inverse_depth.contexts import stream
from inverse_depth.evaluate import bootstrap_means, evaluate, selection_loss
from inverse_depth.models import build
from inverse_depth.run import Architecture, Data, Evaluation, Optimization, Run
from inverse_depth.train import (
    TrainingError,
    context_block,
    final_change,
    learning_rate,
    load_model,
    select_device,
    train,
)

CPU = torch.device("cpu")


def small_run(**changes):
    """A nonlinear run that trains in well under a second."""
    run = Run(
        experiment="small",
        name="run",
        data=Data(task="top_k", k=2, a=0.5, b=0.5, d=4, P=12),
        architecture=Architecture(
            model="nonlinear",
            N=6,
            L=3,
            norm="rms",
            encoder="isometry",
            values="trained",
            tied=False,
            init=0.5,
            context_scalar=0.0,
        ),
        optimization=Optimization(
            teacher="averaged",
            steps=60,
            batch=16,
            learning_rate=0.01,
            depth_exponent=0.0,
            warmup=0.1,
            decay=0.5,
            validations=4,
            validation_contexts=64,
            seed=0,
        ),
        evaluation=Evaluation(contexts=512, selection_contexts=300, bootstrap=20, seed=0),
    )
    parts = {}
    for part in ("data", "architecture", "optimization", "evaluation"):
        names = vars(getattr(run, part))
        chosen = {key: value for key, value in changes.items() if key in names}
        parts[part] = replace(getattr(run, part), **chosen)
    return replace(run, **parts)


class Folder:
    """The files of one training in a folder."""

    def __init__(self, path):
        self.checkpoint = path / "run.safetensors"
        self.history = path / "run.csv"
        self.snapshot = path / "snapshots" / "run.safetensors"
        self.warnings = []

    def train(self, run, identity="id", **options):
        train(
            run,
            identity,
            self.checkpoint,
            self.history,
            self.snapshot,
            CPU,
            warn=self.warnings.append,
            **options,
        )
        return checkpoint.load(self.checkpoint)

    def rows(self):
        with self.history.open() as stream:
            return [{k: float(v) for k, v in row.items()} for row in csv.DictReader(stream)]


class Killed(Exception):
    """Stands for the signal that ends a training."""


def killed_at(step):
    def progress(done, loss):
        if done == step:
            raise Killed

    return progress


def same_weights(a, b):
    return all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)


def test_training_lowers_the_loss_and_repeats_to_the_same_bits(tmp_path):
    select_device("cpu")
    first, second = Folder(tmp_path / "a"), Folder(tmp_path / "b")
    one, two = first.train(small_run()), second.train(small_run())
    assert same_weights(one, two)
    assert one.metadata == two.metadata
    rows = first.rows()
    assert [row["step"] for row in rows] == [0, 15, 30, 45, 60]
    assert rows[-1]["validation_loss"] < 0.9 * rows[0]["validation_loss"]
    assert not first.snapshot.exists()


def test_another_seed_gives_other_weights(tmp_path):
    one = Folder(tmp_path / "a").train(small_run())
    two = Folder(tmp_path / "b").train(small_run(seed=1))
    assert not same_weights(one, two)


@pytest.mark.parametrize("changes", [{}, {"model": "linear", "init": 0.1, "teacher": "sampled"}])
@pytest.mark.parametrize("step", [1, 29, 59])
def test_an_interrupted_run_continues_to_the_same_bits(tmp_path, step, changes):
    run = small_run(**changes)
    whole, interrupted = Folder(tmp_path / "whole"), Folder(tmp_path / "interrupted")
    expected = whole.train(run)
    with pytest.raises(Killed):
        interrupted.train(run, progress=killed_at(step), snapshot_seconds=0.0)
    assert not interrupted.checkpoint.exists()
    seen = []
    resumed = interrupted.train(run, progress=lambda done, loss: seen.append(done))
    assert same_weights(expected, resumed)
    assert min(seen) >= step
    without_time = [{k: v for k, v in row.items() if k != "seconds"} for row in whole.rows()]
    again = [{k: v for k, v in row.items() if k != "seconds"} for row in interrupted.rows()]
    assert str(without_time) == str(again)


@pytest.mark.parametrize("damage", ["truncate", "flip"])
def test_a_damaged_snapshot_is_named_and_the_one_before_is_used(tmp_path, damage):
    run, folder = small_run(), Folder(tmp_path)
    expected = Folder(tmp_path / "whole").train(run)
    with pytest.raises(Killed):
        folder.train(run, progress=killed_at(40), snapshot_seconds=0.0)
    stored = bytearray(folder.snapshot.read_bytes())
    if damage == "truncate":
        stored = stored[: len(stored) // 2]
    else:
        stored[-100] ^= 0xFF
    folder.snapshot.write_bytes(bytes(stored))
    seen = []
    resumed = folder.train(run, progress=lambda done, loss: seen.append(done))
    assert any(str(folder.snapshot) in warning for warning in folder.warnings)
    assert 30 < min(seen) <= 40
    assert same_weights(expected, resumed)


def test_a_snapshot_of_other_settings_is_not_used(tmp_path):
    folder = Folder(tmp_path)
    with pytest.raises(Killed):
        folder.train(small_run(), progress=killed_at(20), snapshot_seconds=0.0)
    seen = []
    folder.train(small_run(), "other", progress=lambda done, loss: seen.append(done))
    assert min(seen) == 1
    assert "belongs to other settings" in folder.warnings[0]


def test_divergence_names_run_and_step(tmp_path):
    run = small_run(model="linear", learning_rate=1e4, init=1.0)
    with pytest.raises(TrainingError, match=r"small/run diverged .*step \d+ of 60"):
        Folder(tmp_path).train(run)


def test_a_second_trainer_of_one_run_stops(tmp_path):
    folder = Folder(tmp_path)
    folder.snapshot.parent.mkdir(parents=True)
    with (
        FileLock(folder.snapshot.with_suffix(".lock")),
        pytest.raises(TrainingError, match="another process is training small/run"),
    ):
        folder.train(small_run())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_asked_for_and_absent():
    with pytest.raises(TrainingError, match="no CUDA GPU; use 'auto' or 'cpu'"):
        select_device("cuda")


@pytest.mark.parametrize("damage", ["truncate", "flip", "foreign"])
def test_damaged_checkpoints_are_never_loaded(tmp_path, damage):
    run, folder = small_run(), Folder(tmp_path)
    folder.train(run)
    stored = bytearray(folder.checkpoint.read_bytes())
    if damage == "truncate":
        stored = stored[:-10]
    elif damage == "flip":
        stored[-3] ^= 1
    else:
        stored = bytearray(b"hello")
    folder.checkpoint.write_bytes(bytes(stored))
    with pytest.raises(checkpoint.CheckpointError, match=str(folder.checkpoint)):
        evaluate(run, folder.checkpoint, run, CPU)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    folder = Folder(tmp_path)
    folder.train(small_run())
    other = small_run(learning_rate=0.02)
    with pytest.raises(checkpoint.CheckpointError, match="trained with other settings"):
        evaluate(other, folder.checkpoint, other, CPU)


def test_evaluation_measures_what_it_says(tmp_path):
    run, folder = small_run(), Folder(tmp_path)
    folder.train(run)
    result = evaluate(run, folder.checkpoint, run, CPU)["result"]
    rebuilt = result["shared_error"] + result["disagreement"] / 3
    assert rebuilt == pytest.approx(result["loss"], rel=1e-9)
    assert sum(result["modes"]) == pytest.approx(result["loss"], rel=1e-6)
    assert result["loss"] < result["target_power"]
    assert len(result["selection"]) == 201
    assert np.all(np.diff(result["selection"]) >= 0)
    assert np.std(result["bootstrap"]["loss"]) == pytest.approx(result["loss_se"], rel=0.6)


def test_isotropic_training_moves_the_steps_and_keeps_them_scaled_identities(tmp_path):
    run = small_run(model="linear", task="easy", k=1, N=4, teacher="isotropic", init=1.0)
    folder = Folder(tmp_path)
    folder.train(run)
    model, _ = load_model(folder.checkpoint, run, CPU)
    start = build(run.architecture, run.data.d, stream("weights", 0))
    for name in ("W_x", "W_q", "W_k"):
        weight, before = getattr(model, name), getattr(start, name)
        scale = weight.diagonal(dim1=-2, dim2=-1).mean(-1)
        assert torch.equal(weight, scale[..., None, None] * torch.eye(4))
        assert not torch.allclose(weight, before, rtol=1e-3)


def test_isotropic_losses_are_proportional_to_the_trace_of_omega(tmp_path):
    """R(0, b) = (tr Omega / d) R(0, 0) at the same weights, and so for every mode."""
    base, folder = small_run(a=0.0, b=0.0), Folder(tmp_path)
    folder.train(base)
    other = base.with_data(b=1.0)
    at_zero = evaluate(base, folder.checkpoint, base, CPU)["result"]
    at_one = evaluate(other, folder.checkpoint, base, CPU)["result"]
    omega = 1 / np.arange(1, 5)
    assert at_one["loss"] == pytest.approx(omega.mean() * at_zero["loss"], rel=1e-5)
    assert at_one["modes"] == pytest.approx(list(omega * at_zero["loss"] / 4), rel=1e-5)


def test_depths_are_evaluated_on_common_contexts(tmp_path):
    """The zero predictor's loss, a property of the contexts alone, is the same at every depth."""
    powers = []
    for L in (1, 2, 7):
        run, folder = small_run(L=L, steps=8), Folder(tmp_path / str(L))
        folder.train(run)
        powers.append(evaluate(run, folder.checkpoint, run, CPU)["result"]["target_power"])
    assert powers[0] == powers[1] == powers[2]


def test_selection_loss_is_zero_on_the_target_distribution():
    attention = torch.tensor([[0.5, 0.0, 0.5], [1.0, 0.0, 0.0]])
    selected = torch.tensor([[0, 2], [0, 2]])
    assert selection_loss(attention, selected).tolist() == [0.0, 0.5]


def test_bootstrap_draws_the_same_contexts_for_every_depth():
    samples = np.random.default_rng(1).normal(size=(400, 1))
    once = bootstrap_means(samples, 50, 3)
    both = bootstrap_means(np.hstack([samples, 2 * samples]), 50, 3)
    assert np.allclose(both[:, 0], once[:, 0])
    assert np.allclose(both[:, 1], 2 * once[:, 0])
    assert once.std() == pytest.approx(samples.std() / 20, rel=0.3)


def test_the_learning_rate_warms_up_and_decays_to_zero():
    schedule = small_run(depth_exponent=0.5, learning_rate=0.2).optimization
    rates = [learning_rate(schedule, 4, step) for step in range(60)]
    assert rates[0] == pytest.approx(0.1 / 6)
    assert rates[6:30] == pytest.approx([0.1] * 24)
    assert rates[45] == pytest.approx(0.05)
    assert rates[59] == pytest.approx(0.1 / 30)


def test_final_change_is_relative_and_over_the_last_quarter():
    rows = [
        {"step": s, "validation_loss": v} for s, v in ((0, 9.0), (70, 3.0), (80, 2.5), (100, 2))
    ]
    assert final_change(rows, 100) == pytest.approx(0.5)
    assert math.isclose(final_change(rows[-1:] + rows[-1:], 200), 0.0)


def test_blocks_of_contexts_do_not_depend_on_the_model():
    assert context_block(Data("top_k", 2, 0.0, 0.0, 16, 64)) == 256
    assert context_block(Data("top_k", 2, 0.0, 0.0, 128, 1024)) == 32
    assert context_block(Data("easy", 1, 2.0, 1.0, 128, None)) == 256
