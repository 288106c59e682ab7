"""What each tool's module declares: how its format is recognised, read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from manyhands.annotations import PASSES, AnnotationTable, LabelSetTable
from manyhands.io.consensus_labels import Consensus
from manyhands.io.consensus_sets import SetConsensus
from manyhands.io.exports.parsing import Document
from manyhands.io.exports.records import Asked, Gathered
from manyhands.io.exports.written import Given, ItemFields, Record

JSON, TABLE, ANY = "JSON", "table", "any"

Answers: TypeAlias = AnnotationTable | LabelSetTable
"""Type of tables of annotations: with a label each, or a set, which is a list of names."""

Inferred: TypeAlias = Consensus | SetConsensus
"""Type of inferred labels: one per instance, or a set, which is a list of names."""


@dataclass(frozen=True)
class Signature:
    """Names by which a format is recognised: of a table's columns, or of the keys of a record.

    Attributes
    ----------
    has, lacks : tuple of str
        Names that there all are, and that there are not.
    one_of : tuple of str
        Names of which there is at least one.
    starting : tuple of str
        Beginnings, with at least one of which a name begins.
    """

    has: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    starting: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()

    def __call__(self, document: Document) -> bool:
        """Return whether the names of a document are these."""
        names = document.header or document.first.keys()
        return (
            all(name in names for name in self.has)
            and not any(name in names for name in self.lacks)
            and (not self.one_of or any(name in names for name in self.one_of))
            and (not self.starting or any(name.startswith(self.starting) for name in names))
        )

    def __str__(self) -> str:
        """Say which, in words."""
        said = [" and ".join(f'"{name}"' for name in self.has)] if self.has else []
        said += [" or ".join(f'"{name}"' for name in self.one_of)] if self.one_of else []
        if self.starting:
            said.append("names that begin with " + " or ".join(f'"{n}"' for n in self.starting))
        said = [f"with {each}" for each in said] + [f'without "{name}"' for name in self.lacks]
        return ", ".join(said)


@dataclass(frozen=True)
class Format:
    """A format of exports or tables.

    Attributes
    ----------
    name, title : str
        Names for arguments, and for people.
    kind : {"JSON", "table", "any"}
    matches : Signature, or function of a document
        Whether the content is of this format; a function's docstring is the rule in words.
    read : function
    sure : bool
        If False, the content may mean something else, so the user must name the format.
    certain : function of a document, optional
        For a format that is not ``sure``, whether this document is certainly of it.
    or_else : str
        What else the user may pass if the content means something else.
    unnamed : str
        Advice on files that name no annotators, if it is specific to the format.
    is_layout : bool
        Whether it is a mere layout of labels, without times and without a question of its own. In
        such files a repeated pair is probably a mistake.
    reads_tasks : bool
        Whether its reader finds the ids that ``task=`` names; else they are fields of the items.
    keeps_first : bool
        Whether the first of an annotator's answers to an item is kept, not the last.
    headless : bool
        Whether it is a table without a header.
    keyed : bool
        Whether it is one JSON object whose members are records, so that it can be read in pieces.
    is_whole : bool
        Whether it must be read as a whole, because its columns are judged from all rows.
    """

    name: str
    title: str
    kind: str
    matches: Signature | Callable[[Document], bool]
    read: Callable[[Document, Gathered, Asked], None]
    sure: bool = True
    certain: Callable[[Document], bool] | None = None
    or_else: str = ""
    unnamed: str = ""
    is_layout: bool = False
    reads_tasks: bool = False
    keeps_first: bool = False
    headless: bool = False
    keyed: bool = False
    is_whole: bool = False

    def is_sure(self, document: Document) -> bool:
        """Return whether a document that matches can be of no other format."""
        return self.sure or (self.certain is not None and self.certain(document))

    @property
    def rule(self) -> str:
        """How it is recognised, in words: the signature, or the docstring of ``matches``."""
        if isinstance(self.matches, Signature):
            return f"{self.kind[0].upper()}{self.kind[1:]} {self.matches}"
        text = " ".join((self.matches.__doc__ or "").split()).rstrip(".")
        named, _, rule = text.removeprefix("Recognise ").partition(": ")
        return rule or named


@dataclass(frozen=True)
class Writer:
    """Writer of files for a tool to import.

    Attributes
    ----------
    name, title : str
        Names for arguments, and for people. Formats whose names begin with ``name`` hold the tool's
        own names of fields.
    suffix : str
        Suffix of its files.
    label : function of (consensus, row, fields of the items, name of the method)
        Makes the record of one instance with its label.
    annotations : function of (table, annotations by task, fields of the items), optional
        Makes the records of all annotations; None if the tool has no place for annotators.
    assigned : function of (task, annotator, expected gain, fields of the items), optional
        Makes the record of an annotation to buy; None if the tool cannot name the annotator to ask.
    no_annotators : str
        Why the tool has no place for annotators, if it has none.
    passes : tuple of str
        Kinds of passes that the tool knows; other kinds are written as one of these.
    least_certain_first : bool
        Whether labels are written with the least certain first.
    """

    name: str
    title: str
    suffix: str
    label: Callable[[Inferred, int, ItemFields, str], Record]
    annotations: Callable[[Answers, list[list[Given]], ItemFields], Iterable[Record]] | None = None
    assigned: Callable[[Any, Any, float, ItemFields], Record] | None = None
    no_annotators: str = ""
    passes: tuple[str, ...] = PASSES
    least_certain_first: bool = False

    @property
    def file(self) -> str:
        """Name of its file in a folder."""
        return f"{self.name}{self.suffix}"
