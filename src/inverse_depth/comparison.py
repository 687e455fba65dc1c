"""Every published number and claim beside ours, with a verdict."""

from collections.abc import Iterator, Mapping
from math import nan

import numpy as np
import pandas as pd

from inverse_depth import fits, published
from inverse_depth.claims import CLAIMS, claim_statistics, context_scalars
from inverse_depth.tables.curves import NOT_RUN, joined, lookup, select
from inverse_depth.tables.markdown import DASH, significant
from inverse_depth.tables.nonlinear import FLOOR_TOLERANCE

WITHIN, OUTSIDE, MISSING = "within", "outside", "not run"
COLUMNS = [
    "item",
    "paper",
    "ours",
    "standard_error",
    "deviation",
    "tolerance",
    "verdict",
    "note",
    "source",
]

# How far ours may be from the paper's: relative to the paper's value, absolute, in combined
# standard errors, or below it (R^2, where higher is no miss).
TOLERANCES = {
    "Table 1 nonlinear L0": ("relative", FLOOR_TOLERANCE),
    "Table 1 linear L0": ("relative", 0.03),
    "Table 2 alpha": ("relative", 0.10),
    "Table 3 theory": ("standard errors", 3.0),
    "Table 3 measured": ("relative", 0.03),
    "Table 4 L0": ("relative", 0.05),
    "Table 4 alpha": ("absolute", 0.1),
    "Table 4 R2": ("below", 0.001),
    "Table 5 alpha": ("absolute", 0.05),
    "Table 5 R2": ("below", 0.001),
    "m at top-16": ("absolute", 0.3),
    "rho at top-2": ("absolute", 0.02),
    "rho at top-16": ("absolute", 0.02),
    "R2 of rho at top-2": ("below", 0.0),
    "R2 of rho at top-16": ("below", 0.001),
}

# A linear floor also agrees if it is this close to our finite-context floor, relative.
FINITE_CONTEXT_TOLERANCE = 0.01


