"""The HTML report: complete, explained, and shown by a real browser without errors."""

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pandas as pd
import pytest
from docutils.core import publish_parts

from inverse_depth.comparison import headline_sentence
from inverse_depth.freshness import Freshness
from inverse_depth.pages import page
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS
from inverse_depth.report import Report, read_captions
from inverse_depth.settings import load_settings

ROOT = Path(__file__).resolve().parent.parent
CAPTIONS = read_captions(ROOT / "workflow/report/captions.yaml")
SHOWN = {p.name for p in PRODUCTS.values() if p.kind in ("figure", "table", "comparison")}
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


def report_of(folder: Path, scale: str, params: str = "tests/tiny.yaml") -> Report:
    freshness = Freshness(load_settings(folder / params), Paths(scale, folder))
    return Report(freshness, CAPTIONS, folder / params)


def test_every_figure_and_table_has_a_caption_and_nothing_else_has():
    assert set(CAPTIONS) == SHOWN


@pytest.mark.parametrize("name", sorted(SHOWN))
def test_captions_are_valid_and_complete(name):
    entry = CAPTIONS[name]
    assert set(entry) == {"section", "title", "caption"}
    publish_parts(entry["caption"], writer="html", settings_overrides={"halt_level": 2})


def test_labels_come_from_the_runs():
    labels = report_of(ROOT, "tiny").labels("figure06")
    assert labels == {
        "result": "Figure 6",
        "title": CAPTIONS["figure06"]["title"],
        "model": "nonlinear",
        "task": "top-2",
        "spectra (a, b)": "(0, 0) (0, 1)",
    }


def test_long_lists_of_spectra_are_counted():
    labels = report_of(ROOT, "paper", "params.yaml").labels("table1")
    assert labels["result"] == "Table 1"
    assert labels["model"] == "nonlinear, linear"
    assert labels["spectra (a, b)"].endswith(" spectra")


def test_a_figure_made_from_a_table_is_labelled_by_the_tables_runs():
    labels = report_of(ROOT, "paper", "params.yaml").labels("figure_calibration")
    assert (labels["result"], labels["task"]) == ("Figure", "top-2, top-16")


def test_the_theory_has_no_runs():
    assert report_of(ROOT, "tiny").labels("figure02")["model"] == "theory"
    assert report_of(ROOT, "tiny").labels("table4")["model"] == "not run"


def test_pages_escape_and_mark_verdicts():
    frame = pd.DataFrame({"item": ["a < b", "c"], "verdict": ["outside", "not run"]})
    text = page("Tables & more", [("Table 1", frame)])
    assert "<h1>Tables &amp; more</h1>" in text
    assert "<td>a &lt; b</td>" in text
    assert '<td class="outside">outside</td>' in text
    assert '<td class="not-run">not run</td>' in text


@pytest.fixture(scope="module")
def project(finished, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report") / "zum Prüfen"
    shutil.copytree(finished, folder)
    return folder


@pytest.fixture(scope="module")
def html(project) -> str:
    """The report of the finished project, as `make report` makes it, on two tables' pages."""
    snakemake = [sys.executable, "-m", "snakemake", "--config", "params=tests/tiny.yaml"]
    targets = [
        "results/tiny/pages/comparison.html",
        "results/tiny/pages/table1.html",
        "figures",
    ]
    output = ["--report", "results/tiny/report.html"]
    for step in (["--cores", "2", "--", *targets], [*output, "--", *targets]):
        done = subprocess.run([*snakemake, *step], cwd=project, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return (project / "results/tiny/report.html").read_text(encoding="utf-8")


def embedded(html: str, name: str):
    """A value that the report hands to its scripts."""
    return json.JSONDecoder().raw_decode(html.rsplit(f"    var {name} = ", 1)[1])[0]


def test_the_front_page_says_what_was_found_and_made_of_what(html, project):
    front = unescape(re.sub("<[^>]+>", "", embedded(html, "workflow_desc")))
    front = " ".join(front.split())
    assert headline_sentence(pd.read_csv(Paths("tiny", project).data("comparison"))) in front
    for part in ("Python 3.11", "torch 2.", "7 runs on cpu", "scale tiny of tiny.yaml"):
        assert part in front
    assert "nonlinear_top2 2 nonlinear" in front


def test_every_result_has_caption_category_and_labels(html):
    results = embedded(html, "results")
    figures = {Path(path).stem for path in results if path.endswith(".png")}
    made = {p.name for p in report_of(ROOT, "tiny").freshness.available() if p.kind == "figure"}
    assert figures == made
    assert "results/tiny/pages/comparison.html" in results
    assert all(result["caption"] and result["labels"] for result in results.values())
    categories = embedded(html, "categories")
    assert "4 Nonlinear attention" in categories
    assert "Other" not in categories


# Collects errors from before the first script on; afterwards opens every result.
COLLECT = """<script>
const failures = [];
window.addEventListener("error", event => failures.push(String(event.message)));
window.addEventListener("unhandledrejection", event => failures.push(String(event.reason)));
console.error = (...words) => failures.push(words.join(" "));
</script>"""
VISIT = """<script>
const pause = () => new Promise(resolve => setTimeout(resolve, 100));
(async () => {
  const seen = {}, pages = {};
  await pause();
  const front = document.body.innerText;
  for (const [path, result] of Object.entries(results)) {
    if (result.mime_type === "image/png") {
      app.setView({content: "img", contentPath: result.data_uri, resultPath: path});
      await pause();
      const image = document.querySelector(`img[src="${result.data_uri}"]`);
      while (!image.complete) await pause();
      const box = image.getBoundingClientRect();
      seen[path] = Math.min(image.naturalWidth, box.width, box.height);
    } else if (result.mime_type === "text/html") {
      app.setView({content: "html", contentPath: result.data_uri, resultPath: path});
      await pause();
      pages[path] = document.querySelector("iframe").getBoundingClientRect().height;
    }
  }
  const menus = {};
  for (const category of Object.keys(categories)) {
    app.setView({navbarMode: "menu"});
    await pause();
    app.showCategory(category);
    await pause();
    menus[category] = document.body.innerText;
  }
  const outcome = document.createElement("pre");
  outcome.id = "outcome";
  outcome.textContent = JSON.stringify({front, seen, pages, menus, failures});
  document.body.replaceChildren(outcome);
})().catch(error => document.body.replaceChildren(String(error)));
</script>"""


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (Debian: chromium)")
def test_a_browser_shows_every_figure_without_errors(html, tmp_path):
    head, tail = html.split("<head>", 1)
    body, end = tail.rsplit("</body>", 1)
    visited = tmp_path / "visited.html"
    visited.write_text(f"{head}<head>{COLLECT}{body}{VISIT}</body>{end}", encoding="utf-8")
    browser = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom"]
    browser += ["--window-size=1500,1000", "--virtual-time-budget=60000", visited.as_uri()]
    shown = subprocess.run(browser, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="outcome">(.*?)</pre>', shown.stdout, re.DOTALL)
    assert found, shown.stdout[-2000:]
    outcome = json.loads(unescape(found[1]))
    assert outcome["failures"] == []
    figures = [path for path in embedded(html, "results") if path.endswith(".png")]
    assert sorted(outcome["seen"]) == sorted(figures)
    assert min(outcome["seen"].values()) > 200
    assert min(outcome["pages"].values()) > 200
    assert "published numbers" in outcome["front"]
    menu = outcome["menus"]["4 Nonlinear attention"]
    assert "Figure 6" in menu and "top-2" in menu and "(0, 0) (0, 1)" in menu
