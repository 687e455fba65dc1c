"""Evaluation of one trained run on the contexts that all depths of its experiment share."""

import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from inverse_depth.contexts import stream
from inverse_depth.decomposition import decompose
from inverse_depth.model import AttentionModel
from inverse_depth.run import Run
from inverse_depth.spectra import power_law
from inverse_depth.train import context_blocks, load_model, needs_tokens

PERCENTILES = np.arange(0.0, 100.5, 0.5)


def selection_loss(attention: torch.Tensor, selected: torch.Tensor) -> torch.Tensor:
    """|p - p*|^2 (B,) with p* = 1/k on the selected tokens and 0 elsewhere (eq 90)."""
    k = selected.shape[1]
    target = torch.zeros_like(attention).scatter_(1, selected, 1.0 / k)
    return (attention - target).square().sum(-1)


def bootstrap_means(samples: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """Means (replicates, m) of samples (n, m) over contexts drawn with replacement.

    The same seed and n draw the same contexts, so that replicates are common to all depths.
    """
    rng = np.random.default_rng(seed)
    n = len(samples)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=replicates)
    return counts @ samples / n


def _evaluate_model(model: AttentionModel, run: Run, device: torch.device) -> dict:
    evaluation, depth = run.evaluation, run.architecture.L
    # The average over teachers is exact wherever the prediction is linear in the labels.
    teacher = "averaged" if model.linear_in_labels else "sampled"
    losses, shared, disagreement, selection = [], [], [], []
    modes = torch.zeros(run.data.d, dtype=torch.float64, device=device)
    power, mass, seen, attention_map = 0.0, 0.0, 0, None
    blocks = context_blocks(
        run.data,
        evaluation.contexts,
        teacher,
        stream("evaluation", evaluation.seed, device),
        needs_tokens(run),
    )
    for contexts in blocks:
        target = contexts.teacher.labels(contexts.target)
        layers = model.layer_predictions(contexts)
        prediction = model.prediction(contexts) if layers is None else layers.double().mean(1)
        squared = (prediction.double() - target.double()).square()
        loss = squared.sum(-1)
        losses.append(loss)
        power += target.square().sum(dtype=torch.float64).item()
        modes += squared.sum(0)
        if layers is not None and depth > 1:
            parts = decompose(layers, target)
            shared.append(parts.shared_error)
            disagreement.append(parts.disagreement)
        attention = model.test_attention(contexts)
        if attention is not None:
            mass += attention.gather(1, contexts.selected).sum(dtype=torch.float64).item()
            if seen < evaluation.selection_contexts:
                room = evaluation.selection_contexts - seen
                selection.append(selection_loss(attention, contexts.selected)[:room])
        block = model.context_attention(contexts) if depth == 2 else None
        if block is not None:
            block = block.sum(0, dtype=torch.float64)
            attention_map = block if attention_map is None else attention_map + block
        seen += len(loss)

    if run.data.a == 0:  # isotropic: the labels' channels are already averaged over O
        omega = torch.from_numpy(power_law(run.data.d, run.data.b)).to(device)
        modes = modes.sum() * omega / omega.sum()
    loss = torch.cat(losses).cpu().numpy()
    samples = {"loss": loss}
    if shared:
        samples["shared_error"] = torch.cat(shared).cpu().numpy()
    replicates = bootstrap_means(
        np.stack(list(samples.values()), axis=1), evaluation.bootstrap, evaluation.seed
    )
    scalar = model.context_scalar()
    result = {
        "loss": loss.mean(),
        "loss_se": loss.std(ddof=1) / math.sqrt(len(loss)),
        "shared_error": samples["shared_error"].mean() if shared else None,
        "disagreement": torch.cat(disagreement).mean().item() if disagreement else None,
        "gain": model.gain().item(),
        "context_scalar": scalar,
        "target_power": power / seen,
        "attention_mass": mass / seen if selection else None,
        "bootstrap": {name: replicates[:, i].tolist() for i, name in enumerate(samples)},
        "modes": (modes / seen).tolist() if teacher == "averaged" else None,
        "selection": (
            np.percentile(torch.cat(selection).cpu().numpy(), PERCENTILES).tolist()
            if selection
            else None
        ),
        "attention_map": None if attention_map is None else (attention_map / seen).tolist(),
    }
    return {k: float(v) if isinstance(v, np.floating) else v for k, v in result.items()}


def evaluate(run: Run, checkpoint_path: Path, trained: Run, device: torch.device) -> dict:
    """All measured numbers of a run, as plain values ready for JSON.

    `trained` is the run whose checkpoint this is: the run itself, or its equal at b = 0.

    Raises:
        CheckpointError: if the checkpoint is corrupted or holds other settings.
    """
    model, metadata = load_model(checkpoint_path, trained, device)
    with torch.no_grad():
        result = _evaluate_model(model, run, device)
    return {
        "experiment": run.experiment,
        "run": run.name,
        "data": asdict(run.data),
        "architecture": asdict(run.architecture),
        "optimization": asdict(run.optimization),
        "evaluation": asdict(run.evaluation),
        "result": result | {"final_change": metadata["final_change"], "device": metadata["device"]},
    }
