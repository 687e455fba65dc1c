"""`params.yaml` → validated settings → the list of resolved runs.

Every mistake is one `SettingsError` that names the key's path, the value and what is allowed,
raised before anything is trained, written or deleted.
"""

import itertools
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from inverse_depth.run import (
    Architecture,
    Data,
    Encoder,
    Evaluation,
    Optimization,
    Run,
    Teacher,
)

Exponent = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, strict=True)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Seed = Annotated[int, Field(ge=0, lt=2**31, strict=True)]
Spectrum = tuple[Exponent, Exponent]


def _file_in(folder: str, definition: str) -> AfterValidator:
    """The name of a Python file in a folder of this package, where extensions go, too.

    `definition` starts the line of what such a file has to define.
    """

    def check(name: str) -> str:
        files = {path.stem: path for path in (Path(__file__).parent / folder).glob("[!_]*.py")}
        if name not in files:
            raise ValueError(f"is {name!r}; allowed: {', '.join(sorted(files))}")
        if not re.search(rf"^{definition}\b", files[name].read_text("utf-8"), re.MULTILINE):
            raise ValueError(f"is {name!r}; {folder}/{name}.py defines no {definition.split()[-1]}")
        return name

    return AfterValidator(check)


class SettingsError(ValueError):
    """A mistake in the settings, in the user's words."""


