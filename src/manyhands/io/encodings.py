"""Finding the encoding of text files, with a note if it was assumed, and an error if several fit.

UTF-8 and UTF-16 can be recognised with certainty. Any other text is in one of the code pages in
which spreadsheet programs save CSV. Windows-1252 is by far the most common, so it is assumed unless
the text then makes no sense.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO, Final

from manyhands.exceptions import AnnotationError, raise_missing_extra

CODE_PAGES: Final = (
    "cp1252",
    "cp1250",
    "cp1251",
    "cp1253",
    "cp1254",
    "cp1257",
    "mac_roman",
    "cp850",
    "cp932",
    "gbk",
    "big5",
    "cp949",
)
"""Code pages in which Excel saves CSV, the most common first."""

MIB: Final = 2**20

LONGEST_LINE = 16 * MIB
"""Largest length of a line of a table or of JSON Lines, in characters."""

SAMPLE: Final = 2**14
"""Number of bytes of words beyond ASCII from which a code page is recognised."""

WORD: Final = re.compile(r"(?:[^\x00-\x7f]|[A-Za-z0-9'-])+")
"""Pattern of words: no ASCII punctuation except apostrophes and hyphens."""

MESS: Final = 0.15
"""Largest share of a text that charset-normalizer may find odd (its own limit is 0.2)."""

CLOSER: Final = 0.03
"""How much closer to a language another code page must be to be considered."""

ACCENTED: Final = 0.6
"""Largest share of accented letters in words that have any.

"été" has two in three, but Cyrillic read as a Latin code page has nothing else.
"""


ALPHABETS: Final = {
    "cp1252": {
        "French": "àâæçéèêëîïôœùûüÿ",
        "German": "äöüßé",
        "Spanish": "áéíñóúüªº",
        "Portuguese": "áâãàçéêíóôõúüªº",
        "Italian": "àèéìòóùíî",
        "Danish": "æøåéóäöüáô",
        "Swedish": "åäöéüà",
        "Dutch": "ëïéèöüóáêç",
        "Catalan": "àçèéíïòóúü",
        "Icelandic": "áðéíóúýþæö",
    },
    "cp1250": {
        "Polish": "ąćęłńóśźż",
        "Czech": "áčďéěíňóřšťúůýž",
        "Slovak": "áäčďéíĺľňóôŕšťúýž",
        "Hungarian": "áéíóöőúüű",
        "Romanian": "ăâîşţ",
        "Croatian": "čćđšž",
    },
    "cp1254": {"Turkish": "çğıöşüâîû"},
    "cp1257": {"Lithuanian": "ąčęėįšųūž", "Latvian": "āčēģīķļņšūž", "Estonian": "äõöüšž"},
}
"""Letters beyond ASCII of languages in Latin code pages."""

FREQUENT: Final = {
    "cp932": (((0x81, 0x83), (0x88, 0x97)), 0x40),
    "gbk": (((0xA1, 0xA3), (0xB0, 0xD7)), 0xA1),
    "big5": (((0xA1, 0xC6),), 0x40),
    "cp949": (((0xA1, 0xA3), (0xB0, 0xC8)), 0xA1),
}
"""First bytes, and smallest second byte, of the two-byte characters in daily use.

