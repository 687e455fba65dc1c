"""Which results are stale, and why: what each was made from against what it would be made from.

A result carries a stamp of what it was made from: the digest of its settings, of the code that
made it, and of the files it was made from. Stamps lie beside the results, in git. File times
decide nothing; `set_times` only writes the answer into them, where Snakemake reads it.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from inverse_depth import stored
from inverse_depth.code_digest import code_of, digest
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS, Product, available, outputs, product_runs
from inverse_depth.restamps import Ledger, read_ledger
from inverse_depth.run import Run
from inverse_depth.settings import Settings, resolve_runs, trained_as

STAGES = {"training": "inverse_depth.train", "evaluation": "inverse_depth.evaluate"}
STAMP = ("training", "evaluation", "checkpoint", "code")
STALE_TIME = 1_000_000_000  # nanoseconds after the epoch: older than any file


def stage_code(stage: str, run: Run) -> dict[str, str]:
    """Digests of the code that trains or evaluates a run: its model's and its task's, too."""
    return code_of(STAGES[stage], *run.modules)


def training_identity(run: Run) -> str:
    """Digest of the settings that decide a run's weights, and of the code that trains it."""
    return f"{digest(trained_as(run).training())}-{digest(stage_code('training', run))}"


def evaluation_identity(run: Run) -> str:
    """Digest of what is measured on a run's weights, and of the code that measures it."""
    measured = {"data": asdict(run.data), "evaluation": asdict(run.evaluation)}
    return f"{digest(measured)}-{digest(stage_code('evaluation', run))}"


def evaluation_stamp(run: Run, checkpoint: Path) -> dict:
    """What an evaluation made now, from this checkpoint, is made from."""
    metadata, checksum = stored.header(checkpoint)
    return {
        "training": metadata["identity"],
        "evaluation": evaluation_identity(run),
        "checkpoint": checksum,
        "code": stage_code("evaluation", run),
    }


