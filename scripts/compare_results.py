"""Compare the results of two runs of the workflow, cell by cell.

`python scripts/compare_results.py EXPECTED ACTUAL` takes two folders `results/<scale>`, compares
every table and the evaluations in them, and fails unless both hold the same files, text and,
within a relative 1e-6, numbers: the rounding of two processors' kernels passes, nothing else does.
"""

import csv
import math
import sys
from pathlib import Path

TOLERANCE = 1e-6


def read_cells(folder: Path) -> dict[str, list[list[str]]]:
    """The rows of every table and of the evaluations, by file name relative to the folder."""
    paths = [*folder.glob("tables/*.csv"), *folder.glob("*.csv")]
    return {
        str(path.relative_to(folder)): list(csv.reader(path.read_text().splitlines()))
        for path in sorted(paths)
    }


def same(expected: str, actual: str) -> bool:
    """Whether two cells hold the same text, or numbers within the tolerance."""
    if expected == actual:
        return True
    try:
        return math.isclose(float(expected), float(actual), rel_tol=TOLERANCE, abs_tol=1e-12)
    except ValueError:
        return False


def differences(expected: Path, actual: Path) -> list[str]:
    """What differs between two results folders, a line for each file."""
    left, right = read_cells(expected), read_cells(actual)
    if not left:
        return [f"{expected} holds no tables"]
    found = [f"{name}: only in one of the two" for name in sorted(left.keys() ^ right.keys())]
    for name in sorted(left.keys() & right.keys()):
        if [len(row) for row in left[name]] != [len(row) for row in right[name]]:
            found.append(f"{name}: rows or columns differ")
            continue
        cells = [
            (a, b)
            for row, other in zip(left[name], right[name], strict=True)
            for a, b in zip(row, other, strict=True)
        ]
        wrong = [f"{a} and {b}" for a, b in cells if not same(a, b)]
        if wrong:
            found.append(f"{name}: {len(wrong)} cells differ, the first of them {wrong[0]}")
        else:
            equal = sum(a == b for a, b in cells)
            print(f"{name}: {len(cells)} cells agree, {equal} of them exactly")
    return found


if __name__ == "__main__":
    problems = differences(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.exit("\n".join(problems) if problems else 0)
