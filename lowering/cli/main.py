"""The ``layoutalg`` command: the roof over both packages. Its verbs are those of this folder."""

from __future__ import annotations

import importlib
import os
import pkgutil
from typing import Any

import click

from layoutalg import LayoutError
from lowering import cli
from lowering.cli.arguments import WithExamples


class Commands(WithExamples, click.Group):
    """A group whose commands print our errors without a traceback."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Print without colours where NO_COLOR is set, or the output is no terminal."""
        if os.environ.get("NO_COLOR"):
            extra["color"] = False
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; exit with 2 on wrong input, 1 on a failed check."""
        try:
            return super().invoke(ctx)
        except (BrokenPipeError, click.exceptions.Exit, click.Abort, click.ClickException):
            raise
        except Exception as error:
            if not _is_refusal(error):
                raise
            click.echo(f"{click.style('layoutalg:', fg='red')} {_marked(str(error))}", err=True)
            ctx.exit(2)


def _is_refusal(error: Exception) -> bool:
    """Say whether an error is about the input; the classes are imported only when one occurs."""
    if isinstance(error, (LayoutError, OSError, UnicodeDecodeError)):
        return True
    from lowering.dispatch.registry import DispatchError
    from lowering.isa.nvjitlink import AssembleError

    return isinstance(error, (AssembleError, DispatchError))


def _marked(text: str) -> str:
    """Colour the lines of carets in a message."""
    lines = text.split("\n")
    return "\n".join(click.style(x, fg="red") if set(x.strip()) == {"^"} else x for x in lines)


def _echo_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """Print the version of the installed package."""
    if not asked or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        said = f"version {version('layoutalg')}"
    except PackageNotFoundError:
        said = "not installed: run from its source, without a version"
    click.echo(f"layoutalg, {said}")
    ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=(
        "layoutalg show 'S[(2,8,4,2):(2,4@laneid,1@laneid,1)]' --shape 16,8",
        "layoutalg explain mma.m16n8k16.f16 --lane 5",
        "layoutalg draw mma.m16n8k16.f16 -o triple.svg",
    ),
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_echo_version,
    help="Show the version and exit.",
)  # fmt: skip
def main() -> None:
    """Layouts of GPU tensor cores: derive, draw, convert, lower and verify them.

    Exit codes: 0 fine; 1 a check failed, or two claims differ; 2 wrong input.
    """


for _module in pkgutil.iter_modules(cli.__path__):
    if _module.name != "main":  # this one, which may run as a script
        for _verb in vars(importlib.import_module(f"{cli.__name__}.{_module.name}")).values():
            if isinstance(_verb, WithExamples):
                main.add_command(_verb)
