"""The digest of code: what counts, what does not, and which modules it covers."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from inverse_depth import code_digest
from inverse_depth.code_digest import CodeError, code_of
from inverse_depth.freshness import STAGES, stage_code
from inverse_depth.settings import load_settings, resolve_runs

TRAINING = """
from package.models import build
from . import data

RATE = 3e-3

def step(model, rate=RATE):
    return model - rate * 2
"""
MODULES = {
    "__init__": "",
    "train": TRAINING,
    "models": "def build(): return f'{1 + 1:>{3}} a' 'b'\n",
    "data": "SIZE = 4\n",
    "plots": "import package.train\n",
    "extra": "from package.plots import *\n",
}


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "package"
    folder.mkdir()
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def digests(package: Path, module: str = "package.train") -> dict[str, str]:
    code_of.cache_clear()
    return code_of(module, package=package)


def rewrite(package: Path, name: str, text: str) -> dict[str, str]:
    (package / f"{name}.py").write_text(text)
    return digests(package)


def test_covers_what_is_imported_directly_or_not_and_nothing_else(package):
    found = digests(package)
    assert list(found) == ["package", "package.data", "package.models", "package.train"]
    assert "package.train" in digests(package, "package.extra")


@pytest.mark.parametrize(
    "line",
    [
        "import package.extra",
        "from package import extra",
        "from package.extra import anything",
        "from .extra import anything",
        "def later():\n    from . import extra",
    ],
)
def test_a_new_import_is_picked_up(package, line):
    found = rewrite(package, "train", f"{line}\n{TRAINING}")
    assert {"package.extra", "package.plots"} <= found.keys()


def test_an_import_for_type_checkers_only_does_not_count(package):
    before = digests(package)
    text = "from typing import TYPE_CHECKING\n" + TRAINING
    plain = rewrite(package, "train", text)
    guarded = text.replace(
        "TYPE_CHECKING\n", "TYPE_CHECKING\nif TYPE_CHECKING:\n    import package.extra\n"
    )
    assert rewrite(package, "train", guarded) == plain != before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("RATE", "# the rate\nRATE"),
        ("rate=RATE):", 'rate=RATE):\n    """One step."""'),
        ("model - rate * 2", "(model\n        - (rate * 2))"),
        ("3e-3", "0.003"),
        ("def step", "\n\n\ndef step"),
        ("from package", '"""Training."""\nfrom package'),
        ("\n", "\r\n"),
    ],
)
def test_comments_docstrings_and_layout_do_not_count(package, old, new):
    before = digests(package)
    assert rewrite(package, "train", TRAINING.replace(old, new)) == before


@pytest.mark.parametrize(
    ("old", "new"), [("3e-3", "4e-3"), ("- rate", "+ rate"), ("step", "leap"), ("* 2", "* 2.0")]
)
def test_what_runs_counts(package, old, new):
    before = digests(package)
    after = rewrite(package, "train", TRAINING.replace(old, new))
    assert after["package.train"] != before["package.train"]
    assert after["package.models"] == before["package.models"]


def test_data_files_of_a_module_count(package):
    before = digests(package)
    (package / "data").mkdir()
    (package / "data/table.csv").write_bytes(b"a,b\n1,2\n")
    with_data = digests(package)
    assert with_data.keys() - before.keys() == {"package.data/table.csv"}
    (package / "data/table.csv").write_bytes(b"a,b\r\n1,2\r\n")
    assert digests(package) == with_data
    (package / "data/table.csv").write_bytes(b"a,b\n1,3\n")
    assert digests(package) != with_data


def test_code_that_cannot_be_read_is_named(package):
    with pytest.raises(CodeError, match="train.py, line 2"):
        rewrite(package, "train", "\ndef (\n")
    with pytest.raises(CodeError, match="no module package.nowhere"):
        digests(package, "package.nowhere")


SAMPLE = '''
"""Docstring."""
async def f(a, /, *b, c: int = -1, **d) -> "x":
    match a:
        case {"k": [1, *rest]} if rest: return f"{a!r:>{c}} {{}} {b}" "end" f"{c=}"
    try: yield (y := 1_000)
    except* ValueError: raise
    with open("ä") as g, h: del g
    return {**d}, [i async for i in b if i], 1j, b"\\xff", ..., "\\U0001fae8", lambda: None
'''


@pytest.mark.parametrize("python", ["python3.11", "python3.12", "python3.13", "python3.14"])
def test_the_digest_is_the_same_under_every_python(python, package):
    (package / "train.py").write_text(SAMPLE, encoding="utf-8")
    script = (
        "import importlib.util, json, pathlib, sys\n"
        "spec = importlib.util.spec_from_file_location('code_digest', sys.argv[1])\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "print(json.dumps(module.code_of('package.train', package=pathlib.Path(sys.argv[2]))))\n"
    )
    if not which(python) or subprocess.run([python, "-V"], capture_output=True).returncode:
        pytest.skip(f"{python} is not installed")
    command = [python, "-c", script, code_digest.__file__, str(package)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(found.stdout)["package.train"] == "1a6c3212736c0911"


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("model", ["nonlinear", "linear", "single_stream", "context_updates"])
def test_covers_exactly_what_python_imports(stage, model):
    """Model and task are imported by name, so the digest names them, too."""
    run = next(
        r for r in resolve_runs(load_settings("params.yaml")) if r.architecture.model == model
    )
    script = (
        f"import sys, torch, {STAGES[stage]}\n"
        "from inverse_depth.contexts import sample_contexts\n"
        "from inverse_depth.models import build\n"
        "from inverse_depth.run import Architecture, Data\n"
        f"build({run.architecture!r}, {run.data.d}, torch.Generator())\n"
        f"tokens = {run.data.P is not None}\n"
        f"sample_contexts({run.data!r}, 1, 'averaged', torch.Generator(), tokens)\n"
        "print(*(m for m in sys.modules if m.startswith('inverse_')))"
    )
    imported = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(code_digest.PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(imported.stdout.split()) <= set(stage_code(stage, run))
    unused = set(stage_code(stage, run)) - set(imported.stdout.split())
    assert unused <= {*run.modules, "inverse_depth.tasks"}


def test_nothing_is_imported_in_ways_that_cannot_be_followed():
    by_name = {"models/__init__.py", "contexts.py"}  # whose choice `Run.modules` names
    for path in code_digest.PACKAGE.rglob("*.py"):
        if path.relative_to(code_digest.PACKAGE).as_posix() not in by_name:
            text = path.read_text(encoding="utf-8")
            assert "import_module" not in text and "__import__" not in text, path
