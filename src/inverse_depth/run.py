"""One resolved run: everything that decides its weights, and everything that decides its numbers.

Training sees only these plain values. Where they come from (`params.yaml`, defaults, grids) is
the business of `settings`, which training never imports.
"""

from dataclasses import asdict, dataclass, replace
from typing import Literal

Encoder = Literal["isometry", "gaussian"]
Teacher = Literal["averaged", "sampled", "isotropic"]


@dataclass(frozen=True)
class Data:
    """Spectra lambda_k = k^-a and omega_k = k^-b in d dimensions, P context tokens (eq 1-6).

    `P` is None for the infinite-context limit S = Sigma, where only linear attention on the
    easy task is defined. `k` is the number of selected tokens, 1 on the easy task.
    """

    task: str
    k: int
    a: float
    b: float
    d: int
    P: int | None


@dataclass(frozen=True)
class Architecture:
    """Model (a file in `models`), hidden width N and depth L (eq 7-12, 64-82).

    `norm` is the pre-norm of queries and keys, `encoder` how W_x starts, `values` whether W_v is
    trained or stays the identity, `tied` whether all layers share one query and key matrix,
    `init` the scale of the starting weights (of linear attention: the mean of the starting steps
    kappa_l / L) and `context_scalar` the start of m.
    """

    model: str
    N: int
    L: int
    norm: Literal["rms", "none"]
    encoder: Encoder
    values: Literal["trained", "identity"]
    tied: bool
    init: float
    context_scalar: float


@dataclass(frozen=True)
class Optimization:
    """Adam on `steps` batches of `batch` contexts.

    `teacher` says what the gradient is averaged over exactly: nothing (labels are `sampled`), the
    teacher (`averaged`), or the teacher and the rotations of the data (`isotropic`; eq 5, 12).
    The learning rate is `learning_rate` / L^`depth_exponent`, reached after a linear warm-up over
    the fraction `warmup` of the steps and lowered to zero over the last fraction `decay`.
    `validations` times the loss on `validation_contexts` fixed contexts is written to the history.
    """

    teacher: Teacher
    steps: int
    batch: int
    learning_rate: float
    depth_exponent: float
    warmup: float
    decay: float
    validations: int
    validation_contexts: int
    seed: int


@dataclass(frozen=True)
class Evaluation:
    """Common contexts on which every depth of an experiment is evaluated."""

    contexts: int
    selection_contexts: int
    bootstrap: int
    seed: int


@dataclass(frozen=True)
class Run:
    """A trained model and its evaluation; `name` is unique within the experiment."""

    experiment: str
    name: str
    data: Data
    architecture: Architecture
    optimization: Optimization
    evaluation: Evaluation

    @property
    def modules(self) -> tuple[str, str]:
        """The modules of its model and of its task."""
        package = __package__
        return f"{package}.models.{self.architecture.model}", f"{package}.tasks.{self.data.task}"

    def training(self) -> dict:
        """The resolved settings that decide the weights, as plain nested values."""
        return {
            "data": asdict(self.data),
            "architecture": asdict(self.architecture),
            "optimization": asdict(self.optimization),
        }

    def with_data(self, **changes) -> "Run":
        """The same run on other data."""
        return replace(self, data=replace(self.data, **changes))

    def __str__(self) -> str:
        return f"{self.experiment}/{self.name}"
