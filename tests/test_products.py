"""What the registry says of each product against what building it really reads."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from inverse_depth import assemble, drawing
from inverse_depth.frames import Results
from inverse_depth.freshness import Freshness
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS, available, product_runs
from inverse_depth.settings import load_settings, resolve_runs
from inverse_depth.theory.artifacts import ARTIFACTS

TINY = Path(__file__).parent / "tiny.yaml"
BUILDERS = {"data": assemble.DATA, "table": assemble.TABLES, "figure": drawing.FIGURES}


class Recorded:
    """A section of the settings that writes down which of its values are read."""

    def __init__(self, section: Any, path: str, read: set[str]):
        self._section, self._path, self._read = section, path, read

    def _value(self, key: str, value: Any) -> Any:
        path = f"{self._path}.{key}".removeprefix(".")
        if isinstance(value, BaseModel) or path == "experiments":
            return Recorded(value, path, self._read)
        self._read.add(path)
        return value

    def __getattr__(self, key: str) -> Any:
        return self._value(key, getattr(self._section, key))

    def __getitem__(self, key: str) -> Any:
        return self._value(key, self._section[key])

    def __contains__(self, key: str) -> bool:
        return key in self._section

    def get(self, key: str) -> Any:
        return self[key] if key in self._section else None


def tiny_products() -> list[str]:
    return [product.name for product in available(resolve_runs(load_settings(TINY)))]


@pytest.mark.parametrize("name", tiny_products())
def test_a_product_reads_no_settings_beside_those_that_it_declares(name, finished):
    settings, product, read = load_settings(TINY), PRODUCTS[name], set()
    scale = Recorded(settings.current, "", read)
    if product.kind == "theory":
        ARTIFACTS[name](scale, None)
    else:
        paths = Paths("tiny", finished)
        runs = product_runs(product, resolve_runs(settings))
        limit = scale.evaluation.convergence_limit
        sources = assemble.Sources(scale, Results(runs, paths, limit), paths)
        if product.kind == "comparison":
            assemble.compare(sources, product.tables)
        else:
            BUILDERS[product.kind][name](sources)
    undeclared = {
        key for key in read if not f"{key}.".startswith(tuple(f"{k}." for k in product.settings))
    }
    assert undeclared == set()


def test_products_come_after_what_they_read():
    seen = set()
    for name, product in PRODUCTS.items():
        assert seen.issuperset(product.theory + product.tables), name
        seen.add(name)


def test_everything_that_was_built_is_fresh(finished):
    freshness = Freshness(load_settings(TINY), Paths("tiny", finished))
    stale = {step.name: step.reasons for step in freshness.steps() if step.reasons}
    made = {product.name for product in freshness.available()}
    assert {name for name in stale if name.split()[-1] in made or "/" in name} == set()