class Section(BaseModel):
    """A mapping of params.yaml: unknown keys are mistakes, values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Training(Section):
    """How runs are trained; a scale gives all of it, an experiment may override single keys."""

    teacher: Teacher
    steps: Count
    batch: Count
    learning_rate: Positive
    depth_exponent: float = 0.0
    warmup: Fraction
    decay: Fraction
    validations: Annotated[int, Field(ge=4, strict=True)]
    validation_contexts: Count


class EvaluationSettings(Section):
    """On what runs are evaluated."""

    contexts: Annotated[int, Field(ge=2, strict=True)]  # one has no standard error
    selection_contexts: Count
    bootstrap: Count
    seed: Seed
    convergence_limit: Positive


class Fits(Section):
    """Which depths enter which fit."""

    deep_from: Count
    easy_depths: dict[str, tuple[Count, Count]] = {}
    plateau_from: Count
    plateau_from_steep: Count


class Theory(Section):
    """Monte Carlo of the linear floor (eq 54) and of the references."""

    d: Count
    P: Count
    degree: Count
    contexts: Count
    blocks: Annotated[int, Field(ge=10, strict=True)]
    reference_contexts: Count
    geometry_samples: Count
    floors: list[tuple[Count, Exponent, Exponent]]

    @model_validator(mode="after")
    def _whole_blocks(self) -> "Theory":
        for key in ("contexts", "reference_contexts"):
            value = getattr(self, key)
            if value % self.blocks:
                raise ValueError(f"{key} is {value}; a multiple of blocks = {self.blocks}")
        for k, a, b in self.floors:
            if k > self.P:
                raise ValueError(f"floors: k is {k} in [{k}, {a:g}, {b:g}]; at most P = {self.P}")
        return self


# What a grid may vary beside spectra, depths and seeds.
GRID_KEYS = ("P", "N", "k", "encoder", "init", "teacher", "learning_rate", "steps")


class Experiment(Section):
    """A family of runs: the product of spectra, depths, seeds and grid."""

    model: Annotated[str, _file_in("models", "MODEL")]
    task: Annotated[str, _file_in("tasks", "def draw")]
    k: Count = 1
    spectra: Annotated[list[Spectrum], Field(min_length=1)]
    d: Count
    P: Count | Literal["infinite"]
    N: Count
    depths: Annotated[list[Count], Field(min_length=1)]
    seeds: Annotated[list[Seed], Field(min_length=1)] = [0]
    extra_seeds: dict[str, list[Seed]] = {}
    norm: Literal["rms", "none"] = "rms"
    encoder: Encoder = "isometry"
    values: Literal["trained", "identity"] = "trained"
    tied: bool = False
    init: Positive = 1.0
    context_scalar: float = 0.0
    enabled: bool = True
    grid: dict[Literal[GRID_KEYS], Annotated[list[Any], Field(min_length=1)]] = {}
    training: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}

    @model_validator(mode="after")
    def _no_repeats(self) -> "Experiment":
        for name in ("spectra", "depths", "seeds"):
            values = getattr(self, name)
            repeated = {value for value in values if values.count(value) > 1}
            if repeated:
                raise ValueError(f"{name} repeats {sorted(repeated)}; each value is allowed once")
        return self


class Scale(Section):
    """One complete set of experiments with the settings they share."""

    training: Training
    evaluation: EvaluationSettings
    fits: Fits
    theory: Theory
    experiments: Annotated[dict[str, Experiment], Field(min_length=1)]


class Settings(Section):
    """All of params.yaml."""

    scale: str
    device: Literal["auto", "cpu", "cuda"]
    scales: Annotated[dict[str, Scale], Field(min_length=1)]

    @model_validator(mode="after")
    def _scale_exists(self) -> "Settings":
        if self.scale not in self.scales:
            raise ValueError(f"scale is {self.scale!r}; allowed: {', '.join(self.scales)}")
        return self

    @property
    def current(self) -> Scale:
        return self.scales[self.scale]


class _Loader(yaml.SafeLoader):
    """YAML in which a key given twice is an error."""


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict:
    seen = set()
    for key_node, _ in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            continue
        key = loader.construct_object(key_node)
        if key in seen:
            line = key_node.start_mark.line + 1
            raise SettingsError(f"key {key!r} is given twice (line {line}); give it once")
        seen.add(key)
    loader.flatten_mapping(node)
    return dict(loader.construct_pairs(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def _explain(error: ValidationError, prefix: str = "") -> str:
    """One line per mistake: path, what is wrong, the value given."""
    lines = []
    for item in error.errors():
        path = ".".join([*([prefix] if prefix else []), *map(str, item["loc"])])
        message = item["msg"].removeprefix("Value error, ")
        if item["type"] == "extra_forbidden":
            message = "unknown key; check its spelling and place"
        elif item["type"] == "missing":
            message = "is required"
        elif not isinstance(item["input"], dict) and item["type"] != "value_error":
            message = f"is {item['input']!r}; {message[0].lower()}{message[1:]}"
        lines.append(f"{path}: {message}" if path else message)
    return "\n".join(lines)


def load_settings(
    path: Path | str, scale: str | None = None, device: str | None = None
) -> Settings:
    """Read and validate a settings file; `scale` and `device` override the file's own.

    Every enabled experiment of every scale is resolved, so that a mistake in any of them is found.

    Raises:
        SettingsError: with a line per mistake.
    """
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise SettingsError(f"cannot read the settings {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise SettingsError(f"{path} must be a mapping with the keys scale, device and scales")
    content |= {k: v for k, v in {"scale": scale, "device": device}.items() if v is not None}
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        raise SettingsError(f"{path}:\n{_explain(error)}") from error
    for name in settings.scales:
        resolve_runs(settings, name)
    return settings


def _spectrum_key(a: float, b: float) -> str:
    return f"{a:g},{b:g}"


def _run_name(a: float, b: float, L: int, seed: int, varied: dict[str, Any]) -> str:
    extras = "".join(f"-{key}{value}" for key, value in varied.items())
    return f"a{a:g}-b{b:g}{extras}-L{L}-seed{seed}"


def _overridden(section: type[Section], base: Section, changes: dict, path: str) -> Section:
    try:
        return section.model_validate(base.model_dump() | changes)
    except ValidationError as error:
        raise SettingsError(_explain(error, path)) from error


def _check_run(run: Run, path: str) -> None:
    """What no single key shows: how the keys of one run fit together."""
    data, architecture, optimization = run.data, run.architecture, run.optimization

    def fail(key: str, value: Any, allowed: str) -> None:
        raise SettingsError(f"{path}.{key}: is {value!r}; {allowed} (run {run.name})")

    if architecture.N < data.d:
        fail("N", architecture.N, f"it must be at least d = {data.d}")
    if data.task == "easy" and data.k != 1:
        fail("k", data.k, "the easy task selects exactly one token")
    if data.P is None:
        if architecture.model != "linear" or data.task != "easy":
            fail("P", "infinite", "only linear attention on the easy task has no finite context")
    elif data.k > data.P:
        fail("k", data.k, f"it must be at most P = {data.P}")
    elif architecture.model == "linear" and data.task == "easy" and data.P <= data.d:
        fail("P", data.P, f"linear attention on the easy task needs P above d = {data.d}")
    if architecture.model == "linear" and architecture.encoder != "isometry":
        fail("encoder", architecture.encoder, "linear attention starts from scaled identities")
    if optimization.teacher == "isotropic" and (
        architecture.model != "linear" or architecture.N != data.d
    ):
        fail("training.teacher", "isotropic", "it is for linear attention with N = d")
    if architecture.model.startswith("single_stream") and optimization.teacher != "sampled":
        fail(
            "training.teacher",
            optimization.teacher,
            "the single-stream model is not linear in the labels and needs 'sampled'",
        )
    if architecture.model == "context_updates" and architecture.values != "identity":
        fail("values", architecture.values, "the context scalar is identifiable with 'identity'")
    if optimization.warmup + optimization.decay > 1:
        fail("training.decay", optimization.decay, "warmup + decay must be at most 1")
    if optimization.steps < optimization.validations:
        fail("training.steps", optimization.steps, f"at least {optimization.validations} needed")


def _start(experiment: Experiment, a: float, L: int) -> float:
    """The scale at which the weights of a run start.

    On top-k the prediction of linear attention is about the coefficient of Sigma q times Sigma q,
    which falls like 1 / sqrt(tr Sigma^2) (eq 45); there `init` is the sum of the starting steps in
    that unit.
    """
    if experiment.model != "linear" or experiment.task == "easy":
        return experiment.init
    trace = sum(k ** (-2 * a) for k in range(1, experiment.d + 1))
    return experiment.init / (L * trace**0.5)


def _experiment_runs(name: str, experiment: Experiment, scale: Scale, path: str) -> list[Run]:
    known = {_spectrum_key(a, b) for a, b in experiment.spectra}
    for key in experiment.extra_seeds:
        if key not in known:
            raise SettingsError(
                f"{path}.extra_seeds: {key!r} is not one of the spectra; allowed: {sorted(known)}"
            )
    evaluation = _overridden(
        EvaluationSettings, scale.evaluation, experiment.evaluation, f"{path}.evaluation"
    )
    runs = []
    for values in itertools.product(*experiment.grid.values()):
        varied = dict(zip(experiment.grid, values, strict=True))
        of_training = {k: v for k, v in varied.items() if k in Training.model_fields}
        of_experiment = {k: v for k, v in varied.items() if k not in of_training}
        member = _overridden(Experiment, experiment, of_experiment, f"{path}.grid")
        training = _overridden(
            Training, scale.training, experiment.training | of_training, f"{path}.training"
        )
        for (a, b), L in itertools.product(member.spectra, member.depths):
            seeds = member.seeds + member.extra_seeds.get(_spectrum_key(a, b), [])
            for seed in dict.fromkeys(seeds):
                run = Run(
                    experiment=name,
                    name=_run_name(a, b, L, seed, varied),
                    data=Data(
                        task=member.task,
                        k=member.k,
                        a=a,
                        b=b,
                        d=member.d,
                        P=None if member.P == "infinite" else member.P,
                    ),
                    architecture=Architecture(
                        model=member.model,
                        N=member.N,
                        L=L,
                        norm=member.norm,
                        encoder=member.encoder,
                        values=member.values,
                        tied=member.tied,
                        init=_start(member, a, L),
                        context_scalar=member.context_scalar,
                    ),
                    optimization=Optimization(seed=seed, **training.model_dump()),
                    evaluation=Evaluation(
                        **evaluation.model_dump(exclude={"convergence_limit"}),
                    ),
                )
                _check_run(run, path)
                runs.append(run)
    return runs


def resolve_runs(settings: Settings, scale: str | None = None) -> list[Run]:
    """All runs of the enabled experiments of a scale, the current one by default.

    Raises:
        SettingsError: if the settings of a run do not fit together.
    """
    scale = scale or settings.scale
    runs = []
    for name, experiment in settings.scales[scale].experiments.items():
        if experiment.enabled:
            path = f"scales.{scale}.experiments.{name}"
            runs += _experiment_runs(name, experiment, settings.scales[scale], path)
    return runs


def trained_as(run: Run) -> Run:
    """The run whose weights serve this one.

    With isotropic inputs attention cannot depend on the teacher's spectrum, and the averaged
    teacher's loss at (0, b) is (tr Omega / d) times that at (0, 0) at the same weights. So such
    runs are trained once, at b = 0.
    """
    isotropic = run.data.a == 0 and run.data.b > 0
    if not isotropic or run.optimization.teacher == "sampled":
        return run
    name = run.name.replace(f"-b{run.data.b:g}", "-b0", 1)
    base = run.with_data(b=0.0)
    return Run(**{**vars(base), "name": name})
