"""Commands that a report prints: each can be pasted as it stands, where the page knows the files.

Sections write ANNOTATIONS for the files of the annotations, OPTIONS for how the labels were made,
and FOLDER for the folder of the report. ``summary["files"]`` has the words of the command line:

- ``folder``: the folder, as it was given
- ``name``: the command that wrote it, such as "aggregate"
- ``annotations``: files of the annotations
- ``reading``: options that read them
- ``known``: options that name known labels
- ``gold``: the option that names gold labels, which may set rows aside
- ``options``: all other options of the command, ``gold`` among them
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

STAND_INS = {
    "ANNOTATIONS": "the file of the annotations, with the options that read it",
    "OPTIONS": "the other options of the command that made this report",
    "FOLDER": "the folder of this report",
}
"""Words of commands that stand for others, and for what."""

_TAKE_STAND_INS = ("--annotations", "--model", "--out", "--tables")
"""Options whose value may be one; that of any other is a name, whatever it looks like."""


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
    for word in shlex.split(command):
        is_value = before.startswith("--") and before not in _TAKE_STAND_INS
        known = None if is_value else _words_of(word, before, files)
        if known is None:
            words.append(word)
        else:
            words += known
        before = word
    if files.get("name") and words[1:2] == ["fit"]:
        words[1] = files["name"]
    return shlex.join(words)


def _words_of(word: str, before: str, files: Mapping[str, Any]) -> list[str] | None:
    """Return what a word stands for; None if it stands for nothing, or that is not known."""
    if word == "FOLDER" and files.get("folder"):
        return [files["folder"], *(files.get("gold", ()) if before == "--model" else ())]
    if word == "OPTIONS" and "options" in files:
        return [*files["options"]]
    if word == "ANNOTATIONS" and files.get("annotations"):
        first, *others = files["annotations"]
        if before == "--annotations":  # An option, which is repeated.
            others = [each for path in others for each in (before, path)]
        return [first, *others, *files.get("reading", ()), *files.get("known", ())]
    return None


def told_of_stand_ins(commands: Sequence[str]) -> str:
    """Say what words of these commands stand for, or from where to run them; "" without any.

    Examples
    --------
    >>> told_of_stand_ins(["manyhands review a.csv"])
    'Commands name the files as you did, so run them in the same folder.'
    >>> told_of_stand_ins(["manyhands report FOLDER"])
    'In commands, FOLDER stands for the folder of this report.'
    """
    words = {word for command in commands for word in shlex.split(command)}
    if not words:
        return ""
    left = [f"{name} stands for {meant}" for name, meant in STAND_INS.items() if name in words]
    if not left:
        return "Commands name the files as you did, so run them in the same folder."
    return f"In commands, {'; '.join(left)}."
