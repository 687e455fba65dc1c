"""What training a run costs, roughly: enough to start long runs first and to ask a cluster."""

from inverse_depth.run import Run

FLOPS_PER_SECOND = 2.4e10  # of one core
BYTES = 4


def training_minutes(run: Run) -> float:
    """Minutes on one core, from operations forward and backward a context.

    Softmax attention passes L queries by P keys of width N. Linear attention draws P tokens, or on
    the easy task a covariance factor, and passes one vector through L layers; the factors are
    measured ones.
    """
    L, N, d = run.architecture.L, run.architecture.N, run.data.d
    if run.architecture.model == "linear":
        easy = run.data.task == "easy"
        per_context = 6 * (d**2 * (100 + 5 * L) if easy else run.data.P * d * (24 + 3 * L))
    else:
        P = run.data.P
        per_context = 6 * (L * P * N + L * N**2 + P * N * d)
        if run.architecture.model == "context_updates":
            per_context *= P
    contexts = run.optimization.steps * run.optimization.batch
    return contexts * per_context / FLOPS_PER_SECOND / 60


def training_megabytes(run: Run) -> float:
    """Memory: PyTorch itself, a few copies of a batch's tokens and keys, and Adam's weights."""
    L, N = run.architecture.L, run.architecture.N
    P = run.data.P or run.data.d
    batch = max(run.optimization.batch, 256) * P * (N + run.data.d)
    weights = 4 * 3 * L * N**2
    return 1000 + (8 * batch + weights) * BYTES / 2**20
