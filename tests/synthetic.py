"""Frames with known answers, for the tests of tables and comparison."""

import numpy as np
import pandas as pd

from inverse_depth import published

DEPTHS = 2 ** np.arange(9)  # 1 ... 256
NONLINEAR = {"model": "nonlinear", "d": 16, "P": 64.0, "N": 16}
LINEAR = {"model": "linear", "d": 128, "P": 1024.0, "N": 128}


def runs(experiment, depths, losses, *, seed=0, **values):
    """Evaluations of one depth curve, a row per depth."""
    defaults = {
        "experiment": experiment,
        "model": "nonlinear",
        "task": "top_k",
        "k": 2,
        "a": 0.0,
        "b": 0.0,
        "seed": seed,
        "loss_se": 1e-3,
        "shared_error": np.nan,
        "disagreement": np.nan,
        "gain": 1.0,
        "context_scalar": np.nan,
        "contexts": 10240,
        "steps": 6000,
        "teacher": "averaged",
        "init": 1.0,
        "norm": "rms",
        "encoder": "isometry",
        "final_change": 1e-4,
        "converged": True,
        "device": "cpu",
        "code": "",
        "learning_rate": 1e-3,
        **NONLINEAR,
    }
    frame = pd.DataFrame({"L": depths, "loss": losses}).assign(**(defaults | values))
    spectrum = [f"{key}={frame[key].iloc[0]:g}" for key in ("k", "a", "b", "P", "N")]
    frame["run"] = [f"{experiment}-{'-'.join(spectrum)}-L{L}-seed{seed}" for L in frame["L"]]
    return frame


def power_law(depths, L0, c, alpha):
    return L0 + c * np.asarray(depths, dtype=float) ** -alpha


def paper_evaluations():
    """Runs whose fits are the published numbers."""
    frames = []
    gaps = published.table(5).set_index(["a", "b"])["alpha"]
    for row in published.table(1).itertuples():
        spectrum = {"a": row.a, "b": row.b}
        shared_error = row.nonlinear_L0 - power_law(DEPTHS, 0, 0.1, gaps[row.a, row.b])
        shared_error[0] = np.nan
        losses = power_law(DEPTHS, row.nonlinear_L0, 0.4 * row.nonlinear_L0, 0.98)
        frames.append(runs("nonlinear_top2", DEPTHS, losses, shared_error=shared_error, **spectrum))
    table3 = published.table(3)
    plateaus = [
        *published.table(1)[["a", "b", "linear_L0"]].assign(k=2).to_dict("records"),
        *table3.rename(columns={"measured": "linear_L0"}).to_dict("records"),
    ]
    done = set()
    for row in plateaus:
        key = {"k": row["k"], "a": row["a"], "b": row["b"]}
        if tuple(key.values()) not in done:
            done.add(tuple(key.values()))
            losses = row["linear_L0"] * np.array([1.3, 1, 1, 1, 1])
            frames.append(runs(f"linear_top{row['k']}", [1, 2, 3, 4, 8], losses, **key | LINEAR))
    for row in published.table(4).itertuples():
        experiment = "nonlinear_top2_mixed" if row.k == 2 else "nonlinear_top16"
        losses = power_law(DEPTHS, row.L0, 0.4 * row.L0, row.alpha)
        frames.append(runs(experiment, DEPTHS, losses, k=row.k, a=row.a, b=row.b))
    easy = {"task": "easy", "k": 1}
    for row in published.table(2).itertuples():
        values = easy | LINEAR | {"a": row.a, "b": row.b}
        losses = power_law(DEPTHS[:7], 0, 1, row.alpha)
        frames.append(runs("linear_easy_finite", DEPTHS[:7], losses, **values))
        losses = power_law(DEPTHS[:7], 0, 1, row.two_zeta)
        frames.append(runs("linear_easy", DEPTHS[:7], losses, **values | {"P": np.inf}))
    for a, b in [(0, 0), (1, 0), (0, 1)]:
        frames.append(runs("nonlinear_easy", [1, 2], [1e-6, 1e-6], **easy | {"a": a, "b": b}))
    for k, m in {2: -0.4, 16: -2.3}.items():
        losses = power_law([1, 2, 4, 8], 2.007, 0.8, 1) if k == 2 else [0.5, 0.27, 0.27, 0.27]
        scalars = [np.nan, m - 0.1, m, m + 0.1]
        experiment = f"context_updates_top{k}"
        frames.append(runs(experiment, [1, 2, 4, 8], losses, k=k, context_scalar=scalars))
    return pd.concat(frames, ignore_index=True)


def paper_floors():
    """Theory that is the paper's, the finite-context floor 2 % below it."""
    floors = published.table(3)[["k", "a", "b", "theory", "theory_se"]]
    return floors.assign(
        finite_context_floor=0.98 * floors["theory"],
        finite_context_floor_se=floors["theory_se"],
        d=128,
        P=1024,
    )
