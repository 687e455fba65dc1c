"""The command line: it reads files, calls the pure functions and writes files."""

import argparse
import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tqdm import tqdm

from inverse_depth.code_digest import CodeError
from inverse_depth.cost import training_megabytes
from inverse_depth.files import write_bytes
from inverse_depth.freshness import (
    Freshness,
    evaluation_identity,
    evaluation_stamp,
    training_identity,
)
from inverse_depth.paths import Paths
from inverse_depth.products import PRODUCTS, outputs, product_runs
from inverse_depth.restamps import append
from inverse_depth.run import Run
from inverse_depth.settings import Settings, SettingsError, load_settings, resolve_runs, trained_as
from inverse_depth.stored import CheckpointError


class UserError(Exception):
    """Something that the user can mend; printed as one message without a traceback."""


MISTAKES = (UserError, SettingsError, CheckpointError, CodeError)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    write_bytes(path, text.encode())


def find_run(settings: Settings, name: str) -> Run:
    """The run named EXPERIMENT/RUN, or the run at b = 0 that serves one.

    Raises:
        UserError: naming what exists.
    """
    runs = resolve_runs(settings)
    known = {str(run): run for run in [*map(trained_as, runs), *runs]}
    if name in known:
        return known[name]
    experiment = name.split("/")[0]
    similar = [other for other in known if other.split("/")[0] == experiment]
    if similar:
        raise UserError(
            f"no run {name} at scale {settings.scale}; runs of this experiment:\n"
            + "\n".join(f"  {other}" for other in similar)
        )
    experiments = sorted({run.experiment for run in runs})
    raise UserError(
        f"no run {name} at scale {settings.scale}; runs are named EXPERIMENT/RUN, "
        f"experiments here: {', '.join(experiments)}"
    )


class ProgressLine:
    """tqdm on a terminal, one line a minute elsewhere."""

    def __init__(self, what: str, total: int):
        interactive = sys.stderr.isatty()
        interval = 0.2 if interactive else 60.0
        self.bar = tqdm(total=total, desc=what, mininterval=interval, ascii=not interactive)
        if not interactive:
            self.bar.maxinterval = interval

    def __call__(self, done: int, loss: float | None = None) -> None:
        if loss is not None:
            self.bar.set_postfix_str(f"validation loss {loss:.5g}", refresh=False)
        self.bar.update(done - self.bar.n)

    def advance(self, count: int) -> None:
        self.bar.update(count)

    def close(self) -> None:
        """End the line, so that what follows has its own."""
        self.bar.close()


def _check_identity(given: str, found: str) -> None:
    """Refuse to make a result that would be taken for another one.

    Raises:
        UserError: if settings or code are not those that the workflow started with.
    """
    if given and given != found:
        raise UserError(
            f"settings or code changed while the workflow was running (it started with {given}, "
            f"now it is {found}); nothing was written, start the workflow again"
        )


@contextmanager
def _computing(run: str) -> Iterator[None]:
    """What goes wrong in training and evaluation, in the user's words."""
    from inverse_depth.process import as_in_a_job
    from inverse_depth.train import TrainingError

    as_in_a_job()
    try:
        yield
    except TrainingError as error:
        raise UserError(str(error)) from error
    except (MemoryError, RuntimeError) as error:
        # PyTorch tells of missing memory on the CPU by the text of a RuntimeError alone.
        if isinstance(error, MemoryError) or "memory" in str(error):
            raise UserError(
                f"not enough memory for {run}: run fewer jobs at once (--cores 1), or lower "
                "batch, validation_contexts, P or L in the settings; nothing finished is lost"
            ) from error
        raise


def _check_memory(run: Run) -> None:
    """Refuse what this machine cannot hold, before it is tried.

    Raises:
        UserError: naming what the run needs and what there is.
    """
    needed = training_megabytes(run)
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**20
    if needed > present:
        raise UserError(
            f"{run} with L = {run.architecture.L}, N = {run.architecture.N} and batch = "
            f"{run.optimization.batch} needs about {needed / 1024:,.0f} GB of memory, this machine "
            f"has {present / 1024:,.0f}; lower one of them in the settings"
        )


