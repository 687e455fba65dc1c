"""Every decimal number on the findings page is a number of a table that its section links to."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/findings.md"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def linked_numbers(text: str) -> np.ndarray:
    """All numbers of the CSV files that a section links to, of either sign, and as percentages."""
    found = []
    for link in re.findall(r"\]\((\.\./results/paper/[^)]+\.csv)\)", text):
        frame = pd.read_csv(PAGE.parent / link)
        found.append(frame.select_dtypes("number").to_numpy(float).ravel())
    numbers = np.concatenate(found) if found else np.empty(0)
    numbers = numbers[np.isfinite(numbers)]
    return np.abs(np.concatenate([numbers, 100 * numbers]))


def quoted(text: str) -> list[str]:
    """Numbers with a decimal point in a section, outside of code and links."""
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    return re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)", text)


@pytest.mark.parametrize("title", sections())
def test_numbers_are_those_of_the_tables(title):
    text = sections()[title]
    numbers = linked_numbers(text)
    for number in quoted(text):
        decimals = len(number.split(".")[1])
        rounding = 0.5 * 10**-decimals
        assert (np.abs(numbers - float(number)) <= rounding * 1.001).any(), (title, number)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()))))
def test_links_lead_to_files(link):
    assert (PAGE.parent / link).exists()
