"""What training a run costs, roughly: enough to start long runs first and to ask a cluster."""

from inverse_depth.run import Run

FLOPS_PER_SECOND = 4e9  # sustained by one core on the attention of this project
BYTES = 4


def training_minutes(run: Run) -> float:
    """Minutes on one core: forward and backward through L layers of P keys of width N."""
    L, N = run.architecture.L, run.architecture.N
    P = run.data.P or run.data.d
    per_context = 6 * (L * P * N + L * N**2 + P * N * run.data.d)
    contexts = run.optimization.steps * run.optimization.batch
    return contexts * per_context / FLOPS_PER_SECOND / 60


def training_megabytes(run: Run) -> float:
    """Memory: PyTorch itself, a few copies of a batch's tokens and keys, and Adam's weights."""
    L, N = run.architecture.L, run.architecture.N
    P = run.data.P or run.data.d
    batch = max(run.optimization.batch, 256) * P * (N + run.data.d)
    weights = 4 * 3 * L * N**2
    return 1000 + (8 * batch + weights) * BYTES / 2**20
