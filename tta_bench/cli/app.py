"""The command line. Nothing heavy is imported before a command needs it: `--help` answers at once."""

from __future__ import annotations

import errno
import functools
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException
from typer.main import get_command

from tta_bench import __version__
from tta_bench.cli import (
    captions,
    check,
    compare,
    data,
    demo,
    leaderboard,
    new,
    pack,
    plot,
    published,
    reproduce,
    results,
    results_folder,
    run,
    runs,
    score,
    store,
    suite,
    verify,
    view,
)
from tta_bench.cli.main import INTERRUPTED, say_once
from tta_bench.cli.options import Command, complain, configured
from tta_bench.errors import Interrupted, TTABenchError

HELP_NAMES = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    help="Benchmark multi-label test-time adaptation of vision-language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP_NAMES,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "demo": demo.demo,
    "run": run.run,
    "suite": suite.suite,
    "reproduce": reproduce.reproduce,
    "leaderboard": leaderboard.leaderboard,
    "compare": compare.compare,
    "show": results.show,
    "diff": results.diff,
    "view": view.view,
    "plot": plot.plot,
    "score": score.score,
    "verify": verify.verify,
    "list": check.list_,
    "check": check.check,
    "doctor": check.doctor,
    "preview": check.preview,
    "new": new.new,
}
for name, function in COMMANDS.items():
    app.command(name, cls=Command)(function)
app.add_typer(data.app, name="data")
app.add_typer(pack.app, name="pack")
app.add_typer(captions.app, name="captions")
app.add_typer(runs.app, name="runs")
app.add_typer(store.app, name="store")
app.add_typer(results_folder.app, name="results")
app.add_typer(published.app, name="published")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    if version:
        typer.echo(f"ttabench {__version__}")
        raise typer.Exit
    _ = debug  # read from the command line in command(), so that it works behind the command's name too


@functools.cache
def commands() -> Any:
    """All of them with their options, which typer makes anew whenever it is asked."""
    return get_command(app)


def command() -> None:
    """What the command line asks for: errors that a user can mend become one line and an exit code."""
    # Two OpenMP threads that spin for each other on a busy machine encode twenty times slower; sleeping ones don't.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # must stand before torch is imported
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± should not lose the whole table for it
    for name in ("COLUMNS", "LINES"):  # some job schedulers say 0, which rich takes at its word
        if not (size := os.environ.get(name, "")).isdecimal() or int(size) < 1:
            os.environ.pop(name, None)
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    asks = {"-h", "--help", "--version"} & set(arguments)  # that must work with a broken ttabench.toml too
    try:
        defaults = {} if asks else configured(commands())
        code = commands()(arguments, prog_name="ttabench", standalone_mode=False, default_map=defaults)
        if code == Interrupted.exit_code:  # typer makes this of a KeyboardInterrupt, without a word
            say_once(lambda: complain("interrupted"))
        sys.exit(code)
    except TyperException as error:  # what the parser of the command line refuses
        if type(error).__name__ != "NoArgsIsHelpError":  # then the help has been shown
            complain(error.format_message())
        sys.exit(error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        say_once(lambda: complain("interrupted"))
        sys.exit(INTERRUPTED)
    except Interrupted:
        say_once(lambda: complain(str(Interrupted())))
        sys.exit(INTERRUPTED)
    except TTABenchError as error:
        if debug:
            raise
        complain(str(error), error.several_lines)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `ttabench … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if debug:
            raise
        complain(_in_words(error))
        sys.exit(1)


def _in_words(error: Exception) -> str:
    """Of what nobody has foreseen. The system's own errors name no file if they are about the folder or the output."""
    if isinstance(error, OSError) and not error.filename:
        try:
            Path.cwd()
        except OSError:
            return "the working folder is gone: change to one that is there"
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            return f"the output can't be written: {error.strerror}"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, ImportError):
        where = "look at the limit of memory (ulimit -v) and at the installation (pip check)"
        return f"a library can't be loaded ({error}): {where}"
    if isinstance(error, MemoryError):
        return f"there is not enough memory{f' ({error})' if str(error) else ''}: look at the limit (ulimit -v)"
    return f"unexpected {type(error).__name__}: {error} (--debug shows where)"
