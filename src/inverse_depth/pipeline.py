"""The published scale as a DVC pipeline: `dvc.yaml`, written from the registry of products.

Every stage runs Snakemake on the targets that it names, so what is stale is decided in one place;
DVC sees the same through parameters by key, the digests of code, and the files themselves.
"""

from collections.abc import Mapping

from inverse_depth.code_digest import code_of, digest
from inverse_depth.freshness import stage_code
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS, Product, available, outputs
from inverse_depth.settings import Settings, resolve_runs

SCALE = "paper"

_HEADER = f"""\
# The pipeline of scale {SCALE}, for `dvc repro`, `dvc push` and their kin (docs/freshness.md).
# Written by `python -m inverse_depth pipeline`; a test keeps it in step.

vars:
  - snakemake: PATH="$DVC_ROOT/.venv/bin:$PATH" snakemake --config scale={SCALE} --cores all
  - python: PATH="$DVC_ROOT/.venv/bin:$PATH" PYTHONPATH=src python -m inverse_depth --scale {SCALE}
  - results: results/{SCALE}

stages:

  code:
    desc: Digests of the code behind each kind of result; comments and layout do not count
    cmd: ${{python}} code
    deps: [src/inverse_depth]
    outs:
      - ${{results}}/code.json: {{cache: false, persist: true}}

  train:
    foreach: ${{scales.{SCALE}.experiments}}
    do:
      desc: Checkpoints and training histories of an experiment
      cmd: ${{snakemake}} train_${{key}}
      params:
        - scales.{SCALE}.training
        - scales.{SCALE}.experiments.${{key}}
        - ${{results}}/code.json: ["train.${{key}}"]
      outs:
        - ${{results}}/checkpoints/${{key}}: {{persist: true}}
        - ${{results}}/history/${{key}}: {{cache: false, persist: true}}

  evaluate:
    foreach: ${{scales.{SCALE}.experiments}}
    do:
      desc: Losses, decomposition and selection on the contexts that all depths share
      cmd: ${{snakemake}} evaluate_${{key}}
      deps:
        - ${{results}}/checkpoints/${{key}}
      params:
        - scales.{SCALE}.evaluation
        - scales.{SCALE}.experiments.${{key}}
        - ${{results}}/code.json: ["evaluate.${{key}}"]
      outs:
        - ${{results}}/evaluations/${{key}}: {{cache: false, persist: true}}
"""

_FOOTER = f"""\
metrics:
  - results/{SCALE}/comparison.json

plots:
  - loss against depth:
      x: L
      y: {{results/{SCALE}/evaluations.csv: loss}}
      template: depth_curves
      title: Loss against depth
"""


def code_digests(settings: Settings) -> dict[str, str | dict[str, str]]:
    """Digest of the code behind each kind of result, of runs by experiment."""
    stages = {"train": "training", "evaluate": "evaluation"}
    runs = {run.experiment: run for run in resolve_runs(settings)}
    digests: dict[str, str | dict[str, str]] = {
        kind: {name: digest(stage_code(stage, run)) for name, run in runs.items()}
        for kind, stage in stages.items()
    }
    return digests | {product.kind: digest(code_of(product.code)) for product in PRODUCTS.values()}


def pipeline(settings: Settings, titles: Mapping[str, str]) -> str:
    """The text of `dvc.yaml`, with the titles of tables and figures."""
    runs = resolve_runs(settings, SCALE)
    experiments = dict.fromkeys(run.experiment for run in runs)
    stages = [
        _stage(product, titles.get(product.name), settings, experiments)
        for product in available(runs)
    ]
    return "\n".join([_HEADER, *stages, _FOOTER])


def _stage(
    product: Product, title: str | None, settings: Settings, experiments: dict[str, None]
) -> str:
    paths = Paths(SCALE)
    wanted = product.experiments or (() if product.experiments == () else tuple(experiments))
    used = [name for name in wanted if name in experiments]
    folders = ["evaluations", "history"] if product.history else ["evaluations"]
    deps = [f"{folder}/{name}" for folder in folders for name in used]
    deps += [f"theory/{name}.csv" for name in product.theory]
    deps += [f"tables/{name}.csv" for name in product.tables]
    files = [path.relative_to(paths.results).as_posix() for path in outputs(product, paths)]
    # Which runs there are counts, too: files of runs that are not asked for any more stay.
    read = ["experiments"] if product.experiments is None else [f"experiments.{e}" for e in used]
    keys = dict.fromkeys([_given(key, settings) for key in product.settings] + read)
    lines = [f"  {product.name}:", *([f"    desc: {title}"] if title else [])]
    lines.append(f"    cmd: ${{snakemake}} {product.name}")
    if deps:
        lines += ["    deps:", *(f"      - ${{results}}/{name}" for name in deps)]
    lines += ["    params:", *(f"      - scales.{SCALE}.{key}" for key in keys)]
    lines += [f"      - ${{results}}/code.json: [{product.kind}]", "    outs:"]
    for name in [*files, f"stamps/{product.name}.json"]:
        lines.append(f"      - ${{results}}/{name}: {{cache: false, persist: true}}")
    return "\n".join([*lines, ""])


def _given(key: str, settings: Settings) -> str:
    """The longest beginning of a key that the settings file gives; the rest has its default."""
    parts = key.split(".")
    section, given = settings.scales[SCALE], []
    for part in parts:
        fields = section if isinstance(section, dict) else section.model_fields_set
        if part not in fields:
            break
        section = section[part] if isinstance(section, dict) else getattr(section, part)
        given.append(part)
    return ".".join(given)
