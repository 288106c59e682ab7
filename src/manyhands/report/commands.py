"""Commands that people are told of: each can be pasted as it stands, where the files are known.

In a text, a command stands between backticks. Texts and sections write ANNOTATIONS for the files of
the annotations, OPTIONS for how the labels were made, and FOLDER for the folder of the report.
``summary["files"]`` has the words of the command line:

- ``folder``: the folder, as it was given
- ``name``: the command that wrote it, such as "aggregate"
- ``annotations``: files of the annotations
- ``reading``: options that read them
- ``known``: options that name known labels
- ``gold``: the option that names gold labels, which may set rows aside
- ``options``: all other options of the command, ``gold`` among them

A command that is running knows the same of itself (`manyhands.cli.reading.run_files`).
"""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

IN_TEXT = re.compile(r"`(manyhands [^`]*)`")
"""A command in a text."""

STAND_INS = {
    "ANNOTATIONS": "the file of the annotations, with the options that read it",
    "OPTIONS": "the other options of the command that made this report",
    "FOLDER": "the folder of this report",
}
"""Words of commands that stand for others, and for what."""

_TAKE_STAND_INS = ("--annotations", "--model", "--out", "--tables")
"""Options whose value may be one; that of any other is a name, whatever it looks like."""


_FAMILIES = ("--groups", "--people")
_LACK = {
    "describe": ("--known", *_FAMILIES),
    "agreement": ("--known", *_FAMILIES),
    "judges": ("--known",),
    "select": ("--known",),
}
"""Commands that lack options which others take beside the annotations."""


def fill_command(command: str, files: Mapping[str, Any] | None) -> str:
    """Return a command with the words of ``summary["files"]`` in place of its stand-ins.

    Parameters
    ----------
    command : str
        For a shell, with words of `STAND_INS`.
    files : dict, optional
        See `manyhands.report.commands`; what it lacks stays as it is.

    Returns
    -------
    str
        Quoted for a shell.

    Examples
    --------
    >>> files = {"folder": "my labels", "annotations": ["a.csv"], "reading": ["--ordered"]}
    >>> fill_command("manyhands explore FOLDER --annotations ANNOTATIONS", files)
    "manyhands explore 'my labels' --annotations a.csv --ordered"
    """
    files = files or {}
    words: list[str] = []
    before = ""
    given = shlex.split(command)
    name = given[1] if len(given) > 1 else ""
    for word in given:
        is_value = before.startswith("--") and before not in _TAKE_STAND_INS
        known = None if is_value else _words_of(word, before, files, name)
        if known is None:
            words.append(word)
        else:
            words += known
        before = word
    if files.get("name") == "select" and words[1:2] == ["fit"]:
        words[1] = "select"
    return shlex.join(words)


def files_in(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the command was given that wrote a summary; what is not known is left out."""
    data = summary.get("set_data") or {}
    if not data:
        return dict(summary.get("files") or {})
    names = {"annotations": "files", "reading": "reading", "options": "given"}
    return {name: list(data[own]) for name, own in names.items() if own in data}


def fill_commands(text: str, files: Mapping[str, Any] | None) -> str:
    """Fill in all commands of a text.

    Examples
    --------
    >>> fill_commands("Draw some: `manyhands review ANNOTATIONS`.", {"annotations": ["a.csv"]})
    'Draw some: `manyhands review a.csv`.'
    """
    return IN_TEXT.sub(lambda found: f"`{fill_command(found[1], files)}`", text)


def fill_page(page: str, files: Mapping[str, Any] | None) -> str:
    """Fill in all commands of a page of HTML, which shows them as code.

    Examples
    --------
    >>> fill_page("<p>`manyhands review ANNOTATIONS`</p>", {"annotations": ["a b.csv"]})
    '<p><code>manyhands review &#x27;a b.csv&#x27;</code></p>'
    """

    def filled(found: re.Match[str]) -> str:
        return f"<code>{html.escape(fill_command(html.unescape(found[1]), files))}</code>"

    return IN_TEXT.sub(filled, page)


def _words_of(word: str, before: str, files: Mapping[str, Any], command: str) -> list[str] | None:
    """Return what a word stands for; None if it stands for nothing, or that is not known."""
    if word == "FOLDER" and files.get("folder"):
        return [files["folder"], *(files.get("gold", ()) if before == "--model" else ())]
    if word == "OPTIONS" and "options" in files:
        return [*files["options"]]
    if word == "ANNOTATIONS" and files.get("annotations"):
        first, *others = files["annotations"]
        if before == "--annotations":  # An option, which is repeated.
            others = [each for path in others for each in (before, path)]
        options = [*files.get("reading", ()), *files.get("known", ())]
        return [first, *others, *_without(options, _LACK.get(command, ()))]
    return None


def _without(options: Sequence[str], names: Sequence[str]) -> list[str]:
    """Leave options out, each with its value."""
    before = ["", *options]
    return [
        word
        for last, word in zip(before, options, strict=False)
        if word not in names and last not in names
    ]


def told_of_stand_ins(commands: Sequence[str]) -> str:
    """Say what words of these commands stand for, or from where to run them; "" without any.

    Examples
    --------
    >>> told_of_stand_ins(["manyhands review a.csv"])
    'Run these commands in the folder where you made this report.'
    >>> told_of_stand_ins(["manyhands report FOLDER"])
    'In commands, FOLDER stands for the folder of this report.'
    """
    words = {word for command in commands for word in shlex.split(command)}
    if not words:
        return ""
    left = [f"{name} stands for {meant}" for name, meant in STAND_INS.items() if name in words]
    if not left:
        return "Run these commands in the folder where you made this report."
    return f"In commands, {'; '.join(left)}."