def compare(
    tables: Mapping[str, pd.DataFrame],
    evaluations: pd.DataFrame,
    extras: Mapping[str, pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """A row per published number, and per qualitative claim of the paper.

    Args:
        tables: table1, table2, table3, table3_theory, table4, table5, figure6_fits; a missing
            one means that its numbers were not run.
        evaluations: a row per run.
        extras: the frames history, modes, selection and attention, where they exist.

    Returns:
        item, paper, ours, standard_error, deviation (in the unit of the tolerance), tolerance,
        verdict (within, outside, not run), note, source. A number is "not run" without runs at
        the paper's dimensions; a fit that failed on enough depths is "outside".
    """
    extras = extras or {}
    rows = [
        *_table1(tables),
        *_table2(tables),
        *_table3(tables),
        *_table4(tables),
        *_table5(tables),
        *_context_update_numbers(evaluations, extras.get("attention")),
    ]
    statistics = claim_statistics(tables, evaluations, extras)
    rows += [_claim(item, *statistics.get(item, (nan, NOT_RUN))) for item in CLAIMS]
    return pd.DataFrame(rows, columns=COLUMNS)


def headline(comparison: pd.DataFrame) -> dict[str, object]:
    """Counts within, outside, not_run and total, of all rows and by source (DVC metrics)."""
    by_source = {source: _counts(rows) for source, rows in comparison.groupby("source", sort=False)}
    return {**_counts(comparison), "by_source": by_source}


def headline_sentence(comparison: pd.DataFrame) -> str:
    """The counts in words, published numbers and claims apart."""
    claims = comparison["source"] == "Claims"
    numbers, held = _counts(comparison[~claims]), _counts(comparison[claims])
    return (
        f"Of {numbers['total']} published numbers, {numbers['within']} are within tolerance, "
        f"{numbers['outside']} outside and {numbers['not_run']} not run at this scale; "
        f"of {held['total']} claims, {held['within']} hold, {held['outside']} do not and "
        f"{held['not_run']} were not tested."
    )


def to_markdown(comparison: pd.DataFrame) -> str:
    """The comparison as a page: the headline, the counts by source, then every row."""
    counts = pd.DataFrame(headline(comparison)["by_source"]).T.rename_axis("source").reset_index()
    counts = counts.rename(columns={"not_run": "not run"}).to_markdown(index=False)
    parts = ["# Comparison with the published values", headline_sentence(comparison), counts]
    for source, rows in comparison.groupby("source", sort=False):
        shown = readable(rows).to_markdown(index=False, disable_numparse=True)
        parts += [f"## {source}", shown]
    return "\n\n".join(parts) + "\n"


def readable(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of the comparison with every value as the text that a reader wants."""
    return pd.DataFrame(
        {
            "item": rows["item"],
            "paper": [_number(value) for value in rows["paper"]],
            "ours": [
                _number(value) + ("" if np.isnan(se) else f" ± {significant(se, 2)}")
                for value, se in zip(rows["ours"], rows["standard_error"], strict=True)
            ],
            "deviation": [
                _deviation(value, tolerance)
                for value, tolerance in zip(rows["deviation"], rows["tolerance"], strict=True)
            ],
            "tolerance": rows["tolerance"],
            "verdict": rows["verdict"],
            "note": rows["note"].fillna("").replace("", DASH),
        }
    )


# The published numbers


def _table1(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, object]]:
    for paper in published.table(1).to_dict("records"):
        spectrum = {"a": paper["a"], "b": paper["b"]}
        ours = lookup(tables.get("table1"), **spectrum)
        for model in ("nonlinear", "linear"):
            yield _compared(
                f"Table 1 {model} L0",
                _spectrum(spectrum),
                paper[f"{model}_L0"],
                ours.get(f"{model}_L0", nan),
                ours.get(f"{model}_L0_se", nan),
                model=model,
                size={name: ours.get(f"{model}_{name}", nan) for name in ("d", "P")},
                note=_note(ours, f"{model}_note"),
                floor=_finite_floor(tables, {"k": 2} | spectrum) if model == "linear" else nan,
            )


def _table2(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, object]]:
    for paper in published.table(2).to_dict("records"):
        spectrum = {"a": paper["a"], "b": paper["b"]}
        ours = lookup(tables.get("table2"), **spectrum)
        yield _compared(
            "Table 2 alpha",
            _spectrum(spectrum),
            paper["alpha"],
            ours.get("alpha", nan),
            ours.get("alpha_se", nan),
            model="linear",
            size=ours,
            note=_note(ours),
        )


def _table3(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, object]]:
    for paper in published.table(3).to_dict("records"):
        key = {name: paper[name] for name in ("k", "a", "b")}
        theory = lookup(tables.get("table3_theory"), **key) or lookup(tables.get("table3"), **key)
        yield _compared(
            "Table 3 theory",
            _spectrum(key),
            paper["theory"],
            theory.get("theory", nan),
            theory.get("theory_se", nan),
            model="linear",
            size=theory,
            note=_note(theory),
            paper_se=paper["theory_se"],
        )
        ours = lookup(tables.get("table3"), **key)
        trained = isinstance(ours.get("plateau_depths"), str) and ours["plateau_depths"] != ""
        yield _compared(
            "Table 3 measured",
            _spectrum(key),
            paper["measured"],
            ours.get("measured", nan),
            ours.get("measured_se", nan),
            model="linear",
            size=ours if trained else {},
            note=_note(ours),
            floor=_finite_floor(tables, key),
        )


def _table4(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, object]]:
    for paper in published.table(4).to_dict("records"):
        key = {name: paper[name] for name in ("k", "a", "b")}
        ours = lookup(tables.get("table4"), **key)
        for name, label in {"L0": "L0", "alpha": "alpha", "r2": "R2"}.items():
            yield _compared(
                f"Table 4 {label}",
                _spectrum(key),
                paper[name],
                ours.get(name, nan),
                ours.get(f"{name}_se", nan),
                model="nonlinear",
                size=ours,
                note=_note(ours),
            )


def _table5(tables: Mapping[str, pd.DataFrame]) -> Iterator[dict[str, object]]:
    for paper in published.table(5).to_dict("records"):
        spectrum = {"a": paper["a"], "b": paper["b"]}
        ours = lookup(tables.get("table5"), **spectrum)
        for name, label in {"alpha": "alpha", "r2": "R2"}.items():
            yield _compared(
                f"Table 5 {label}",
                _spectrum(spectrum),
                paper[name],
                ours.get(name, nan),
                ours.get(f"{name}_se", nan),
                model="nonlinear",
                size=ours,
                note=_note(ours),
            )


def _context_update_numbers(
    evaluations: pd.DataFrame, attention: pd.DataFrame | None
) -> Iterator[dict[str, object]]:
    scalars = context_scalars(evaluations)
    spread = f"{scalars.min():.3g} to {scalars.max():.3g} over depth" if len(scalars) else NOT_RUN
    yield _compared(
        "m at top-16",
        "(0, 0)",
        published.scalar("context_update_scalar_top16"),
        scalars.mean(),
        scalars.sem(),
        note=spread,
    )
    for k in (2, 16):
        rho, r2 = _identity_weight(attention, k)
        paper_r2 = "rho_top2_r2_lower_bound" if k == 2 else "rho_top16_r2"
        note = NOT_RUN if np.isnan(rho) else ""
        paper_rho = published.scalar(f"rho_top{k}")
        yield _compared(f"rho at top-{k}", "(0, 0)", paper_rho, rho, note=note)
        yield _compared(
            f"R2 of rho at top-{k}", "(0, 0)", published.scalar(paper_r2), r2, note=note
        )


def _identity_weight(attention: pd.DataFrame | None, k: int) -> tuple[float, float]:
    """rho and R^2 of the first context-attention matrix, averaged over runs."""
    if attention is None or attention.empty:
        return nan, nan
    entries = select(attention, experiment=f"context_updates_top{k}")
    if entries.empty:
        return nan, nan
    return fits.fit_identity(
        entries.pivot_table(index="row", columns="column", values="weight", aggfunc="mean")
    )


def _compared(
    quantity: str,
    at: str,
    paper: float,
    ours: float,
    se: float = nan,
    *,
    model: str | None = None,
    size: Mapping[str, float] | None = None,
    note: str = "",
    paper_se: float = nan,
    floor: float = nan,
) -> dict[str, object]:
    """The row of one published number.

    Args:
        model, size: linear or nonlinear, and the d and P of our runs, NaN where nothing ran;
            None where the paper's dimensions do not matter.
        floor: our finite-context floor, a second value that ours may agree with.
    """
    kind, limit = TOLERANCES[quantity]
    deviation = {
        "relative": ours / paper - 1,
        "absolute": ours - paper,
        "below": ours - paper,
        "standard errors": (ours - paper) / np.hypot(se, paper_se),
    }[kind]
    agrees = deviation >= -limit if kind == "below" else abs(deviation) <= limit
    verdict = WITHIN if agrees else OUTSIDE
    if not agrees and abs(ours / floor - 1) <= FINITE_CONTEXT_TOLERANCE:
        verdict = WITHIN
        note = joined(f"within 1 % of our finite-context floor {floor:.4g}", note)

    if np.isnan(ours) and (fits.TOO_FEW in note or np.isnan((size or {}).get("d", nan))):
        verdict = MISSING
    elif model and (other := _other_dimensions(model, size)):
        verdict = MISSING
        note = joined(other, note)
    return {
        "item": f"{quantity} {at}",
        "paper": paper,
        "ours": ours,
        "standard_error": se,
        "deviation": deviation,
        "tolerance": _tolerance(kind, limit),
        "verdict": verdict,
        "note": note,
        "source": quantity[:7] if quantity.startswith("Table") else "Text",
    }


def _tolerance(kind: str, limit: float) -> str:
    return {
        "relative": f"{100 * limit:g} %",
        "absolute": f"± {limit:g}",
        "below": f"at most {limit:g} below" if limit else "not below",
        "standard errors": f"{limit:g} standard errors",
    }[kind]


def _finite_floor(tables: Mapping[str, pd.DataFrame], key: dict[str, float]) -> float:
    """Our finite-context floor at the paper's dimensions; NaN if there is none."""
    for name in ("table3_theory", "table3"):
        row = lookup(tables.get(name), **key)
        if row and not _other_dimensions("linear", row):
            return row["finite_context_floor"]
    return nan


def _other_dimensions(model: str, size: Mapping[str, float]) -> str:
    """In words that d or P is not the paper's; empty where they agree or are not known."""
    wanted = published.DIMENSIONS[model]
    known = {name: size.get(name, nan) for name in wanted}
    if all(known[name] == value or np.isnan(known[name]) for name, value in wanted.items()):
        return ""
    ours = ", ".join(f"{name} = {value:g}" for name, value in known.items())
    return f"ours at {ours}, the paper's at {', '.join(f'{n} = {v}' for n, v in wanted.items())}"


def _note(row: Mapping[str, object], name: str = "note") -> str:
    """The note of a table's row; an empty one is NaN where the table was read from a CSV."""
    note = row.get(name, NOT_RUN)
    return note if isinstance(note, str) else ""


def _spectrum(key: Mapping[str, float]) -> str:
    spectrum = f"({key['a']:g}, {key['b']:g})"
    return f"k = {key['k']:g}, {spectrum}" if "k" in key else spectrum


def _claim(item: str, statistic: float, note: str) -> dict[str, object]:
    low, high = CLAIMS[item]
    verdict = WITHIN if low <= statistic <= high else OUTSIDE
    if np.isinf(low):
        tolerance = f"at most {high:g}"
    elif np.isinf(high):
        tolerance = f"at least {low:g}"
    else:
        tolerance = f"{low:g} to {high:g}"
    return {
        "item": item,
        "paper": nan,
        "ours": statistic,
        "standard_error": nan,
        "deviation": nan,
        "tolerance": tolerance,
        "verdict": MISSING if np.isnan(statistic) else verdict,
        "note": note,
        "source": "Claims",
    }


def _counts(rows: pd.DataFrame) -> dict[str, int]:
    counts = {
        name.replace(" ", "_"): int((rows["verdict"] == name).sum())
        for name in (WITHIN, OUTSIDE, MISSING)
    }
    return counts | {"total": len(rows)}


def _number(value: float) -> str:
    return significant(value, 5)


def _deviation(value: float, tolerance: str) -> str:
    if np.isnan(value):
        return DASH
    if tolerance.endswith("%"):
        return f"{100 * value:+.1f} %"
    if tolerance.endswith("standard errors"):
        return f"{value:+.1f} se"
    return f"{value:+.2g}"
