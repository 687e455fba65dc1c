"""Bad settings end with one message that names the key, the value and what is allowed."""

import copy
import shutil
from pathlib import Path

import pytest
import yaml

from inverse_depth import settings
from inverse_depth.settings import (
    SettingsError,
    load_settings,
    resolve_runs,
    trained_as,
)

PARAMS = yaml.safe_load(Path("params.yaml").read_text(encoding="utf-8"))


def written(tmp_path, content):
    path = tmp_path / "params.yaml"
    path.write_text(
        content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    )
    return path


def changed(path, value):
    """params.yaml with one key set, or removed where the value is `...`."""
    content = copy.deepcopy(PARAMS)
    section = content
    *parents, last = path.split(".")
    for key in parents:
        section = section[key]
    if value is ...:
        del section[last]
    else:
        section[last] = value
    return content


EXPERIMENT = "scales.quick.experiments.nonlinear_top2"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("scale", "huge", r"scale is 'huge'; allowed: quick, paper"),
        ("device", "tpu", r"device: is 'tpu'.*'auto', 'cpu' or 'cuda'"),
        ("sclae", "quick", r"sclae: unknown key"),
        (f"{EXPERIMENT}.widht", 3, r"nonlinear_top2\.widht: unknown key"),
        (f"{EXPERIMENT}.d", "sixteen", r"nonlinear_top2\.d: is 'sixteen'; .*integer"),
        (f"{EXPERIMENT}.d", ..., r"nonlinear_top2\.d: is required"),
        (f"{EXPERIMENT}.spectra", [[-1, 0]], r"spectra\.0\.0: is -1; .*greater than or equal to 0"),
        (f"{EXPERIMENT}.k", 65, r"nonlinear_top2\.k: is 65; it must be at most P = 64"),
        (f"{EXPERIMENT}.N", 8, r"nonlinear_top2\.N: is 8; it must be at least d = 16"),
        (f"{EXPERIMENT}.depths", [], r"depths: is \[\]; .*at least 1 item"),
        (f"{EXPERIMENT}.depths", [1, 4, 1], r"depths repeats \[1\]"),
        (f"{EXPERIMENT}.depths", [0], r"depths\.0: is 0; .*greater than or equal to 1"),
        (f"{EXPERIMENT}.seeds", [-1], r"seeds\.0: is -1; .*greater than or equal to 0"),
        (
            f"{EXPERIMENT}.model",
            "convolution",
            r"model: is 'convolution'; allowed: .*, nonlinear",
        ),
        (f"{EXPERIMENT}.P", "infinite", r"P: is 'infinite'; only linear attention on the easy"),
        (f"{EXPERIMENT}.training", {"stpes": 3}, r"nonlinear_top2\.training\.stpes: unknown key"),
        (f"{EXPERIMENT}.training", {"steps": -3}, r"training\.steps: is -3; .*greater"),
        (f"{EXPERIMENT}.training", {"decay": 0.99}, r"training\.decay: .*warmup \+ decay"),
        (
            f"{EXPERIMENT}.training",
            {"teacher": "isotropic"},
            r"training\.teacher: is 'isotropic'; it is for linear attention with N = d",
        ),
        (f"{EXPERIMENT}.evaluation", {"contexts": 0}, r"evaluation\.contexts: is 0"),
        (
            f"{EXPERIMENT}.extra_seeds",
            {"3,3": [1]},
            r"extra_seeds: '3,3' is not one of the spectra",
        ),
        (f"{EXPERIMENT}.grid", {"N": [4]}, r"N: is 4; it must be at least d = 16"),
        (f"{EXPERIMENT}.task", "copy", r"nonlinear_top2\.task: is 'copy'; allowed: easy, top_k"),
        ("scales.quick.theory.contexts", 601, r"contexts is 601; a multiple of blocks"),
        ("scales.quick.theory.reference_contexts", 7, r"reference_contexts is 7; a multiple of"),
        ("scales.quick.training.learning_rate", float("nan"), r"learning_rate: is nan"),
        ("scales.quick.experiments", {}, r"experiments: is \{\}|experiments: .*at least 1"),
    ],
)
def test_each_mistake_is_named(tmp_path, key, value, expected):
    path = written(tmp_path, changed(key, value))
    with pytest.raises(SettingsError, match=expected):
        load_settings(path)


