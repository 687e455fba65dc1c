"""Settings, freshness, and what the rules ask of them."""

import os
import re
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

SOURCE = os.path.join(workflow.basedir, "src")
sys.path.insert(0, SOURCE)

from inverse_depth.cost import training_megabytes, training_minutes
from inverse_depth.freshness import (
    Freshness,
    evaluation_identity,
    set_times,
    training_identity,
)
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS, outputs
from inverse_depth.report import Report, read_captions
from inverse_depth.settings import load_settings, trained_as

unknown = sorted(set(config) - {"params", "scale", "device"})
if unknown:
    sys.exit(
        f"error: --config {', '.join(unknown)} is unknown; allowed are params, scale and device, "
        "everything else is set in params.yaml"
    )

PARAMS = str(config.get("params", "params.yaml"))
try:
    SETTINGS = load_settings(PARAMS, config.get("scale"), config.get("device"))
except ValueError as error:
    sys.exit(f"error: {error}")


def asked_for(run):
    """Whether the command line names a run's checkpoint, alone or with its experiment's."""
    names = {"train", f"train_{run.experiment}"}
    return not names.isdisjoint(sys.argv) or any(
        argument.endswith(os.path.join("checkpoints", f"{run}.safetensors"))
        for argument in sys.argv
    )


SCALES = {
    scale: Freshness(SETTINGS, Paths(scale), asked_for) for scale in SETTINGS.scales
}
SCALE = SETTINGS.scale
CURRENT = SCALES[SCALE]

if not os.access(os.curdir, os.W_OK):
    sys.exit(
        f"error: {os.getcwd()} cannot be written; make it writable for this user, or work in a "
        "copy of the project"
    )

# Freshness is decided by content: what is stale gets an old time, what is fresh a new one.
if workflow.is_main_process:
    try:
        for freshness in SCALES.values():
            set_times(freshness.steps(), Path(PARAMS))
    except (OSError, ValueError) as error:
        sys.exit(f"error: cannot tell which results are fresh: {error}")

# A stage of DVC ends with all of its checkpoints: rather than train again what DVC may have, stop.
if workflow.is_main_process and "DVC_STAGE" in os.environ:
    misplaced = [run for run in CURRENT.misplaced() if asked_for(run)]
    if misplaced:
        sys.exit(
            f"error: the evaluations of {len(misplaced)} runs are fresh, but their checkpoints "
            f"are not here, the first of them that of {misplaced[0]}. `dvc checkout` or `dvc pull` "
            "puts them in place, `dvc repro --allow-missing` goes on without those that are "
            f"missing, and `snakemake --config scale={SCALE} --cores all "
            f"train_{misplaced[0].experiment}` trains them again."
        )

# Jobs run with the Python that runs Snakemake, unless conda brings one.
PATH = (
    ""
    if DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    else (f"PATH={shlex.quote(os.path.dirname(sys.executable))}:$PATH ")
)
shell.prefix(f"set -euo pipefail; export {PATH}PYTHONPATH={shlex.quote(SOURCE)}; ")


wildcard_constraints:
    scale="|".join(map(re.escape, SCALES)),
    experiment="[^/]+",
    run="[^/]+",


def run_of(wildcards):
    """The run that a file's name says."""
    name = f"{wildcards.experiment}/{wildcards.run}"
    freshness = SCALES[wildcards.scale]
    known = {str(run): run for run in [*freshness.served, *freshness.runs]}
    if name not in known:
        raise WorkflowError(f"{PARAMS} has no run {name} at scale {wildcards.scale}")
    return known[name]


def product_sources(wildcards):
    """The files that the product named by the wildcards is built from, by kind."""
    product = PRODUCTS[wildcards.name]
    return SCALES[wildcards.scale].product_inputs(product)


def product_files(*kinds):
    """The files of all products of some kinds that the current scale can fill."""
    return [
        path
        for product in CURRENT.available()
        if product.kind in kinds
        for path in outputs(product, CURRENT.paths)
    ]


def names_of(kind):
    """A pattern of the names of all products of a kind."""
    return "|".join(name for name, product in PRODUCTS.items() if product.kind == kind)


CAPTIONS = Path(workflow.basedir, "workflow", "report", "captions.yaml")
# The report's texts get their content through the configuration: it is all that they see.
config["report"] = Report(CURRENT, read_captions(CAPTIONS), Path(PARAMS))


def section(wildcards):
    """The part of the paper that a result belongs to."""
    return config["report"].section(wildcards.name)


def labels(wildcards):
    """What the report's menu says of a result."""
    return config["report"].labels(wildcards.name)
