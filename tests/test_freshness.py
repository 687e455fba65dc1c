"""Which results are stale, and why, without Snakemake."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from inverse_depth import checkpoint, stored
from inverse_depth.freshness import (
    STALE_TIME,
    Freshness,
    Step,
    code_differences,
    evaluation_identity,
    evaluation_stamp,
    set_times,
    setting_differences,
    stage_code,
    training_identity,
)
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS, outputs
from inverse_depth.restamps import Restamp, append, read_ledger
from inverse_depth.run import Run
from inverse_depth.settings import load_settings, trained_as

TINY = Path(__file__).parent / "tiny.yaml"


@pytest.fixture
def settings():
    return load_settings(TINY)


@pytest.fixture
def paths(tmp_path):
    return Paths("tiny", tmp_path)


@pytest.fixture
def finished(settings, paths):
    """Results that claim to be made from the settings and the code as they are."""
    freshness = Freshness(settings, paths)
    for trained in freshness.served:
        write_checkpoint(paths, trained)
    for run in freshness.runs:
        write_evaluation(paths, run)
    return freshness


def write_checkpoint(paths: Paths, run: Run, **metadata) -> None:
    known = {"identity": training_identity(run), "settings": run.training()}
    checkpoint.save(paths.checkpoint(run), {"w": torch.zeros(3)}, known | metadata)


def write_evaluation(paths: Paths, run: Run) -> None:
    stamp = evaluation_stamp(run, paths.checkpoint(trained_as(run)))
    record = run.training() | {"evaluation": asdict(run.evaluation), "result": {}, "stamp": stamp}
    paths.evaluation(run).parent.mkdir(parents=True, exist_ok=True)
    paths.evaluation(run).write_text(json.dumps(record))


def run_named(freshness: Freshness, name: str) -> Run:
    return next(run for run in freshness.runs if str(run) == name)


def edit_stamp(paths: Paths, run: Run, **changes) -> None:
    path = paths.evaluation(run)
    record = json.loads(path.read_text())
    record["stamp"] |= changes
    path.write_text(json.dumps(record))


def stale(freshness: Freshness) -> dict[str, tuple[str, ...]]:
    """The stale steps and their reasons, products aside."""
    steps = [step for step in freshness.steps() if step.name.startswith(("train", "evaluate"))]
    return {step.name: step.reasons for step in steps if step.reasons}


TOP2 = "nonlinear_top2/a0-b0-L2-seed0"


OTHER_FILE = {"model": "layer_values", "task": "easy"}  # settings that name a file of the code


def changed(run: Run, section: str, key: str) -> Run:
    """The run with another value of one setting."""
    part = getattr(run, section)
    value = getattr(part, key)
    if key in OTHER_FILE:
        other = OTHER_FILE[key]
    elif isinstance(value, bool):
        other = not value
    else:
        other = f"{value}x" if isinstance(value, str) else (value or 0) + 3
    return replace(run, **{section: replace(part, **{key: other})})


def keys_of(*sections: str) -> list[tuple[str, str]]:
    run = Freshness(load_settings(TINY), Paths("tiny")).runs[0]
    return [(section, key) for section in sections for key in asdict(getattr(run, section))]


@pytest.mark.parametrize(("section", "key"), keys_of("data", "architecture", "optimization"))
def test_every_setting_of_training_is_part_of_a_runs_identity(settings, paths, section, key):
    run = replace_teacher(run_named(Freshness(settings, paths), TOP2), "sampled")
    assert training_identity(changed(run, section, key)) != training_identity(run)


def test_code_of_other_models_and_tasks_leaves_a_run_fresh(settings, paths):
    code = stage_code("training", run_named(Freshness(settings, paths), TOP2))
    assert {"inverse_depth.models.nonlinear", "inverse_depth.tasks.top_k"} <= code.keys()
    assert not {"inverse_depth.models.linear", "inverse_depth.tasks.easy"} & code.keys()


@pytest.mark.parametrize(("section", "key"), keys_of("evaluation"))
def test_settings_of_evaluation_are_part_of_its_identity_alone(settings, paths, section, key):
    run = run_named(Freshness(settings, paths), TOP2)
    other = changed(run, section, key)
    assert training_identity(other) == training_identity(run)
    assert evaluation_identity(other) != evaluation_identity(run)


def replace_teacher(run: Run, teacher: str) -> Run:
    return replace(run, optimization=replace(run.optimization, teacher=teacher))


def test_names_are_no_part_of_an_identity(settings, paths):
    run = run_named(Freshness(settings, paths), TOP2)
    other = replace(run, experiment="other", name="run")
    assert training_identity(other) == training_identity(run)
    assert evaluation_identity(other) == evaluation_identity(run)


def test_runs_that_share_weights_differ_in_evaluation_alone(settings, paths):
    run = run_named(Freshness(settings, paths), TOP2)
    other = run_named(Freshness(settings, paths), "nonlinear_top2/a0-b1-L2-seed0")
    assert training_identity(other) == training_identity(run)
    assert evaluation_identity(other) != evaluation_identity(run)


def test_what_was_just_made_is_fresh(finished):
    assert stale(finished) == {}


def test_without_results_everything_is_to_be_made(settings, paths):
    found = stale(Freshness(settings, paths))
    assert set(found.values()) == {("not evaluated yet",), ("not trained yet",)}


def test_a_changed_setting_is_named_with_both_values(finished, paths):
    experiment = finished.settings.experiments["nonlinear_top2"]
    other = experiment.model_copy(update={"training": {"learning_rate": 0.004}})
    now = with_experiment(finished, paths, nonlinear_top2=other)
    found = stale(now)
    assert all("nonlinear_top2" in name for name in found) and len(found) == 6
    assert set(found.values()) == {("optimization.learning_rate: 0.003 → 0.004",)}


def with_experiment(freshness: Freshness, paths: Paths, **experiments) -> Freshness:
    settings = load_settings(TINY)
    scale = freshness.settings
    scale = scale.model_copy(update={"experiments": scale.experiments | experiments})
    return Freshness(settings.model_copy(update={"scales": {"tiny": scale}}), paths)


def test_a_changed_module_is_named(finished, paths, settings):
    run = run_named(finished, TOP2)
    stamp = json.loads(paths.evaluation(run).read_text())["stamp"]
    measured, _, _ = stamp["evaluation"].partition("-")
    code = stamp["code"] | {"inverse_depth.decomposition": "0" * 16}
    edit_stamp(paths, run, evaluation=f"{measured}-{'0' * 16}", code=code)
    expected = {f"evaluate {TOP2}": ("code: inverse_depth.decomposition changed",)}
    assert stale(Freshness(settings, paths)) == expected


def test_a_missing_checkpoint_of_a_fresh_evaluation_is_left_alone(finished, paths, settings):
    paths.checkpoint(run_named(finished, TOP2)).unlink()
    now = Freshness(settings, paths)
    assert stale(now) == {}
    assert [str(run) for run in now.misplaced()] == [TOP2]


def test_another_checkpoint_is_left_alone_unless_it_is_asked_for(finished, paths, settings):
    run = run_named(finished, TOP2)
    other = changed(run, "optimization", "steps")
    write_checkpoint(paths, run, identity=training_identity(other), settings=other.training())
    assert stale(Freshness(settings, paths)) == {}
    asked = Freshness(settings, paths, exact=lambda trained: trained == run)
    assert stale(asked) == {f"train {TOP2}": ("optimization.steps: 43 → 40",)}
    assert asked.misplaced() == [run]


def test_a_corrupted_checkpoint_is_named_once_something_needs_it(finished, paths, settings):
    run = run_named(finished, TOP2)
    path = paths.checkpoint(run)
    path.write_bytes(path.read_bytes()[:-1])
    assert stale(Freshness(settings, paths)) == {}
    paths.evaluation(run).unlink()
    [reason] = stale(Freshness(settings, paths))[f"train {TOP2}"]
    assert str(path) in reason and "corrupted" in reason


def test_an_evaluation_of_another_training_of_the_same_run_is_stale(finished, paths, settings):
    run = run_named(finished, TOP2)
    checkpoint.save(
        paths.checkpoint(run),
        {"w": torch.ones(3)},
        {"identity": training_identity(run), "settings": run.training()},
    )
    found = stale(Freshness(settings, paths))
    names = (f"evaluate {TOP2}", "evaluate nonlinear_top2/a0-b1-L2-seed0")
    assert found == dict.fromkeys(names, ("its checkpoint was trained again",))


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"stamp": 3}', "\x00"])
def test_what_is_no_evaluation_is_stale(finished, paths, settings, content):
    run = run_named(finished, TOP2)
    paths.evaluation(run).write_text(content)
    [reason] = Freshness(settings, paths).evaluation(run)
    assert reason == f"{paths.evaluation(run)} is not an evaluation with a stamp"


def restamped(stage: str, old: str, new: str, experiment: str = "nonlinear_top2") -> Restamp:
    return Restamp("2026-01-01", experiment, stage, old, new, "run", 0.0, 0.0, 1e-4)


def test_the_ledger_makes_old_code_as_good_as_new(finished, paths, settings):
    run = run_named(finished, TOP2)
    stamp = json.loads(paths.evaluation(run).read_text())["stamp"]
    (trained, new_t), (measured, new_e) = (
        stamp[stage].split("-") for stage in ("training", "evaluation")
    )
    write_checkpoint(paths, run, identity=f"{trained}-oldest")
    checksum = stored.header(paths.checkpoint(run))[1]
    for served in finished.served[run]:
        edit_stamp(paths, served, training=f"{trained}-oldest", checkpoint=checksum)
    edit_stamp(paths, run, evaluation=f"{measured}-old")
    now = Freshness(settings, paths)
    assert now.old_code(run) == {"training": "oldest", "evaluation": "old"}
    assert len(stale(now)) == 3
    append(paths.ledger, [restamped("training", "oldest", "older")])
    append(paths.ledger, [restamped("training", "older", new_t, "other_experiment")])
    assert len(stale(Freshness(settings, paths))) == 3
    append(paths.ledger, [restamped("training", "older", new_t)])
    append(paths.ledger, [restamped("evaluation", "old", new_e)])
    assert stale(Freshness(settings, paths)) == {}


def test_a_ledger_that_is_none_is_named(paths):
    paths.ledger.parent.mkdir(parents=True)
    paths.ledger.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"restamps\.csv is not a ledger"):
        read_ledger(paths.ledger)


def build(freshness: Freshness, name: str) -> None:
    """Files and stamp of a product, as if it had been built now."""
    product, paths = PRODUCTS[name], freshness.paths
    stamp = freshness.product_sources(product)
    for path in outputs(product, paths):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    stamp["outputs"] = freshness.product_outputs(product)
    paths.stamp(name).parent.mkdir(parents=True, exist_ok=True)
    paths.stamp(name).write_text(json.dumps(stamp))


def test_a_product_says_why_it_is_stale(finished, paths, settings):
    assert finished.product(PRODUCTS["table1"]) == ("not built yet",)
    build(finished, "table1")
    assert finished.product(PRODUCTS["table1"]) == ()
    path = paths.evaluation(run_named(finished, TOP2))
    path.write_text(path.read_text().replace("{", "{ ", 1))
    assert finished.product(PRODUCTS["table1"]) == ("evaluations/nonlinear_top2 changed",)
    build(finished, "table1")
    paths.table("table1").write_text("edited")
    paths.table("table1", ".md").unlink()
    expected = ("table1.csv is not as it was built", "table1.md is missing")
    assert finished.product(PRODUCTS["table1"]) == expected
    build(finished, "table1")
    fits = finished.settings.fits.model_copy(update={"plateau_from": 2})
    scale = finished.settings.model_copy(update={"fits": fits})
    now = Freshness(settings.model_copy(update={"scales": {"tiny": scale}}), paths)
    assert now.product(PRODUCTS["table1"]) == ("fits.plateau_from: 1 → 2",)
    paths.stamp("table1").write_text("[]")
    assert now.product(PRODUCTS["table1"]) == (f"{paths.stamp('table1')} is not a stamp",)


def test_differences_name_keys_and_both_values():
    old = {"a": {"b": 1, "c": [1, 2]}}
    new = {"a": {"b": 1, "c": [1, 3], "e": "x"}}
    expected = ["a.c: [1, 2] → [1, 3]", 'a.e: (none) → "x"']
    assert list(setting_differences(old, new)) == expected
    found = list(code_differences({"a": "1", "b": "1"}, {"b": "2", "c": "1"}))
    assert found == ["code: a is not used any more", "code: b changed", "code: c is used now"]


def times(*paths: Path) -> list[int]:
    return [path.lstat().st_mtime_ns for path in paths]


def test_times_say_what_is_stale(tmp_path):
    settings, source, fresh, old = (tmp_path / name for name in ("settings", "in", "fresh", "old"))
    for time, path in enumerate((fresh, old, settings, source)):
        path.write_text(path.name)
        os.utime(path, (10**9 + time, 10**9 + time))
    steps = [
        Step("fresh", (source,), (fresh, tmp_path / "absent"), ()),
        Step("old", (fresh,), (old,), ("a reason",)),
    ]
    set_times(steps, settings)
    assert times(fresh, old) == [source.stat().st_mtime_ns, STALE_TIME]
    before = times(settings, source, fresh, old)
    set_times(steps, settings)
    assert times(settings, source, fresh, old) == before
    assert not (tmp_path / "absent").exists()


def test_times_of_links_are_set_and_those_they_point_to_kept(tmp_path):
    """DVC may put links to its cache in place of checkpoints."""
    settings, cached, link, made = (tmp_path / name for name in ("s", "cached", "link", "made"))
    for path in (settings, cached, made):
        path.write_text("")
        os.utime(path, (10**9, 10**9))
    os.utime(cached, (2 * 10**9, 2 * 10**9))
    link.symlink_to(cached)
    os.utime(link, (10**9, 10**9), follow_symlinks=False)
    set_times([Step("link", (), (link,), ("stale",)), Step("made", (link,), (made,), ())], settings)
    assert times(link, cached, made) == [STALE_TIME, 2 * 10**18, 2 * 10**18]