@pytest.mark.parametrize(
    ("key", "folder", "missing"), [("model", "models", "MODEL"), ("task", "tasks", "draw")]
)
def test_a_file_that_is_no_model_or_task_is_named(tmp_path, monkeypatch, key, folder, missing):
    package = shutil.copytree("src/inverse_depth", tmp_path / "inverse_depth")
    (package / folder / "unfinished.py").write_text("MODELS = None\ndef drawn(): ...\n")
    monkeypatch.setattr(settings, "__file__", str(package / "settings.py"))
    path = written(tmp_path, changed(f"{EXPERIMENT}.{key}", "unfinished"))
    with pytest.raises(SettingsError, match=f"{folder}/unfinished.py defines no {missing}"):
        load_settings(path)


def test_a_duplicate_experiment_is_an_error(tmp_path):
    path = written(tmp_path, "scale: quick\nscales:\n  quick: {}\n  quick: {}\n")
    with pytest.raises(SettingsError, match=r"key 'quick' is given twice \(line 4\)"):
        load_settings(path)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("scale: [", "not valid YAML"),
        ("- 1", "must be a mapping"),
        (None, "cannot read the settings .*No such file"),
    ],
)
def test_files_that_are_no_settings(tmp_path, content, expected):
    path = tmp_path / "missing.yaml" if content is None else written(tmp_path, content)
    with pytest.raises(SettingsError, match=expected):
        load_settings(path)


def test_a_mistake_in_another_scale_is_found_too(tmp_path):
    path = written(tmp_path, changed("scales.paper.experiments.nonlinear_top2.N", 3))
    with pytest.raises(SettingsError, match=r"scales\.paper\.experiments\.nonlinear_top2\.N: is 3"):
        load_settings(path)


def test_run_names_are_unique_and_grids_multiply(tmp_path):
    content = changed(f"{EXPERIMENT}.grid", {"N": [16, 32], "learning_rate": [0.01, 0.001]})
    content["scales"]["quick"]["experiments"]["nonlinear_top2"]["extra_seeds"] = {"0,0": [1]}
    runs = resolve_runs(load_settings(written(tmp_path, content)))
    names = [str(run) for run in runs]
    assert len(set(names)) == len(names)
    mine = [run for run in runs if run.experiment == "nonlinear_top2"]
    experiment = content["scales"]["quick"]["experiments"]["nonlinear_top2"]
    depths, spectra = len(experiment["depths"]), len(experiment["spectra"])
    assert len(mine) == 4 * depths * (spectra + 1)
    assert {run.optimization.learning_rate for run in mine} == {0.01, 0.001}


def test_isotropic_inputs_share_the_weights_trained_at_b_zero(tmp_path):
    content = changed(f"{EXPERIMENT}.spectra", [[0, 0.5], [1, 0.5]])
    runs = resolve_runs(load_settings(written(tmp_path, content)))
    mine = [run for run in runs if run.experiment == "nonlinear_top2"]
    isotropic = next(run for run in mine if run.data.a == 0)
    base = trained_as(isotropic)
    assert base.data.b == 0
    assert base.name == isotropic.name.replace("b0.5", "b0")
    assert base.optimization == isotropic.optimization
    structured = next(run for run in mine if run.data.a == 1)
    assert trained_as(structured) == structured


def test_a_disabled_experiment_has_no_runs(tmp_path):
    runs = resolve_runs(load_settings(written(tmp_path, changed(f"{EXPERIMENT}.enabled", False))))
    assert not any(run.experiment == "nonlinear_top2" for run in runs)
