"""Tables as pages of the report: plain HTML, which a browser shows without a network."""

from collections.abc import Iterable
from html import escape

import pandas as pd

STYLE = """
body { font: 15px/1.4 system-ui, sans-serif; margin: 1.5em; color: #222; background: #fff; }
table { border-collapse: collapse; margin: 0.5em 0 1.5em; }
th, td { padding: 0.25em 0.7em; border-bottom: 1px solid #ddd; text-align: right; }
th { border-bottom: 2px solid #888; position: sticky; top: 0; background: #fff; }
td.words, th:first-child, th:last-child { text-align: left; }
td.within { color: #1a7f37; }
td.outside { color: #c1121f; font-weight: bold; }
td.not-run { color: #777; }
"""
VERDICTS = {"within", "outside", "not run"}


def page(title: str, parts: Iterable[tuple[str, pd.DataFrame]]) -> str:
    """A page of headed tables, whose cells are the strings of the frames."""
    tables = "\n".join(
        (f"<h2>{escape(heading)}</h2>\n" if heading else "") + _table(frame)
        for heading, frame in parts
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{tables}\n</body>\n</html>\n"
    )


def _table(frame: pd.DataFrame) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in frame)
    rows = "\n".join(
        "<tr>" + "".join(map(_cell, row)) + "</tr>" for row in frame.itertuples(index=False)
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>"


def _cell(text: str) -> str:
    if text in VERDICTS:
        return f'<td class="{text.replace(" ", "-")}">{text}</td>'
    words = ' class="words"' if len(text) > 14 else ""
    return f"<td{words}>{escape(text)}</td>"