def command_train(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.train import select_device, train

    run = find_run(settings, options.run)
    identity = training_identity(run)
    _check_identity(options.identity, identity)
    _check_memory(run)
    steps = run.optimization.steps
    with _computing(options.run), closing(ProgressLine(f"train {run}", steps)) as line:
        train(
            run,
            identity,
            paths.checkpoint(run),
            paths.history(run),
            paths.snapshot(run),
            select_device(settings.device),
            line,
        )


def command_evaluate(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.evaluate import evaluate
    from inverse_depth.train import select_device

    run = find_run(settings, options.run)
    _check_identity(options.identity, evaluation_identity(run))
    trained = trained_as(run)
    checkpoint = paths.checkpoint(trained)
    reasons = Freshness(settings, paths).checkpoint(trained)
    if reasons:
        raise UserError(
            f"{checkpoint} cannot be evaluated ({'; '.join(reasons)}); "
            f"`snakemake --cores all {checkpoint}` trains it"
        )
    stamp = evaluation_stamp(run, checkpoint)
    with _computing(options.run):
        record = evaluate(run, checkpoint, trained, select_device(settings.device))
    write_text(paths.evaluation(run), json.dumps(record | {"stamp": stamp}, indent=1) + "\n")


@contextmanager
def _stamping(settings: Settings, paths: Paths, name: str) -> Iterator[None]:
    """Write down what a product was made from, after it was made."""
    freshness, product = Freshness(settings, paths), PRODUCTS[name]
    stamp = freshness.product_sources(product)
    yield
    stamp["outputs"] = freshness.product_outputs(product)
    write_text(paths.stamp(name), json.dumps(stamp, indent=1) + "\n")


def _sources_of(settings: Settings, paths: Paths, runs: list[Run]):
    """The evaluations of some runs, for tables and figures."""
    from inverse_depth.assemble import Sources
    from inverse_depth.frames import EvaluationError, Results

    limit = settings.current.evaluation.convergence_limit
    try:
        return Sources(settings.current, Results(runs, paths, limit), paths)
    except EvaluationError as error:
        raise UserError(str(error)) from error


def _sources(settings: Settings, paths: Paths, name: str):
    """What a product is made from, all of it there."""
    freshness, product = Freshness(settings, paths), PRODUCTS[name]
    if product not in freshness.available():
        raise UserError(
            f"{name} cannot be made at scale {settings.scale}: it needs runs of one of "
            f"{', '.join(product.experiments or product.tables)}"
        )
    missing = [path for path in freshness.product_inputs(product) if not path.exists()]
    if missing:
        others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(
            f"{name} needs {missing[0]}{others}, not there yet; "
            f"`snakemake --cores all {name}` makes what it needs, and {name}"
        )
    return _sources_of(settings, paths, product_runs(product, freshness.runs))


def command_theory(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.theory.artifacts import ARTIFACTS

    with closing(ProgressLine(f"theory {options.name}", None)) as line:
        frame = ARTIFACTS[options.name](settings.current, line.advance)
    write_text(paths.theory(options.name), frame.to_csv(index=False))


def command_collect(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.assemble import DATA

    frame = DATA[options.name](_sources(settings, paths, options.name))
    write_text(paths.data(options.name), frame.to_csv(index=False))


def command_table(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.assemble import TABLES
    from inverse_depth.tables import to_markdown

    frame = TABLES[options.name](_sources(settings, paths, options.name))
    write_text(paths.table(options.name), frame.to_csv(index=False))
    write_text(paths.table(options.name, ".md"), to_markdown(frame) + "\n")


def command_figure(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.drawing import FIGURES
    from inverse_depth.figures import save

    figure = FIGURES[options.name](_sources(settings, paths, options.name))
    save(figure, paths.figure(options.name, ""))


def command_page(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    import pandas as pd

    from inverse_depth import comparison, tables
    from inverse_depth.pages import page

    product = PRODUCTS[options.name]
    frame = pd.read_csv(outputs(product, paths)[0])
    if product.kind == "comparison":
        groups = frame.groupby("source", sort=False)
        parts = [(source, comparison.readable(rows)) for source, rows in groups]
    else:
        parts = [("", tables.readable(frame))]
    write_text(paths.page(options.name), page(options.name.replace("_", " "), parts))


def command_compare(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.assemble import compare
    from inverse_depth.comparison import headline, headline_sentence, to_markdown

    product = PRODUCTS[options.name]
    frame = compare(_sources(settings, paths, product.name), product.tables)
    table, page, metrics = outputs(product, paths)
    write_text(table, frame.to_csv(index=False))
    write_text(page, to_markdown(frame) + "\n")
    write_text(metrics, json.dumps(headline(frame), indent=1) + "\n")
    print(headline_sentence(frame))


def _stamped(build):
    """A command that builds a product and then writes down what it was made from."""

    def command(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
        with _stamping(settings, paths, options.name):
            build(settings, paths, options)

    return command


def command_why(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    """Print why a run or product is stale, and what of its sources is."""
    freshness = Freshness(settings, paths)
    if options.name in PRODUCTS:
        reasons = list(freshness.product(PRODUCTS[options.name]))
        for run in product_runs(PRODUCTS[options.name], freshness.runs):
            reasons += [f"{run}: {reason}" for reason in freshness.evaluation(run)]
    else:
        run = find_run(settings, options.name)
        reasons = list(freshness.evaluation(run))
        reasons += [f"checkpoint: {reason}" for reason in freshness.checkpoint(trained_as(run))]
    print("\n".join(reasons) if reasons else f"{options.name} is up to date")


def command_status(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.status import report

    print(report(Freshness(settings, paths), len(os.sched_getaffinity(0))))


def command_fit(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.queries import fit_experiment
    from inverse_depth.tables import to_markdown

    name = options.experiment
    runs = [run for run in resolve_runs(settings) if run.experiment == name]
    if not runs:
        raise UserError(
            f"no experiment {name} at scale {settings.scale}; there are "
            + ", ".join(dict.fromkeys(run.experiment for run in resolve_runs(settings)))
        )
    evaluated = [run for run in runs if paths.evaluation(run).exists()]
    if not evaluated:
        raise UserError(f"no run of {name} is evaluated; `snakemake evaluate_{name}` does it")
    sources = _sources_of(settings, paths, evaluated)
    try:
        frame = fit_experiment(sources.evaluations, name, sources.fits)
    except ValueError as error:
        raise UserError(str(error)) from error
    print(f"{len(evaluated)} of {len(runs)} runs of {name} are evaluated\n")
    print(to_markdown(frame))


def command_floor(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.queries import floor_by_degree
    from inverse_depth.tables import to_markdown

    names = ("k", "a", "b", "d", "P", "degree", "contexts", "blocks", "seed")
    theory = settings.current.theory.model_dump() | {"seed": settings.current.evaluation.seed}
    given = {name: getattr(options, name, None) for name in names}
    values = {name: theory[name] if given[name] is None else given[name] for name in names}
    try:
        frame = floor_by_degree(**values)
    except ValueError as error:
        raise UserError(str(error)) from error
    print(", ".join(f"{name} = {value:g}" for name, value in values.items()) + "\n")
    print(to_markdown(frame))


def command_restamp(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.process import as_in_a_job
    from inverse_depth.restamp import RestampError, restamp
    from inverse_depth.train import select_device

    lines: dict[Run, ProgressLine] = {}

    def progress(run: Run, step: int) -> None:
        if run not in lines:
            lines[run] = ProgressLine(f"train {run} again", run.optimization.steps)
        lines[run](step)
        if step == run.optimization.steps:
            lines[run].close()

    freshness, device = Freshness(settings, paths), select_device(settings.device)
    as_in_a_job()
    try:
        rows = restamp(freshness, options.sample, options.tolerance, device, progress)
    except RestampError as error:
        raise UserError(str(error)) from error
    append(paths.ledger, rows)
    for row in rows:
        print(
            f"{row.experiment}: {row.stage} code {row.old} → {row.new}, shown on {row.run} "
            f"(weights differ by {row.weights:.1g}, evaluation by {row.evaluation:.1g})"
        )


def command_code(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.pipeline import code_digests

    write_text(paths.code, json.dumps(code_digests(settings), indent=1) + "\n")


def command_pipeline(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    from inverse_depth.pipeline import pipeline
    from inverse_depth.report import read_captions

    captions = read_captions(paths.root / "workflow/report/captions.yaml")
    titles = {name: caption["title"] for name, caption in captions.items()}
    write_text(paths.root / "dvc.yaml", pipeline(settings, titles))


def command_bench(settings: Settings, paths: Paths, options: argparse.Namespace) -> None:
    """Times go to results/bench/, whatever the scale; the estimate is for its runs."""
    from inverse_depth.bench import estimate, goals, run_benchmarks
    from inverse_depth.figures import benchmarks, save
    from inverse_depth.process import compile_loops, keep_freed_memory

    keep_freed_memory()
    compile_loops()
    folder = paths.root / "results" / "bench"
    frame = run_benchmarks(print)
    write_text(folder / "bench.csv", frame.to_csv(index=False))
    save(benchmarks(frame), folder / "bench")
    print(frame.to_string(index=False))
    core_hours = {}
    for scale in settings.scales:
        trained = dict.fromkeys(map(trained_as, resolve_runs(settings, scale)))
        hours = estimate(list(trained))
        write_text(folder / f"estimate_{scale}.csv", hours.to_csv(index=False))
        core_hours[scale] = hours["core_seconds"].sum() / 3600
        total = f"{hours['runs'].sum()} runs, {core_hours[scale]:.2f} core hours of training"
        print(f"scale {scale}: {total}")
    table = goals(frame, core_hours)
    write_text(folder / "goals.csv", table.to_csv(index=False))
    print(table.to_string(index=False))


def parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    top = argparse.ArgumentParser(prog="inverse_depth", description=__doc__)
    top.add_argument("--params", default="params.yaml", help="settings file (%(default)s)")
    top.add_argument("--scale", help="scale to work on, instead of the settings file's")
    top.add_argument("--device", choices=["auto", "cpu", "cuda"], help="instead of the file's")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, action, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=summary, description=summary)
        command.set_defaults(action=action)
        return command

    train = add("train", command_train, "train one run; an interrupted one continues")
    train.add_argument("run", metavar="EXPERIMENT/RUN")
    train.add_argument("--identity", default="", help="digest that the run must have")
    evaluate = add("evaluate", command_evaluate, "evaluate one trained run")
    evaluate.add_argument("run", metavar="EXPERIMENT/RUN")
    evaluate.add_argument("--identity", default="", help="digest that the run must have")
    for kind, action, summary in (
        ("theory", _stamped(command_theory), "compute a file of the theory; needs no training"),
        ("data", _stamped(command_collect), "collect evaluations into one CSV"),
        ("table", _stamped(command_table), "build a table from evaluations"),
        ("figure", _stamped(command_figure), "draw a figure from evaluations"),
    ):
        names = [name for name, product in PRODUCTS.items() if product.kind == kind]
        add("collect" if kind == "data" else kind, action, summary).add_argument(
            "name", choices=names, metavar="NAME", help=", ".join(names)
        )
    tabled = [p.name for p in PRODUCTS.values() if p.kind in ("table", "comparison")]
    add("page", command_page, "turn a table into a page of the report").add_argument(
        "name", choices=tabled, metavar="NAME", help=", ".join(tabled)
    )
    compare = add("compare", _stamped(command_compare), "compare with every published number")
    compare.set_defaults(name="comparison")
    why = add("why", command_why, "say why a run or product is stale")
    why.add_argument("name", metavar="EXPERIMENT/RUN|PRODUCT")
    fit = add("fit", command_fit, "fit the power laws of an experiment's evaluated runs")
    fit.add_argument("experiment", metavar="EXPERIMENT")
    floor = add("floor", command_floor, "lowest loss of linear attention on top-k, by Monte Carlo")
    floor.add_argument("k", type=int, help="selected tokens")
    floor.add_argument("a", type=float, help="exponent of the input spectrum k^-a")
    floor.add_argument("b", type=float, help="exponent of the teacher spectrum k^-b")
    for name, meaning in (
        ("d", "dimension"),
        ("P", "context tokens"),
        ("degree", "highest polynomial degree"),
        ("contexts", "Monte Carlo contexts"),
        ("seed", "of the contexts"),
    ):
        floor.add_argument(f"--{name}", type=int, help=f"{meaning}, instead of the settings'")
    add("status", command_status, "say what is done, running, failed, stale, and the time left")
    again = add("restamp", command_restamp, "show that new code gives the recorded results")
    again.add_argument(
        "--sample",
        nargs="+",
        default=[],
        metavar="EXPERIMENT/RUN",
        help="runs to make again (default: the cheapest of each experiment)",
    )
    again.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="largest relative difference allowed (%(default)s)",
    )
    add("bench", command_bench, "time the hot paths, and estimate every scale's training")
    add("code", command_code, "write digests of the code behind each kind of result, for DVC")
    add("pipeline", command_pipeline, "write dvc.yaml as the settings ask for it")
    return top


def explained(error: OSError) -> str:
    """What to do about a file that cannot be read or written."""
    message = str(error) if error.strerror is None else error.strerror
    named = f"{error.filename}: {message}" if error.filename else message
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{named}; free some space and start again, nothing finished is lost"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{named}; make it writable for this user, or work in a copy of the project"
    return named


def main(arguments: list[str] | None = None) -> int:
    """Run a command; mistakes end with one message and an exit code that is not 0."""
    options = parser().parse_args(arguments)
    try:
        settings = load_settings(options.params, options.scale, options.device)
        options.action(settings, Paths(settings.scale), options)
    except OSError as error:
        print(f"error: {explained(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("error: interrupted; start again, and training goes on where it was", file=sys.stderr)
        return 130
    except MISTAKES as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
