"""The program: its commands by name. A command's module is imported when the command is run, or asked for its help."""

import sys
from collections.abc import Sequence
from pathlib import Path

from cyclopts import App, CycloptsError, Group, Parameter

from editjudge.core import portable
from editjudge.core.main import guarded
from editjudge.core.params import known, load

CHECKOUT = Path(__file__).parents[3]  # if the code lies in one; tools/ is no part of the package
COMMANDS: dict[str, dict[str, list[str]]] = load(Path(__file__).with_name("commands.yaml"))
if (CHECKOUT / "tools/plan.py").is_file():
    sys.path.append(str(CHECKOUT))
else:
    for commands in COMMANDS.values():
        for name in [name for name, (where, _) in commands.items() if where.startswith("tools.")]:
            del commands[name]


def program() -> App:
    """The program without any of its commands' modules."""
    app = App(
        name="editjudge",
        help="Judge image edits: what else did an edit change? Each command has a --help of its own.",
        default_parameter=Parameter(negative=(), consume_multiple=True),
        help_format="plaintext",
        help_formatter="default" if sys.stdout.isatty() else "plain",
        group_parameters=Group("Options", sort_key=99),
    )
    for number, (title, commands) in enumerate(COMMANDS.items()):
        group = Group(title, sort_key=number)
        for name, (where, text) in commands.items():
            where = where if where.startswith("tools.") else f"editjudge.cli.{where}"
            app.command(where, name=name, help=text, group=group)
    app.register_install_completion_command()
    return app


def main(words: Sequence[str] | None = None) -> None:
    """Runs a command. A mistake of the user ends it with one line and status 1, wrong options with status 2."""
    portable.set_up()  # before a command imports NumPy
    words = sys.argv[1:] if words is None else words
    name = words[0] if words and not words[0].startswith("-") else "editjudge"
    names = {"editjudge", *(command for commands in COMMANDS.values() for command in commands)}
    try:
        if name not in names:
            raise CycloptsError(msg=f"there is no such command; {known(name, sorted(names - {'editjudge'}))}")
        command, given, _ = program().parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        print(f"{name}: {' '.join(str(error).split())} (--help says what there is)", file=sys.stderr)
        sys.exit(2)
    guarded(name, lambda: command(*given.args, **given.kwargs))
