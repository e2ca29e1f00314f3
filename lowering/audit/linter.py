"""A linter of PTX operands: registers that are in the wrong order in an ``mma`` or ``ldmatrix``.

An assembler accepts any register in any position. The linter knows from the instruction's fragment
what each position takes, so it finds a register passed twice, a1 and a2 exchanged, or b1 before b0:
by the numbers in the registers' names, or by a layout or the elements that the caller gives.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from layoutalg import LayoutError, TileLayout
from layoutalg import fragments as table
from layoutalg.errors import did_you_mean, pointed
from layoutalg.fragments import Fragment
from layoutalg.fragments.fragment import LANE_DIGITS
from layoutalg.fragments.targets import has, lacking
from layoutalg.front_door import LayoutLike, as_layout
from layoutalg.sizes.dtypes import OPERANDS
from lowering.isa import grammar, ptx
from lowering.isa.grammar import Operand, Statement, Word
from lowering.isa.mma import KINDS, MMA_EXTENDED, MMA_FAMILY

VERBS = ("mma", "ldmatrix", "stmatrix", "movmatrix")
ROUNDINGS = ("rn", "rz", "rm", "rp")
SPARSE = ("sp", "sp::ordered_metadata")
SCALED_KINDS = tuple(f"kind::{word}" for word, kind in KINDS.items() if "SFA" in kind.extras)
VECTORS = ("scale_vec::1X", "scale_vec::2X", "scale_vec::4X")
SCALES = ("ue8m0", "ue4m3")
TYPES = tuple(dict.fromkeys(each.token for each in OPERANDS))
_SHAPE = re.compile(r"m\d+n\d+(k\d+)?")
_NUMBERED = re.compile(r"(.*?)(\d+)(\]?)")
_LITERAL = re.compile(r"0[xX][0-9a-fA-F]+|0|[1-9]\d*")
_WRITTEN = {
    "register": ("scalar", "vector"), "selector": ("scalar",), "selectors": ("vector",),
}  # fmt: skip
_COMPILER = re.compile(r"%[A-Za-z_]+")  # registers that a compiler numbered: %r7, %f12

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Complaint:
    """What is wrong, and the piece of the text that it is about."""

    severity: str
    rule: str
    message: str
    start: int
    end: int


@dataclass(frozen=True)
class Finding:
    """A complaint with its line and column, from 1."""

    severity: str
    rule: str
    message: str
    line: int
    column: int
    width: int
    source: str

    def __str__(self) -> str:
        """Return the message, the source line, and carets under the piece."""
        head = f"{self.line}:{self.column}: {self.severity}: {self.message} [{self.rule}]"
        place = pointed(self.source, self.column - 1, self.width, len(self.source))
        return f"{head}\n{place}"


# -- what an instruction takes --------------------------------------------------------------------


@dataclass(frozen=True)
class Signature:
    """What an instruction takes: (role, kind, registers, fragment) of each operand.

    The kind is that of an :class:`Operand`; or "register", a scalar or a vector of one; or the
    "selector" of E (a number) or "selectors" of scales (byte and thread), with the fragment of the
    operand before them.
    """

    operands: tuple[tuple[str, str, int, Fragment | None], ...]
    min_arch: str


def _at(word: Word, rule: str, message: str, severity: str = "error") -> Complaint:
    return Complaint(severity, rule, message, word.start, word.end)


def _near(text: str, known: Sequence[str]) -> str:
    return did_you_mean(text, known, 3, 0.5)


def _synchronous(statement: Statement) -> Iterator[Complaint]:
    for name in ("sync", "aligned"):
        if statement.qualifier(name) is None:
            yield _at(
                statement.verb, "qualifiers", f"{statement.verb.text} needs .{name}: .sync.aligned"
            )


def _mma_signature(statement: Statement) -> tuple[Signature | None, list[Complaint]]:
    """Return the signature of an mma, and what is wrong with its qualifiers."""
    found = list(_synchronous(statement))
    words = statement.qualifiers
    sparse, scaled = statement.qualifier(*SPARSE), statement.qualifier("block_scale")
    kind = next((word for word in words if word.text.startswith("kind::")), None)
    vectors = [word for word in words if word.text in VECTORS]
    if kind is not None and (sparse is not None or kind.text not in SCALED_KINDS):
        what = "sparse mma" if sparse is not None else "mma"
        return None, [_at(kind, "unknown", f"{what} of .{kind.text} is not checked", "note")]
    shapes = [word for word in words if _SHAPE.fullmatch(word.text)]
    sides = [word for word in words if word.text in ("row", "col")]
    types = [word for word in words if word.text in TYPES]
    extra = (
        "sync", "aligned", "xor", "and", "popc", "satfinite", *ROUNDINGS, *SPARSE,
        *SCALED_KINDS, "block_scale", *VECTORS,
    )  # fmt: skip
    for word in words:
        if word not in (*shapes, *sides, *types) and word.text not in extra:
            near = _near(word.text, ["row", "col", *TYPES, *extra])
            found.append(_at(word, "mnemonic", f"mma has no qualifier .{word.text}{near}"))
    if len(shapes) != 1:
        found.append(_at(statement.mnemonic, "mnemonic", "mma needs one shape, such as .m16n8k16"))
    if (kind is None) != (scaled is None) or (vectors and scaled is None):
        where = kind or scaled or vectors[0]
        message = "block scales need .kind::… and .block_scale, such as .kind::mxf4.block_scale"
        found.append(_at(where, "qualifiers", message))
        return None, found
    count = 4 + (scaled is not None)
    if len(types) != count or (scaled is not None and types[-1].text not in SCALES):
        have = "".join(f".{word.text}" for word in types) or "none"
        where = types[0] if types else statement.mnemonic
        wanted = "D, A, B and C, such as .f32.f16.f16.f32"
        if scaled is not None:
            wanted = "D, A, B, C and the scales, such as .f32.e2m1.e2m1.f32.ue8m0"
        found.append(_at(where, "qualifiers", f"mma needs the types of {wanted}; got {have}"))
        return None, found
    if len(shapes) != 1:
        return None, found
    d, a, b, c = types[:4]
    pair = a.text if a.text == b.text else f"{a.text}.{b.text}"
    name = f"mma.{'sp.' * (sparse is not None)}{shapes[0].text}.{pair}"
    if kind is not None:
        name = f"mma.{shapes[0].text}.{kind.text.removeprefix('kind::')}.{pair}"
        name += f".{types[4].text}" * (kind.text != "kind::mxf8f6f4")
    rows = [row for row in (*MMA_FAMILY, *MMA_EXTENDED) if row.name == name]
    if not rows and (sparse or kind):
        message = f"{name} has no row in the fragment table: not checked"
        return None, [*found, _at(statement.mnemonic, "unknown", message, "note")]
    if not rows:
        return None, [*found, _no_row(shapes[0], a, pair)]
    orders, order = dict.fromkeys(row.order for row in rows), tuple(word.text for word in sides)
    if order not in orders:
        have = "".join(f".{word.text}" for word in sides) or "none"
        where = sides[0] if sides else statement.mnemonic
        known = ", ".join(f".{one}.{other}" for one, other in orders)
        found.append(_at(where, "qualifiers", f"A and B exist as {known} alone; got {have}"))
        order = rows[0].order
    accumulators = dict.fromkeys(row.d.token for row in rows)
    if d.text not in accumulators:
        message = f"{name} accumulates in {', '.join(accumulators)}; got {d.text}"
        return None, [*found, _at(d, "qualifiers", message)]
    inst = next(row for row in rows if (row.order, row.d.token) == (order, d.text))
    if c.text != d.text:
        found.append(_at(c, "qualifiers", f"C must have D's type {d.text}; got {c.text}"))
    found.extend(_modifiers(statement, a.text, d.text))
    operands: list[tuple[str, str, int, Fragment | None]] = []
    for role in (*"DABC", *inst.extras):
        row = inst.fragment(role)
        if role not in inst.extras:
            operands.append((role, "vector", row.registers, row))
            continue
        choice = "selector" if role == "E" else "selectors"
        operands.append((role, "register", 1, row))
        operands.append((f"{choice} of {role}", choice, 1, row))
    if kind is not None:
        found.extend(_vector(statement, kind, vectors, inst.fragment("SFA")))
    first = [row for row in rows if row.modifier and statement.qualifier(row.modifier)]
    arch = first[0].min_arch if first else inst.fragment("A").min_arch
    return Signature(tuple(operands), arch), found


def _vector(
    statement: Statement, kind: Word, vectors: Sequence[Word], scales: Fragment
) -> Iterator[Complaint]:
    """Check ``scale_vec``, the scales of a row of A; only .kind::mxf4nvf4 requires it."""
    want = f"scale_vec::{scales.shape[1]}X"
    if vectors and vectors[0].text != want:
        message = f"{scales.instruction} has .{want}; got .{vectors[0].text}"
        yield _at(vectors[0], "qualifiers", message)
    if not vectors and kind.text == "kind::mxf4nvf4":
        yield _at(statement.mnemonic, "qualifiers", f".{kind.text} needs .{want}")


def _no_row(shape: Word, a: Word, pair: str) -> Complaint:
    """Say that there is no such mma; name the shapes of its types, or the types of its shape."""
    rows = (row.name for row in (*MMA_FAMILY, *MMA_EXTENDED) if not row.kind)
    names = [name.split(".", 2) for name in dict.fromkeys(rows)]
    shapes = [each for _, each, types in names if types == pair]
    if shapes:
        return _at(
            shape, "mnemonic", f"{pair} has the shapes {', '.join(shapes)}; got {shape.text}"
        )
    types = [each for _, other, each in names if other == shape.text]
    have = f"; {shape.text} takes {', '.join(types)}" if types else ""
    return _at(a, "mnemonic", f"no mma multiplies {pair.replace('.', ' by ')}{have}")


def _modifiers(statement: Statement, a: str, d: str) -> Iterator[Complaint]:
    """Check .satfinite, the rounding modes, and the bit operations of b1."""
    for name, fits, where in (
        (("satfinite",), d == "s32" and a != "b1", "integer mma"),
        (ROUNDINGS, a == "f64", "f64 mma"),
        (("xor", "and", "popc"), a == "b1", "b1 mma"),
    ):
        word = statement.qualifier(*name)
        if word is not None and not fits:
            yield _at(word, "qualifiers", f".{word.text} belongs to {where}; A is {a}")
    operation = statement.qualifier("xor", "and")
    if a == "b1" and (operation is None or statement.qualifier("popc") is None):
        yield _at(statement.mnemonic, "qualifiers", "b1 mma needs .xor.popc or .and.popc")


def _matrix_signature(statement: Statement) -> tuple[Signature | None, list[Complaint]]:
    """Return the signature of ldmatrix, stmatrix or movmatrix, and its wrong qualifiers."""
    verb = statement.verb.text
    found = list(_synchronous(statement))
    known = ["sync", "aligned", "m8n8", "trans", "b16"]
    if verb != "movmatrix":
        known += ["x1", "x2", "x4", "shared", "shared::cta"]
        known += [shape for of, shape in ptx.WIDE if of == verb]
        known += ["b8", "b8x16", "b6x16_p32", "b4x16_p64"] if verb == "ldmatrix" else ["b8"]
    for word in statement.qualifiers:
        if word.text not in known:
            message = f"{verb} has no qualifier .{word.text}{_near(word.text, known)}"
            found.append(_at(word, "mnemonic", message))
    if found and any(complaint.rule == "mnemonic" for complaint in found):
        return None, found
    shape = next((w for w in statement.qualifiers if _SHAPE.fullmatch(w.text)), None)
    count = statement.qualifier("x1", "x2", "x4")
    kinds = [w for w in statement.qualifiers if re.fullmatch(r"b\d.*", w.text)]
    missing = "shape" if shape is None else "count, .x1, .x2 or .x4" if count is None else "type"
    if shape is None or not kinds or (count is None and verb != "movmatrix"):
        message = f"{verb} needs a {missing}"
        return None, [*found, _at(statement.mnemonic, "qualifiers", message)]
    kind = ".".join(word.text for word in kinds)
    trans = statement.qualifier("trans")
    if shape.text == "m8n8":
        signature, complaints = _eight_by_eight(statement, count, kinds[0], kind, trans is not None)
    else:
        signature, complaints = _other_shape(statement, shape, count, kinds[0], kind, trans)
    if verb != "movmatrix" and statement.qualifier("shared", "shared::cta") is None:
        message = (
            "without .shared the address is a generic 64-bit one: the 32-bit offset that cvta "
            "gives needs .shared"
        )
        complaints.append(_at(statement.mnemonic, "address", message, "warning"))
    return signature, [*found, *complaints]


def _eight_by_eight(
    statement: Statement, count: Word | None, first: Word, kind: str, trans: bool
) -> tuple[Signature | None, list[Complaint]]:
    verb = statement.verb.text
    if kind != "b16":
        message = f"m8n8 moves .b16 units; got .{kind}: narrower types move in pairs, or more"
        return None, [_at(first, "qualifiers", message)]
    if verb == "movmatrix":
        if not trans:
            message = "movmatrix needs .trans"
            return None, [_at(statement.mnemonic, "qualifiers", message)]
        rows = {row.operand: row for row in table.rows("movmatrix.m8n8.trans.b16")}
        operands = tuple((role, "scalar", 1, rows[role]) for role in ("dst", "src"))
        return Signature(operands, rows["dst"].min_arch), []
    assert count is not None
    (row,) = table.rows(f"{verb}.m8n8.{count.text}{'.trans' * trans}.b16")
    return _with_address(verb, row.registers, row, row.min_arch), []


def _other_shape(
    statement: Statement,
    shape: Word,
    count: Word | None,
    first: Word,
    kind: str,
    trans: Word | None,
) -> tuple[Signature | None, list[Complaint]]:
    verb = statement.verb.text
    assert count is not None
    registers, kinds, transposes = ptx.WIDE[verb, shape.text]
    counts = {f"x{count}": words for count, words in registers.items()}
    if kind not in kinds:
        message = f"{verb}.{shape.text} moves .{', .'.join(kinds)}; got .{kind}"
        return None, [_at(first, "qualifiers", message)]
    if count.text not in counts:
        message = f"{verb}.{shape.text} takes .{', .'.join(counts)}; got .{count.text}"
        return None, [_at(count, "qualifiers", message)]
    if transposes and trans is None:
        message = f"{verb}.{shape.text} needs .trans"
        return None, [_at(shape, "qualifiers", message)]
    if trans is not None and not transposes:
        return None, [_at(trans, "qualifiers", f"{verb}.{shape.text} has no .trans")]
    return _with_address(verb, counts[count.text], None, ptx.WIDE_ARCH), []


def _with_address(verb: str, registers: int, row: Fragment | None, arch: str) -> Signature:
    address = ("address", "address", 1, None)
    if verb == "ldmatrix":
        return Signature((("dst", "vector", registers, row), address), arch)
    return Signature((address, ("src", "vector", registers, row)), arch)


# -- which register is in which position ----------------------------------------------------------


def register_text(fragment: Fragment, register: int) -> str:
    """Return the elements of a register of an operand, in the notation of the PTX ISA.

    >>> register_text(table.get("mma.m16n8k16.f16", "A"), 1)
    'row g + 8, col 2*t + 0..1'
    >>> register_text(table.get("mma.m16n8k16.f16", "B"), 1)
    'row 2*t + 8 + 0..1, col g'
    """
    pack, formula = fragment.pack, fragment.formula
    first = fragment.coords[0, register * pack : (register + 1) * pack]
    sides = []
    for at, (name, weights) in enumerate((("row", formula.row), ("col", formula.col))):
        parts = [d if w == 1 else f"{w}*{d}" for d, w in weights.items() if d in LANE_DIGITS]
        low, high = int(first[:, at].min()), int(first[:, at].max())
        parts += [str(low)] * (low > 0) + [f"0..{high - low}"] * (high > low)
        parts = parts or ["0"]
        sides.append(f"{name} {' + '.join(parts)}")
    return ", ".join(sides)


def _numbered(names: Sequence[Word]) -> tuple[str, list[int]] | None:
    """Return the common prefix and the numbers of registers; None where names imply no order."""
    found = [_NUMBERED.fullmatch(word.text) for word in names]
    parts = [(m[1], int(m[2])) for m in found if m is not None]
    if len(parts) != len(names) or len({prefix for prefix, _ in parts}) != 1:
        return None
    prefix = parts[0][0]
    return None if _COMPILER.fullmatch(prefix) else (prefix, [number for _, number in parts])


def _first(names: Sequence[Word], numbers: Sequence[int]) -> int:
    """Return the number of an operand's first register.

    Placeholders (``%4``) are numbered through all operands; other names start at a multiple of the
    operand's registers.
    """
    least = min(numbers)
    return least if names[0].text[0] in "%$" else least // len(names) * len(names)


def _span(names: Sequence[Word], places: Sequence[int]) -> Word:
    """Return the piece of text from the first to the last of some positions."""
    start, end = names[places[0]].start, names[places[-1]].end
    return Word(" " * (end - start), start)


def _repeats(role: str, names: Sequence[Word]) -> Iterator[Complaint]:
    """Find registers that an operand passes more than once."""
    seen: dict[str, int] = {}
    for place, word in enumerate(names):
        if word.text not in seen:
            seen[word.text] = place
            continue
        message = f"{role}: {word.text} is passed twice, as registers {seen[word.text]} and {place}"
        numbered = _numbered(names)
        if numbered is not None:
            prefix, numbers = numbered
            first = _first(names, numbers)
            wanted = range(first, first + len(names))
            missing = [f"{prefix}{number}" for number in wanted if number not in numbers]
            if len(missing) == 1:
                message += f"; {missing[0]} is never passed"
        yield _at(word, "repeated", message)


def _order(role: str, names: Sequence[Word], fragment: Fragment | None) -> Iterator[Complaint]:
    """Find registers that are out of the order of their numbers."""
    numbered = _numbered(names)
    if numbered is None or len(set(numbered[1])) != len(names):
        return
    wanted = sorted(range(len(names)), key=lambda place: numbered[1][place])
    wrong = [place for place, other in enumerate(wanted) if place != other]
    if not wrong:
        return
    if len(wrong) == 2:
        one, two = wrong
        message = f"{role}: {names[one].text} and {names[two].text} are exchanged"
        if fragment is not None:
            message += (
                f": register {one} takes {register_text(fragment, one)}; register {two} takes "
                f"{register_text(fragment, two)}"
            )
    else:
        order = ",".join(names[place].text for place in wanted)
        message = f"{role}: the registers are out of order: {{{order}}} is that of their numbers"
    yield _at(_span(names, wrong), "order", message)


def _by_layout(
    role: str, names: Sequence[Word], fragment: Fragment, layout: TileLayout
) -> Iterator[Complaint]:
    """Find registers that, by a layout, hold the elements of another position.

    Raises:
        LayoutError: the layout is of another size, or on other axes than laneid and m.
    """
    cells = layout.table(fragment.shape, replicas=True)
    if not set(cells) <= {"laneid", "m"}:
        raise LayoutError(f"lint: {role} lies on the axes laneid and m; got {layout}")
    copies = next((values.shape[-1] for values in cells.values()), 1)
    none = np.zeros((*fragment.shape, copies), dtype=np.int64)
    lane, slot = cells.get("laneid", none), cells.get("m", none)
    pack = min(fragment.pack, fragment.slots)
    words = -(-int(slot.max() + 1) // pack)
    held = np.full((fragment.lanes, words * pack, 2), -1, dtype=np.int64)
    inside = (lane >= 0) & (lane < fragment.lanes) & (slot >= 0)
    places = np.moveaxis(np.indices(none.shape)[:2], 0, -1)
    held[lane[inside], slot[inside]] = places[inside]
    numbered = _numbered(names)
    if numbered is None:
        yield _at(_span(names, range(len(names))), "layout", f"{role}: names need numbers", "note")
        return
    prefix, numbers = numbered
    first = _first(names, numbers)

    lanes = np.unique(fragment.layout.table(fragment.tile)["laneid"])  # no copies, where there are

    def register(number: int) -> Ints:
        return held[lanes, number * pack : (number + 1) * pack]

    for place, (word, number) in enumerate(zip(names, numbers, strict=True)):
        want = fragment.coords[lanes, place * pack : (place + 1) * pack]
        if np.array_equal(register(number - first), want):
            continue
        right = [n for n in range(words) if np.array_equal(register(n), want)]
        answer = f"{prefix}{right[0] + first} holds that" if right else "no register holds that"
        message = (
            f"{role}: register {place} takes {register_text(fragment, place)}; {word.text} holds "
            f"something else by {layout}: {answer}"
        )
        yield _at(word, "layout", message)


def _by_elements(
    role: str, names: Sequence[Word], fragment: Fragment, held: Mapping[str, tuple[int, int]]
) -> Iterator[Complaint]:
    """Find registers that hold another element than their position takes, in lane 0, low half."""
    for place, word in enumerate(names):
        want = tuple(int(v) for v in fragment.coords[0, place * fragment.pack])
        have = held.get(word.text)
        if have is None or tuple(have) == want:
            continue
        right = next((name for name, element in held.items() if tuple(element) == want), None)
        answer = f"; {right} holds that" if right is not None else ""
        message = (
            f"{role}: register {place} takes {register_text(fragment, place)}, in lane 0 element "
            f"{want}; {word.text} holds {tuple(have)}{answer}"
        )
        yield _at(word, "element", message)


def _across(operands: Mapping[str, Operand]) -> Iterator[Complaint]:
    """Find registers that two operands of an mma must not share."""
    d, a, b, c = (operands[role].names for role in "DABC")
    extra = [role for role in ("E", "SFA", "SFB") if role in operands]
    places = {word.text: place for place, word in enumerate(d)}
    for place, word in enumerate(c):
        other = places.get(word.text, place)
        if other != place:
            message = f"C: {word.text} is register {place} here, but register {other} of D"
            yield _at(word, "accumulator", message)
    pairs = [("B", "A"), ("A", "D"), ("B", "D")]
    pairs += [(role, other) for role in extra for other in "ABD"]
    for role, other_role in pairs:
        texts = {word.text for word in operands[other_role].names}
        for word in operands[role].names:
            if word.text in texts:
                message = f"{role}: {word.text} is passed in {other_role} too"
                yield _at(word, "shared", message, "warning")
    prefixes = [(_numbered(names) or ("", []))[0].strip("%$").lower() for names in (a, b)]
    if prefixes[0].startswith("b") and prefixes[1].startswith("a"):
        whole = operands["A"].whole
        message = "A and B are exchanged, by their names: the order is D, A, B, C"
        yield _at(whole, "exchanged", message)


def _check(
    statement: Statement,
    signature: Signature,
    layouts: Mapping[str, TileLayout],
    held: Mapping[str, tuple[int, int]],
) -> Iterator[Complaint]:
    """Compare the operands of a statement with its signature."""
    given, verb = statement.operands, statement.verb.text
    roles = [role for role, *_ in signature.operands]
    if len(given) != len(roles):
        message = f"{verb} takes {len(roles)} operands, {', '.join(roles)}; got {len(given)}"
        yield _at(statement.mnemonic, "count", message)
        return
    complete = True
    counts = {role: registers for role, _, registers, _ in signature.operands}
    for at, (operand, each) in enumerate(zip(given, signature.operands, strict=True)):
        role, kind, registers, fragment = each
        if operand.kind not in _WRITTEN.get(kind, (kind,)):
            example = {
                "vector": "{…}", "address": "[…]", "scalar": "one register",
                "register": "one register", "selector": "a number", "selectors": "{byte, thread}",
            }[kind]  # fmt: skip
            have = " ".join(operand.whole.text.split())
            yield _at(operand.whole, "kind", f"{role} is written as {example}; got {have}")
            complete = False
            continue
        close = {"vector": "}", "address": "]"}.get(operand.kind, "")
        if not operand.whole.text.endswith(close):
            yield _at(operand.whole, "kind", f"{role}: a closing {close} is missing")
            complete = False
            continue
        if kind == "address":
            continue
        if kind in ("selector", "selectors"):
            assert fragment is not None
            yield from _selectors(role, operand, fragment)
            continue
        names = operand.names
        if len(names) != registers:
            complete = False
            yield _at(operand.whole, "count", _count_message(role, len(names), registers, fragment))
        if role != "C":
            yield from _repeats(role, names)
        if len(names) != registers:
            continue
        layout = layouts.get(role, layouts.get("D") if role == "C" else None)
        if kind == "register" and not _is_first(given[at + 1]):
            continue  # other lanes, or other bytes, than the fragment says
        if fragment is not None and layout is not None:
            yield from _by_layout(role, names, fragment, layout)
        elif fragment is not None and any(word.text in held for word in names):
            yield from _by_elements(role, names, fragment, held)
        elif role != "C" or {w.text for w in names}.isdisjoint(w.text for w in given[0].names):
            yield from _order(role, names, fragment)
    if verb != "mma":
        return
    a, b = (len(given[roles.index(role)].names) for role in "AB")
    if (a, b) == (counts["B"], counts["A"]) and a != b:
        whole = given[roles.index("A")].whole
        yield _at(whole, "exchanged", "A and B are exchanged: the order is D, A, B, C")
    elif complete:
        yield from _across(dict(zip(roles, given, strict=True)))


def _selectors(role: str, operand: Operand, fragment: Fragment) -> Iterator[Complaint]:
    """Check the selectors of E or of scales: which lanes hold them, at which byte of a register.

    A thread selector ranges over the copies of an element in the warp, a byte selector over the
    multiples of the scales' bytes. A selector in a register is not checked.
    """
    ranges = [range(fragment.lanes * fragment.slots // int(np.prod(fragment.shape)))]
    if operand.kind == "vector":
        size = fragment.slots * fragment.bits // 8
        ranges.insert(0, range(0, 4, size))
    if len(operand.names) != len(ranges):
        yield _at(operand.whole, "count", f"{role}: a byte and a thread; got {len(operand.names)}")
        return
    for word, fits in zip(operand.names, ranges, strict=True):
        if _LITERAL.fullmatch(word.text) and int(word.text, 0) not in fits:
            message = f"{role}: must be one of {', '.join(map(str, fits))}; got {word.text}"
            yield _at(word, "selector", message)


def _is_first(selectors: Operand) -> bool:
    """Say whether selectors choose the first byte and the first lanes."""
    return all(_LITERAL.fullmatch(w.text) and not int(w.text, 0) for w in selectors.names)


def _count_message(role: str, have: int, want: int, fragment: Fragment | None) -> str:
    message = f"{role} takes {want} register{'s' * (want != 1)}; got {have}"
    if fragment is None:
        return message
    rows, cols = fragment.shape
    per = f", {fragment.pack} per register" if fragment.pack > 1 else ""
    return f"{message}: {rows}x{cols} {fragment.dtype} in {fragment.lanes} lanes{per}"


def _target(statement: Statement, signature: Signature, arch: str) -> Iterator[Complaint]:
    """Check the target: whether it has the instruction, and which addresses ldmatrix needs."""
    if not has(signature.min_arch, arch):
        message = lacking(statement.mnemonic.text, signature.min_arch, arch)
        yield _at(statement.mnemonic, "target", message)
    count = statement.qualifier("x1", "x2")
    if count is not None and statement.verb.text == "ldmatrix" and not has("sm_80", arch):
        lanes = 8 * int(count.text[1:])
        message = (
            f"on {arch} lanes {lanes}..31 need valid addresses too, although .{count.text} does "
            f"not use them: give lane l the address of lane l mod {lanes}"
        )
        yield _at(count, "address", message, "warning")


def statements(text: str) -> tuple[Statement, ...]:
    """Return the matrix instructions of a text, in order: those that are checked.

    >>> [each.verb.text for each in statements("add.f32 f0, f1, f2; movmatrix.sync.aligned d, a;")]
    ['movmatrix']
    """
    return grammar.statements(text, VERBS)


def lint(
    text: str,
    layouts: Mapping[str, LayoutLike] | None = None,
    held: Mapping[str, tuple[int, int]] | None = None,
    arch: str | None = None,
) -> tuple[Finding, ...]:
    """Return what is wrong with the matrix instructions of a text, in order.

    Args:
        text: PTX, or a source with PTX in the strings of inline assembly. Registers are named
            ``a0``, ``a[0]``, ``%4`` or ``$4``; names that a compiler numbered (``%r7``) imply no
            order.
        layouts: role ("D", "A", "B", "C", "E", "SFA", "SFB", "dst", "src") -> layout over laneid
            and m: the element of each slot m. Register n of the operand holds the slots of word n.
            It replaces the check of the numbers' order. E and scales are checked for selectors 0.
        held: register name -> element (row, col) that it holds in lane 0, low half.
        arch: a target to check, such as ``sm_80``.

    Raises:
        LayoutError: a layout of another size or on other axes, or an unknown target.

    >>> line = ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0,d1,d2,d3}, "
    ...         "{a0,a2,a1,a3}, {b0,b1}, {d0,d1,d2,d3};")
    >>> [(f.rule, f.column, f.width) for f in lint(line)]
    [('order', 70, 5)]
    >>> print(lint(line)[0].message)
    A: a2 and a1 are exchanged: register 1 takes row g + 8, col 2*t + 0..1; register 2 takes \