These are kana and the first level of kanji, hanzi and so on. Text of another code page has them by
chance only.
"""

DAILY: Final = 0.9
"""Smallest share of characters in daily use among the two-byte characters of a text."""

LEAST_DAILY, MANY_DAILY = 4, 10
"""Numbers of two-byte characters below which they say nothing, or little."""


@dataclass(frozen=True)
class Encoding:
    """The encoding of a file.

    Attributes
    ----------
    name : str
    note : str or None
        Message about the encoding, if it was assumed.
    doubt : bool
        Whether another encoding would fit as well, so that the note becomes a warning.
    checked : bool
        Whether all lines were read, and are text of limited length.
    """

    name: str
    note: str | None = None
    doubt: bool = False
    checked: bool = False


@dataclass
class _Scan:
    """Result of one pass over the bytes of a file."""

    is_ascii: bool = True
    valid: int | None = None
    """First line beyond ASCII that is UTF-8."""
    invalid: int | None = None
    """First line that is not UTF-8."""
    byte: int = 0
    """First byte of that line that is not UTF-8."""
    lines: list[bytes] = field(default_factory=list)


def marked_encoding(start: bytes) -> str | None:
    """Return the encoding that the first bytes tell, by a mark or by the zeros of UTF-16.

    Examples
    --------
    >>> marked_encoding("a;b".encode("utf-16-le")), marked_encoding(b"a;b")
    ('utf-16-le', None)
    """
    marks = {
        codecs.BOM_UTF8: "utf-8-sig",
        codecs.BOM_UTF32_LE: "utf-32",
        codecs.BOM_UTF32_BE: "utf-32",
        codecs.BOM_UTF16_LE: "utf-16",
        codecs.BOM_UTF16_BE: "utf-16",
    }
    for mark, name in marks.items():
        if start.startswith(mark):
            return name
    # Without a mark: in UTF-16, every second byte of a header is zero.
    even, odd = start[0:200:2], start[1:200:2]
    if len(odd) > 1 and odd.count(0) > 0.7 * len(odd) and not even.count(0):
        return "utf-16-le"
    if len(odd) > 1 and even.count(0) > 0.7 * len(even) and not odd.count(0):
        return "utf-16-be"
    return None


def find_encoding(file: IO[bytes], stated: str | None = None, *, whole: bool = True) -> Encoding:
    """Find the encoding of a text file, which is left at its beginning.

    Parameters
    ----------
    file : binary file
    stated : str, optional
        Encoding to assume if the file is neither UTF-8 nor begins with a byte order mark.
    whole : bool
        Whether to read all of the file, or only the first MiB.

    Raises
    ------
    AnnotationError
        If several encodings fit or none does, if two are mixed, or if a line is too long or holds
        NUL.
    MissingExtraError
        If the file is in a code page, and charset-normalizer is not installed.
    """
    if stated is not None:
        check_encoding(stated)
    file.seek(0)
    start = file.read(4096)
    file.seek(0)
    marked = marked_encoding(start)
    if marked is not None:
        return Encoding(marked)
    scan = _scanned(file, whole=whole)
    file.seek(0)
    if scan.invalid is None:
        return Encoding("utf-8-sig", checked=whole)
    if stated is not None:
        return Encoding(stated, checked=whole)
    if scan.valid is not None:
        raise AnnotationError(
            f"line {scan.invalid:,} is not UTF-8 text (byte {scan.byte:#04x}), but line "
            f"{scan.valid:,} is, so the file mixes two encodings. Save the whole file in UTF-8, or "
            "state the encoding of all of it, such as encoding='cp1252'"
        )
    return replace(_code_page(scan), checked=whole)


def too_long(line: int) -> AnnotationError:
    """Return the error of a line that would fill the memory."""
    return AnnotationError(
        f"line {line:,} is longer than {LONGEST_LINE // MIB} MiB, so the file is damaged, or its "
        "name is wrong. Export it again"
    )


def holds_nul(line: int) -> AnnotationError:
    """Return the error of a line with a NUL character."""
    return AnnotationError(
        f"line {line:,} holds a NUL character, so this is not a table of text: the file is "
        "damaged, or its name is wrong. Save it as UTF-8, or check its name"
    )


def check_encoding(name: str) -> str:
    """Return the name of an encoding, checked.

    Raises
    ------
    AnnotationError
        If there is no such encoding of text.
    """
    try:
        "a".encode(name)
    except (LookupError, ValueError, TypeError) as error:
        raise AnnotationError(
            f"encoding={name!r} is not an encoding; use utf-8, utf-16 or a code page, such as "
            f"{', '.join(CODE_PAGES[:4])} or mac_roman"
        ) from error
    return name


def _scanned(file: IO[bytes], *, whole: bool) -> _Scan:
    """Look for bytes that are not UTF-8, and collect words by which to recognise a code page."""
    scan, size, number = _Scan(), 0, 1
    for block in _blocks(file, whole=whole):
        if len(block) > LONGEST_LINE and b"\n" not in block and b"\r" not in block:
            raise too_long(number)
        if b"\0" in block:
            raise holds_nul(number + block.count(b"\n", 0, block.index(b"\0")))
        if block.isascii():
            number += block.count(b"\n")
            continue
        for line in block.splitlines(keepends=True):
            if not line.isascii():
                try:
                    line.decode()
                    scan.valid = scan.valid or number
                except UnicodeDecodeError as error:
                    if scan.invalid is None:
                        scan.invalid, scan.byte = number, line[error.start]
                    if size < SAMPLE:
                        scan.lines.append(_shortened(line.rstrip(b"\r\n")))
                        size += len(scan.lines[-1])
            number += line.endswith(b"\n")
    return scan


def _blocks(file: IO[bytes], *, whole: bool) -> Iterator[bytes]:
    """Yield blocks of whole lines; a line that is too long is cut."""
    rest = b""
    while block := file.read(min(MIB, LONGEST_LINE)):
        block = rest + block
        end = max(block.rfind(b"\n"), block.rfind(b"\r")) + 1
        if not end and len(block) > LONGEST_LINE:
            end = len(block)
        yield block[:end]
        rest = block[end:]
        if not whole:
            return
    yield rest


# -- code pages -----------------------------------------------------------------------------------


def _shortened(line: bytes) -> bytes:
    """Cut a long line at a separator, so that no character is cut."""
    if len(line) <= SAMPLE:
        return line
    return line[: max(line.rfind(mark, 0, SAMPLE) for mark in (b",", b";", b"\t", b" ", b'"')) + 1]


def _code_page(scan: _Scan) -> Encoding:
    """Choose the code page of lines that are not UTF-8."""
    sample = b"\n".join(dict.fromkeys(scan.lines))
    rivals, doubtful = _rivals(sample, scan.invalid)
    if len(rivals) == 1:
        shown = _words(sample.decode(rivals[0])).split("\n")[0]
        note = (
            f"read as {rivals[0]}, because it is not valid UTF-8 (line {scan.invalid:,} has "
            f"{shown[:40]!r}); if the text is garbled, state another one with encoding="
        )
        if doubtful:
            others = _choices(sample, [*rivals, *doubtful])
            del others[rivals[0]]
            read = " or ".join(f"{name!r} ({_first_words(text)})" for name, text in others.items())
            note += read
        return Encoding(rivals[0], note, doubt=bool(doubtful))
    choices = _choices(sample, rivals)
    shown = "; ".join(f"as {name}, {_first_words(text)}" for name, text in choices.items())
    raise AnnotationError(
        f"line {scan.invalid:,} is not UTF-8 text, and its encoding is unclear: it reads {shown}. "
        f"State the right one, such as encoding={next(iter(choices), CODE_PAGES[0])!r}, or save "
        "the file as UTF-8"
    )


def _words(text: str) -> str:
    """Return the distinct words that are not ASCII, one a line."""
    return "\n".join(dict.fromkeys(w for w in WORD.findall(text) if not w.isascii()))


def _rivals(sample: bytes, line: int | None) -> tuple[list[str], list[str]]:
    """Return the code pages that remain possible, and words that they read differently."""
    try:
        from charset_normalizer import from_bytes
    except ImportError as error:
        raise_missing_extra(
            f"Line {line} is not UTF-8; telling its encoding (or state it: encoding='cp1252')",
            "io",
            error,
        )
    texts = {name: _decoded(sample, name) for name in CODE_PAGES}
    daily, likely = _daily_pages(texts, LEAST_DAILY), _daily_pages(texts, 1)
    readings = {name: None if text is None else _words(text) for name, text in texts.items()}
    coherence: dict[str, float] = {}
    seen: set[str] = set()
    for name, text in readings.items():
        if text is None or text in seen or not _is_text(text):
            continue
        seen.add(text)  # A rarer code page with the same reading need not be considered.
        found = from_bytes(text.encode(name), cp_isolation=[name], threshold=MESS).best()
        if found is not None:
            coherence[name] = found.coherence
        elif name == "cp1252":  # Only Portuguese has so many accents in a row.
            coherence[name] = 0.0
    if daily and not set(coherence) & {"cp1252", "cp1251", "cp1253"}:
        return daily, []
    if "cp1252" in coherence:
        closer = [n for n, value in coherence.items() if value >= coherence["cp1252"] + CLOSER]
        is_odd = any(letter in (readings["cp1252"] or "") for letter in "þðÞÐ")
        if is_odd and "cp1254" in coherence:  # Letters of Icelandic, where Turkish has its own.
            closer.append("cp1254")
        rivals = ["cp1252", *dict.fromkeys(closer)]
        if daily and not coherence["cp1252"]:
            return [*daily, "cp1252"], []
    else:
        rivals = [name for name in coherence if name not in FREQUENT or name in likely]
        rivals = rivals or list(coherence)
    spoken = _by_language(sample, readings)
    if spoken[:1] == ["cp1252"] and rivals == ["cp1252"]:  # It is far more common than others.
        return rivals, spoken[1:]
    return (spoken or rivals), []


def _daily_pages(texts: Mapping[str, str | None], least: int) -> list[str]:
    """Return code pages in which nearly all two-byte characters are in daily use.

    If a text has many such characters, the code page with the smallest share of others is right.
    """
    found = {}
    for page, (ranges, second) in FREQUENT.items():
        codes = [c.encode(page) for c in texts[page] or "" if c.isalpha() and not c.isascii()]
        daily = sum(
            len(code) == 2
            and any(low <= code[0] <= high for low, high in ranges)
            and code[1] >= second
            for code in codes
        )
        if len(codes) >= least and daily >= DAILY * len(codes):
            found[page] = len(codes), sum(high - low for low, high in ranges)
    if found and max(found.values())[0] >= MANY_DAILY:
        return [min(found, key=lambda page: found[page][1])]
    return list(found)


def _by_language(sample: bytes, readings: Mapping[str, str | None]) -> list[str]:
    """Return the Latin code pages that have the letters of the words' language.

    The same bytes are letters of different languages in two code pages, such as ő and õ, but the
    words as a whole resemble only one of the languages.
    """
    from charset_normalizer import from_bytes

    spoken: dict[str, set[str]] = {}
    for page, languages in ALPHABETS.items():
        text = readings[page] or ""
        letters = {c for c in text.lower().replace("i̇", "i") if c.isalpha() and not c.isascii()}
        fits = {name for name, alphabet in languages.items() if letters <= set(alphabet)}
        is_other = page == "cp1252" or text != readings["cp1252"]
        if letters and fits and is_other and _is_text(text):
            spoken[page] = fits
    near: dict[str, float] = {}
    for page, names in spoken.items():
        found = from_bytes(sample, cp_isolation=[page]).best()
        shares = dict(found._languages) if found is not None else {}
        near[page] = max((shares.get(name, 0.0) for name in names), default=0.0)
    return [page for page, value in near.items() if value > max(near.values()) - CLOSER]


def _choices(sample: bytes, names: Iterable[str]) -> dict[str, str]:
    """Return the distinct readings of a sample, by the code pages that can read it."""
    found: dict[str, str] = {}
    for name in names or CODE_PAGES:
        text = _decoded(sample, name)
        words = "" if text is None else _words(text)
        if words and words not in found.values() and len(found) < 5:
            found[name] = words
    return found


def _first_words(text: str) -> str:
    return ", ".join(repr(word[:30]) for word in text.split("\n")[:2])


def _decoded(sample: bytes, name: str) -> str | None:
    try:
        return sample.decode(name)
    except UnicodeDecodeError:
        return None


def _is_text(text: str) -> bool:
    """Return whether words look real: no symbol between letters, one script, few accents."""
    accented = latin = 0
    for word in text.split("\n"):
        letters = [c for c in word if c.isalpha()]
        scripts = {_script(c) for c in letters}
        if len(scripts) > 1 or any(unicodedata.category(c)[0] == "C" for c in word):
            return False
        if scripts != {"CJK"} and any(map(_is_odd, " " + word, word, word[1:] + " ")):
            return False
        if scripts == {"LATIN"} and len(letters) > 1 and not word.isascii():
            latin += len(letters)
            accented += sum(not c.isascii() for c in letters)
    return accented <= ACCENTED * latin


def _is_odd(before: str, mark: str, after: str) -> bool:
    """Return whether a character beyond ASCII hardly ever stands between these two."""
    if mark.isascii() or not after.isalpha():
        return False
    if not before.isalpha():
        return mark in "£¥¤¢²³¹¨¯¸"
    kind = unicodedata.category(mark)
    if mark.isalpha():
        return mark in "ªº" or (mark.isupper() and after.islower())
    return kind[0] in "SN" or (kind[0] == "P" and mark not in "’‐–—·")


def _script(letter: str) -> str:
    name = unicodedata.name(letter, "?").split(" ")[0].split("-")[0]
    return "CJK" if name in ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH", "FULLWIDTH") else name
