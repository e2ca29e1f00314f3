"""Arguments, options and output of all commands: layouts, numbers, tables, JSON, progress."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from layoutalg import LayoutError, fragments
from layoutalg.errors import did_you_mean
from layoutalg.front_door import as_layout
from layoutalg.interop import Reading, read
from layoutalg.interop.registry import notation_of

Command = TypeVar("Command", bound=Callable[..., Any])
Each = TypeVar("Each")

# A name of a file or an instruction, which is no layout in any notation.
_NAME = re.compile(r"([A-Za-z~/.]|[\w-]+[./][A-Za-z])[^\[({<=\\\n]*")


def shape_of(command: str, *given: Reading) -> tuple[int, ...]:
    """Return the first shape that layouts have.

    Raises:
        LayoutError: none is known.
    """
    for each in given:
        if each.shape is not None:
            return each.shape
    raise LayoutError(f"{command}: give the shape of {given[-1].layout}, such as --shape 16,8")


class WithExamples(click.Command):
    """A command whose help ends with examples: lines of a shell."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **rest: Any) -> None:
        super().__init__(*arguments, **rest)
        self.examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, unwrapped, so that they can be copied."""
        with formatter.section("Examples"):
            for example in self.examples:
                formatter.write(f"{'':>{formatter.current_indent}}{example}\n")


def command(*examples: str) -> Callable[[Callable[..., Any]], WithExamples]:
    """Make a function a command with examples: at least one, each a line of a shell."""
    assert examples, "a command shows an example"
    return click.command(cls=WithExamples, examples=examples)


def numbers(text: str, option: str, example: str = "16,8") -> tuple[int, ...]:
    """Read ``16,8`` or ``16x8``.

    Raises:
        LayoutError: the text is no list of numbers.
    """
    parts = text.replace("x", ",").split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise LayoutError(f"{option}: must look like {example}; got {text!r}")
    return tuple(int(part) for part in parts)


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """Read ``NAME=VALUE`` options.

    Raises:
        LayoutError: one is no pair.
    """
    found = {}
    for value in values:
        name, sign, rest = value.partition("=")
        if not sign or not name.strip() or not rest.strip():
            raise LayoutError(f"{option}: must look like NAME=VALUE; got {value!r}")
        found[name.strip()] = rest.strip()
    return found


def layouts_of(values: Sequence[str]) -> dict[str, Any]:
    """Read ``--layout`` options, such as ``A=S[(2,8,4,2):(2,4@laneid,1@laneid,1)]``.

    Raises:
        LayoutError: one is no name and layout.
    """
    given = pairs(values, "--layout")
    return {role: as_layout(text, f"--layout {role}") for role, text in given.items()}


def width(dtype: str) -> str | int:
    """Return the bits that a ``--dtype`` says, or the name of a type as it is.

    >>> width("16"), width("f16")
    (16, 'f16')
    """
    return int(dtype) if dtype.isdecimal() else dtype


def given_options(names: Iterable[str]) -> list[str]:
    """Return those of some options of the command that were given on the command line."""
    source = click.get_current_context().get_parameter_source
    return [name for name in names if source(name) is ParameterSource.COMMANDLINE]


def contents(argument: str) -> tuple[str, str]:
    """Return the text of an argument and the file that it names: "" where it is the text itself.

    ``-`` is standard input; the name of a file stands for its contents.
    """
    try:
        if argument == "-":
            return sys.stdin.read(), "-"
        if "\n" not in argument and len(argument) < 256 and Path(argument).is_file():
            return Path(argument).read_text(encoding="utf-8"), argument
    except UnicodeDecodeError:
        raise LayoutError(f"{_named(argument)}: not UTF-8 text") from None
    return argument, ""


def is_name(text: str) -> bool:
    """Say whether a text can only be the name of a file or an instruction.

    >>> is_name("missing.cu"), is_name("S[8:1]")
    (True, False)
    """
    return _NAME.fullmatch(text.strip()) is not None


def one_input(*arguments: str | None) -> None:
    """Refuse standard input as more than one argument.

    Raises:
        LayoutError: ``-`` comes twice.
    """
    if arguments.count("-") > 1:
        raise LayoutError("only one argument may be -: standard input is read once")


def _named(file: str) -> str:
    return "standard input" if file == "-" else file


def layout_of(
    argument: str,
    shape: str | None = None,
    notation: str | None = None,
    unit: str | None = None,
    bits: int | None = None,
) -> Reading:
    """Read a layout in any notation, or a fragment: ``mma.m16n8k16.f16:A``.

    Args:
        argument: the layout, a file that holds it, or ``-`` for standard input.
        shape: logical extents, as written; a fragment is tiled to them.
        notation: one of ``interop.NOTATIONS``; guessed unless given.
        unit: what a swizzle of CuTe counts, "elements" or "bytes".
        bits: of an element, for the unit "bytes".

    Raises:
        LayoutError: it is no layout; the message names the file and points to the character.
    """
    extents = None if shape is None else numbers(shape, "--shape")
    text, file = contents(argument)
    named = notation is None and notation_of(text) == "fragment"
    if not (file or named) and is_name(text):
        raise LayoutError(_nothing_named(text.strip().partition(":")[0]))
    if notation is None:
        text, said = _shown(text)
        extents = extents or said
    try:
        found = read(text, notation, extents, unit, bits)
    except LayoutError as error:
        if not file:
            raise
        raise type(error)(f"{_named(file)}: {error}") from None
    return replace(found, shape=extents or found.shape)


def _nothing_named(name: str) -> str:
    """Return the message for a name of no file and no instruction, with near instructions."""
    if Path(name).is_dir():
        return f"{name} is a folder; give a layout, an instruction or a file"
    return f"no such file or instruction: {name!r}{did_you_mean(name, fragments.names())}"


def _shown(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Return layout and shape from the output of ``show --json``; other text as it is."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    if not (isinstance(record, dict) and isinstance(record.get("layout"), str)):
        return text, None
    shape = record.get("shape")
    if isinstance(shape, list) and shape and all(type(each) is int for each in shape):
        return record["layout"], tuple(shape)
    return record["layout"], None


def json_option(command: Command) -> Command:
    """Give a command the option ``--json``, in the argument ``as_json``."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return option(command)


def machine_option(command: Command) -> Command:
    """Give a command the option ``--machine``."""
    option = click.option(
        "--machine", type=click.Choice(["device", "simulator"]), help="Default: the GPU."
    )
    return option(command)


def shape_option(command: Command) -> Command:
    """Give a command the option ``--shape``."""
    text = "Logical shape, such as 16,8; a fragment is tiled to it."
    return click.option("--shape", help=text)(command)


def json_text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, indent=1, ensure_ascii=False)


def echo_json(value: Any) -> None:
    """Print a value as JSON."""
    click.echo(json_text(value))


def echo_rows(rows: Sequence[tuple[str, Any]]) -> None:
    """Print a table of two columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        for index, line in enumerate(str(value).splitlines() or [""]):
            click.echo(f"  {name if index == 0 else '':<{width}}  {line}")


@contextmanager
def progress(items: Sequence[Each], label: str) -> Iterator[Iterable[Each]]:
    """Show a progress bar where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield items
        return
    with click.progressbar(items, label=label, file=sys.stderr) as bar:
        yield bar