row g, col 2*t + 8 + 0..1
    """
    claims = {role: as_layout(given, f"lint: {role}") for role, given in (layouts or {}).items()}
    for role, claim in claims.items():
        if not isinstance(claim, TileLayout):
            raise LayoutError(f"lint: {role} must be a TileLayout; got {claim!r}")
    findings: list[Finding] = []
    for statement in statements(text):
        read = _mma_signature if statement.verb.text == "mma" else _matrix_signature
        signature, complaints = read(statement)
        if signature is not None:
            complaints.extend(_check(statement, signature, claims, held or {}))
            if arch is not None:
                complaints.extend(_target(statement, signature, arch))
        complaints.sort(key=lambda complaint: complaint.start)
        findings.extend(_located(text, complaint) for complaint in complaints)
    return tuple(findings)


def _located(text: str, complaint: Complaint) -> Finding:
    """Return a complaint with its line and column."""
    begin = text.rfind("\n", 0, complaint.start) + 1
    stop = text.find("\n", complaint.start)
    source = text[begin : len(text) if stop < 0 else stop]
    column = complaint.start - begin
    width = max(1, min(complaint.end - complaint.start, len(source) - column))
    return Finding(
        complaint.severity,
        complaint.rule,
        complaint.message,
        text.count("\n", 0, complaint.start) + 1,
        column + 1,
        width,
        source.replace("\t", " "),
    )
