"""What code a module runs: itself and everything of this package that it imports.

Comments, layout, docstrings and imports for type checkers only do not count, and the result is
the same under every supported version of Python. Data files of a module `name.py` lie in the
folder `name/` beside it and count as its code.
"""

import ast
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent


class CodeError(ValueError):
    """Code that cannot be read."""


def digest(value: object) -> str:
    """16 hexadecimal digits of the SHA-256 of plain nested values."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def code_of(*modules: str, package: Path = PACKAGE) -> dict[str, str]:
    """Digests by name of the modules that importing `modules` runs, and of their data files.

    Raises:
        CodeError: if one of them is missing or not valid Python.
    """
    found: dict[str, str] = {}
    waiting = {name for module in modules for name in _with_packages(module)}
    while waiting:
        name = waiting.pop()
        path = _file(name, package)
        if path is None:
            raise CodeError(f"no module {name} in {package}")
        tree = _Essence().visit(_parsed(path))
        found[name] = digest(_plain(tree))
        for data in _data_files(path):
            found[f"{name}/{data.name}"] = digest(data.read_text(encoding="utf-8").splitlines())
        waiting |= set(_imported(tree, name, path, package)) - found.keys()
    return dict(sorted(found.items()))


def _with_packages(module: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = module.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_bytes())
    except SyntaxError as error:
        raise CodeError(f"{path}, line {error.lineno}: {error.msg}") from error


def _file(name: str, package: Path) -> Path | None:
    """The file of a module or package, None if there is no such module."""
    base = package.parent.joinpath(*name.split("."))
    candidates = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((path for path in candidates if path.is_file()), None)


def _data_files(path: Path) -> list[Path]:
    folder = path.with_suffix("")
    return sorted(file for file in folder.glob("*") if file.is_file())


class _Essence(ast.NodeTransformer):
    """Drops what has no effect at run time: docstrings and imports for type checkers only."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        value = node.value
        return None if isinstance(value, ast.Constant) and isinstance(value.value, str) else node

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.AST]:
        self.generic_visit(node)
        name = getattr(node.test, "id", getattr(node.test, "attr", None))
        return node.orelse if name == "TYPE_CHECKING" else node


def _plain(node: object) -> object:
    """Syntax tree as nested lists, without empty fields, which differ between versions."""
    if isinstance(node, ast.Constant):
        return [type(node.value).__name__, ascii(node.value)]
    if isinstance(node, ast.JoinedStr):
        return ["JoinedStr", _joined(node.values)]
    if isinstance(node, ast.AST):
        fields = [
            [name, _plain(value)]
            for name, value in ast.iter_fields(node)
            if value is not None and value != [] and not isinstance(value, ast.expr_context)
        ]
        return [type(node).__name__, *fields]
    if isinstance(node, list):
        return [_plain(item) for item in node]
    return node


def _joined(values: list[ast.expr]) -> list[object]:
    """Parts of an f-string; how versions of Python split its literal text does not count."""
    parts: list[object] = []
    for value in values:
        if not isinstance(value, ast.Constant):
            parts.append(_plain(value))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += ascii(value.value)[1:-1]
        elif value.value:
            parts.append(ascii(value.value)[1:-1])
    return parts


def _imported(tree: ast.Module, name: str, path: Path, package: Path) -> Iterator[str]:
    """Modules of the package that a module imports anywhere, with the packages around them."""
    here = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = here[: len(here) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            targets = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        for target in targets:
            if target.partition(".")[0] == package.name:
                yield from (name for name in _with_packages(target) if _file(name, package))
