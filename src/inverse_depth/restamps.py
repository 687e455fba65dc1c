"""The ledger of restamps: code that was shown to give the same results as the code before it."""

import csv
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass(frozen=True)
class Restamp:
    """One sample run, made again with new code and found equal to the recorded one.

    Attributes:
        stage: `training` or `evaluation`, whose code changed.
        old, new: digests of the code before and after.
        run: the sample.
        weights, evaluation: largest relative differences found.
        tolerance: the largest allowed.
    """

    date: str
    experiment: str
    stage: str
    old: str
    new: str
    run: str
    weights: float
    evaluation: float
    tolerance: float


class Ledger:
    """Which code is as good as which, by experiment."""

    def __init__(self, restamps: list[Restamp]):
        self.restamps = restamps
        self._newer: dict[tuple[str, str], set[str]] = {}
        for row in restamps:
            self._newer.setdefault((row.experiment, row.old), set()).add(row.new)

    def same(self, experiment: str, old: str, new: str) -> bool:
        """Whether results of the old code of an experiment stand for those of the new code."""
        seen, waiting = {old}, [old]
        while waiting:
            later = self._newer.get((experiment, waiting.pop()), set()) - seen
            seen |= later
            waiting += later
        return new in seen


def read_ledger(path: Path) -> Ledger:
    """The ledger, empty where there is none.

    Raises:
        ValueError: naming the file, if it is not a ledger.
    """
    if not path.exists():
        return Ledger([])
    types = {field.name: field.type for field in fields(Restamp)}
    with path.open(newline="", encoding="utf-8") as lines:
        try:
            return Ledger(
                [
                    Restamp(**{name: types[name](value) for name, value in row.items()})
                    for row in csv.DictReader(lines)
                ]
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a ledger of restamps: {error}") from error


def append(path: Path, restamps: list[Restamp]) -> None:
    """Add rows to the ledger."""
    new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, [field.name for field in fields(Restamp)])
        if new:
            writer.writeheader()
        writer.writerows(map(asdict, restamps))