def file_digest(path: Path) -> str | None:
    """Digest of a file's content, None if there is no such file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:
        return None


def setting_differences(old: dict, new: dict, path: str = "") -> Iterator[str]:
    """`key: old value → new value` for every key of nested settings that differs."""
    for key in dict.fromkeys([*old, *new]):
        name = f"{path}.{key}" if path else key
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            yield from setting_differences(before, after, name)
        elif before != after:
            yield f"{name}: {_shown(before, key in old)} → {_shown(after, key in new)}"


def code_differences(old: dict[str, str], new: dict[str, str]) -> Iterator[str]:
    """A line for every module that differs, or that is imported no longer or for the first time."""
    for module in sorted(old.keys() | new.keys()):
        if module not in new:
            yield f"code: {module} is not used any more"
        elif module not in old:
            yield f"code: {module} is used now"
        elif old[module] != new[module]:
            yield f"code: {module} changed"


def _shown(value: Any, given: bool) -> str:
    if not given:
        return "(none)"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Step:
    """One job: the files it reads and writes, and why it has to run again (fresh: no reason)."""

    name: str
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    reasons: tuple[str, ...]


class Freshness:
    """Staleness of everything at one scale, read from the files as they are now.

    Args:
        exact: says of a trained run whether its checkpoint has to be right although the
            evaluations made from it are; without it such a checkpoint is left alone.
    """

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        exact: Callable[[Run], bool] = lambda run: False,
    ):
        self.settings = settings.scales[paths.scale]
        self.paths = paths
        self.exact = exact
        self.runs = resolve_runs(settings, paths.scale)
        self._evaluations: dict[Run, tuple[str, ...]] = {}

    @cached_property
    def ledger(self) -> Ledger:
        return read_ledger(self.paths.ledger)

    @cached_property
    def served(self) -> dict[Run, list[Run]]:
        """The runs whose evaluations each trained run's checkpoint serves."""
        served: dict[Run, list[Run]] = {}
        for run in self.runs:
            served.setdefault(trained_as(run), []).append(run)
        return served

    def _same(self, recorded: str | None, wanted: str, experiment: str) -> bool:
        """Whether two identities agree in settings, and in code up to what was restamped."""
        settings, _, code = (recorded or "").partition("-")
        wanted_settings, _, wanted_code = wanted.partition("-")
        return settings == wanted_settings and self.ledger.same(experiment, code, wanted_code)

    def evaluation(self, run: Run) -> tuple[str, ...]:
        """Why the evaluation of a run is stale."""
        if run not in self._evaluations:
            self._evaluations[run] = tuple(self._evaluation(run))
        return self._evaluations[run]

    def _evaluation(self, run: Run) -> Iterator[str]:
        path = self.paths.evaluation(run)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            stamp = {key: record["stamp"][key] for key in STAMP}
        except FileNotFoundError:
            yield "not evaluated yet"
            return
        except (OSError, ValueError, KeyError, TypeError):
            yield f"{path} is not an evaluation with a stamp"
            return
        trained = self._same(stamp["training"], training_identity(run), run.experiment)
        measured = self._same(stamp["evaluation"], evaluation_identity(run), run.experiment)
        if not (trained and measured):
            keys = ("data", "architecture", "optimization", "evaluation")
            found = [
                *setting_differences({key: record[key] for key in keys}, _plain(run)),
                *code_differences(stamp["code"], stage_code("evaluation", run)),
            ]
            yield from found or ["other rules of freshness"]
        elif self._retrained(run, stamp["checkpoint"]):
            yield "its checkpoint was trained again"

    def _retrained(self, run: Run, evaluated: str) -> bool:
        """Whether a checkpoint with the wanted identity is not the one that was evaluated."""
        trained = trained_as(run)
        try:
            metadata, checksum = stored.header(self.paths.checkpoint(trained))
        except stored.CheckpointError:
            return False
        wanted = training_identity(trained)
        same = self._same(metadata.get("identity"), wanted, run.experiment)
        return same and checksum != evaluated

    def old_code(self, run: Run) -> dict[str, str]:
        """Digests of the old code of a run that is stale by its code alone, by stage."""
        try:
            stamp = json.loads(self.paths.evaluation(run).read_text(encoding="utf-8"))["stamp"]
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        old = {}
        wanted = {"training": training_identity(run), "evaluation": evaluation_identity(run)}
        for stage, identity in wanted.items():
            if not self._same(stamp[stage], identity, run.experiment):
                settings, _, code = stamp[stage].partition("-")
                if settings != identity.partition("-")[0]:
                    return {}
                old[stage] = code
        return old

    def misplaced(self) -> list[Run]:
        """Trained runs whose checkpoints are missing or others', though all they serve is fresh."""
        return [
            trained
            for trained, runs in self.served.items()
            if not any(self.evaluation(run) for run in runs) and not self._placed(trained)
        ]

    def _placed(self, trained: Run) -> bool:
        path = self.paths.checkpoint(trained)
        if not path.exists():
            return False
        try:
            identity = stored.header(path)[0].get("identity")
        except stored.CheckpointError:
            return True
        return self._same(identity, training_identity(trained), trained.experiment)

    def needed(self, trained: Run) -> bool:
        """Whether something is going to read the checkpoint."""
        return self.exact(trained) or any(self.evaluation(run) for run in self.served[trained])

    def checkpoint(self, trained: Run) -> tuple[str, ...]:
        """Why a checkpoint cannot be used."""
        path = self.paths.checkpoint(trained)
        if not path.exists():
            return ("not trained yet",)
        try:
            metadata, _ = stored.header(path)
            wanted = training_identity(trained)
            if not self._same(metadata.get("identity"), wanted, trained.experiment):
                keys = ("data", "architecture", "optimization")
                old, new = metadata["settings"], {key: _plain(trained)[key] for key in keys}
                return tuple(setting_differences(old, new)) or ("trained by other code",)
            stored.intact(path)
        except stored.CheckpointError as error:
            return (str(error),)
        return ()

    def product(self, product: Product) -> tuple[str, ...]:
        """Why a product is stale, its inputs taken as they are now."""
        path = self.paths.stamp(product.name)
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
            new = self.product_sources(product)
            found = [
                *setting_differences(old["settings"], new["settings"]),
                *code_differences(old["code"], new["code"]),
                *(
                    f"{name} changed"
                    for name in dict.fromkeys([*old["inputs"], *new["inputs"]])
                    if old["inputs"].get(name) != new["inputs"].get(name)
                ),
            ]
            for name, content in self.product_outputs(product).items():
                if content is None:
                    found.append(f"{name} is missing")
                elif content != old["outputs"].get(name):
                    found.append(f"{name} is not as it was built")
            return tuple(found)
        except FileNotFoundError:
            return ("not built yet",)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return (f"{path} is not a stamp",)

    def product_sources(self, product: Product) -> dict[str, dict]:
        """What a product that is built now is made from: settings, code and files."""
        contents: dict[str, dict[str, str | None]] = {}
        for path in self.product_inputs(product):
            folder = path.parent if path.suffix == ".json" or "history" in path.parts else path
            name = folder.relative_to(self.paths.results).as_posix()
            contents.setdefault(name, {})[path.name] = file_digest(path)
        return {
            "settings": {key: self._setting(key) for key in product.settings},
            "code": code_of(product.code),
            "inputs": {name: digest(files) for name, files in contents.items()},
        }

    def product_outputs(self, product: Product) -> dict[str, str | None]:
        """Digests of a product's files, by name."""
        return {path.name: file_digest(path) for path in outputs(product, self.paths)}

    def _setting(self, key: str) -> Any:
        """The value of a dotted key of the scale; None where an experiment is not there."""
        value = self._plain_settings
        for part in key.split("."):
            value = (value or {}).get(part)
        return value

    @cached_property
    def _plain_settings(self) -> Any:
        return self.settings.model_dump(mode="json")

    def product_inputs(self, product: Product) -> list[Path]:
        """The files that a product reads."""
        runs = product_runs(product, self.runs)
        histories = dict.fromkeys(self.paths.history(trained_as(run)) for run in runs)
        return [
            *(self.paths.evaluation(run) for run in runs),
            *(histories if product.history else ()),
            *(self.paths.theory(name) for name in product.theory),
            *(self.paths.table(name) for name in product.tables),
        ]

    def steps(self) -> Iterator[Step]:
        """Every job of the scale, each after those that it depends on."""
        paths = self.paths
        for trained in self.served:
            reasons = self.checkpoint(trained) if self.needed(trained) else ()
            files = (paths.checkpoint(trained), paths.history(trained))
            files += (paths.benchmark("train", str(trained)),)
            yield Step(f"train {trained}", (), files, reasons)
        for run in self.runs:
            inputs = (paths.checkpoint(trained_as(run)),)
            files = (paths.evaluation(run), paths.benchmark("evaluate", str(run)))
            yield Step(f"evaluate {run}", inputs, files, self.evaluation(run))
        for product in PRODUCTS.values():
            files = (*outputs(product, paths), paths.stamp(product.name))
            files += (paths.benchmark(product.kind, product.name),)
            inputs = tuple(self.product_inputs(product))
            yield Step(f"{product.kind} {product.name}", inputs, files, self.product(product))

    def available(self) -> list[Product]:
        return available(self.runs)


def _plain(run: Run) -> dict:
    return run.training() | {"evaluation": asdict(run.evaluation)}


def set_times(steps: Iterable[Step], settings_file: Path) -> None:
    """Make Snakemake, which compares file times, see exactly the stale steps as outdated.

    Existing outputs of stale steps become older than anything, those of fresh steps at least as
    new as what they are made from. Nothing else of the files changes, and doing it twice is the
    same as once.

    Raises:
        OSError: if the times of a file cannot be set.
    """
    settings_time = settings_file.stat().st_mtime_ns
    for step in steps:
        newest = max([settings_time, *(_newest(path) for path in step.inputs)])
        for path in step.outputs:
            try:
                time = path.lstat().st_mtime_ns
            except FileNotFoundError:
                continue
            wanted = STALE_TIME if step.reasons else max(time, newest)
            if time != wanted:
                os.utime(path, ns=(wanted, wanted), follow_symlinks=False)


def _newest(path: Path) -> int:
    """Time of a file, or of the link to it if that is newer; 0 if there is none."""
    try:
        return max(path.lstat().st_mtime_ns, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return 0
