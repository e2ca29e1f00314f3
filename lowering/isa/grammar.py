"""The grammar of PTX statements: a verb, its qualifiers and its operands, each with its offset."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Word:
    """A piece of the text, and where it starts."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The offset after its last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Operand:
    """One operand: ``{…}`` is a vector, ``[…]`` an address, anything else a scalar."""

    kind: str
    whole: Word
    names: tuple[Word, ...]


@dataclass(frozen=True)
class Statement:
    """One instruction: its verb, its qualifiers, its operands."""

    verb: Word
    qualifiers: tuple[Word, ...]
    operands: tuple[Operand, ...]

    def qualifier(self, *names: str) -> Word | None:
        """Return the first qualifier of these names."""
        return next((word for word in self.qualifiers if word.text in names), None)

    @property
    def mnemonic(self) -> Word:
        """The verb with its qualifiers."""
        text = ".".join(word.text for word in (self.verb, *self.qualifiers))
        return Word(text, self.verb.start)


def _masked(text: str) -> str:
    """Blank out comments, quotes and escapes, keeping every offset.

    So PTX is read as it stands, and inside the strings of inline assembly too: the last quote there
    ends a statement.
    """

    def blank(found: re.Match[str]) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    text = re.sub(r"//[^\n]*|/\*.*?\*/", blank, text, flags=re.DOTALL)
    text = re.sub(r'"(?=\s*[:)])', ";", text)
    return re.sub(r'"|\\[nt\\]', blank, text)


def statements(text: str, verbs: Collection[str] = ()) -> tuple[Statement, ...]:
    """Return the instructions of a text, in order: those with a qualifier at least.

    Args:
        text: PTX, or a source with PTX in the strings of inline assembly.
        verbs: which instructions; in a source, where other text looks like them, they are needed.

    >>> text = "@p add.f32 f0, f1, f2; movmatrix.sync.aligned.m8n8.trans.b16 d, a;"
    >>> [statement.mnemonic.text for statement in statements(text)]
    ['add.f32', 'movmatrix.sync.aligned.m8n8.trans.b16']
    >>> [[operand.whole.text for operand in s.operands] for s in statements(text, ["movmatrix"])]
    [['d', 'a']]
    """
    masked = _masked(text)
    verb = "|".join(verbs) or r"[a-z]\w*"
    heads = list(re.finditer(rf"(?<![\w.])({verb})((?:\.[\w:]+)+)", masked))
    found = []
    for head, following in itertools.zip_longest(heads, heads[1:]):
        limit = len(masked) if following is None else following.start()
        end = masked.find(";", head.end(), limit)
        stop = limit if end < 0 else end
        qualifiers = tuple(
            Word(part[0], head.start(2) + part.start()) for part in re.finditer(r"[\w:]+", head[2])
        )
        operands = tuple(_operands(masked, head.end(), stop))
        found.append(Statement(Word(head[1], head.start()), qualifiers, operands))
    return tuple(found)


def _pieces(text: str, start: int, stop: int) -> Iterator[Word]:
    """Yield what commas outside braces and brackets separate, stripped."""
    depth, begin = 0, start
    for at in range(start, stop + 1):
        sign = text[at] if at < stop else ","
        depth += (sign in "{[") - (sign in "}]")
        if sign == "," and (depth == 0 or at == stop):
            piece = text[begin:at]
            inner = piece.strip()
            if inner:
                yield Word(inner, begin + piece.index(inner))
            begin = at + 1


def _operands(text: str, start: int, stop: int) -> Iterator[Operand]:
    for whole in _pieces(text, start, stop):
        kind = {"{": "vector", "[": "address"}.get(whole.text[0], "scalar")
        names: tuple[Word, ...] = (whole,)
        if kind == "vector":
            inner = whole.text.rstrip("}").rstrip()
            names = tuple(_pieces(text, whole.start + 1, whole.start + len(inner)))
        yield Operand(kind, whole, names)
