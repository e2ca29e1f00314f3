"""Evaluates the integer part of a kernel's PTX for one thread: the addresses that it touches.

Written from the PTX ISA alone. Registers hold what their width holds; floats, and what is loaded,
are not followed: a load leaves its registers unknown, and so does all that is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

STEPS = 1 << 16
STATEMENT = re.compile(r"(?:@(!?)(%p\d+) )?([a-z][\w.:]*)(?: (.*))?$")
SPECIAL = {"%tid.x": "thread", "%ctaid.x": "bx", "%ctaid.y": "by"}


def signed(value: int, bits: int) -> int:
    """Return the value that a register's bits mean with a sign."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def width(mnemonic: str) -> int:
    """Return the bits of an instruction's operands."""
    found = re.findall(r"\.[subp](?:red|(\d+))", mnemonic)
    return int(found[-1]) if found and found[-1] else 32


OPERATIONS: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "min": min,
    "max": max,
    "mov": lambda a: a,
    "neg": lambda a: -a,
    "not": lambda a: ~a,
    "div": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "rem": lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1),
}
COMPARISONS: Mapping[str, Callable[[int, int], bool]] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
    "lo": lambda a, b: a < b, "hs": lambda a, b: a >= b, "hi": lambda a, b: a > b,
    "ls": lambda a, b: a <= b,
}  # fmt: skip


@dataclass
class Thread:
    """One thread: its registers, and the (instruction, address) of each access to memory."""

    special: Mapping[str, int]
    parameters: Mapping[int, int]
    registers: dict[str, int | None] = field(default_factory=dict)
    touched: list[tuple[str, int]] = field(default_factory=list)

    def value(self, text: str, bits: int, sign: bool) -> int | None:
        """Return an operand, as the instruction reads its bits."""
        if text in SPECIAL:
            return self.special[SPECIAL[text]]
        found = self.registers.get(text) if text.startswith("%") else int(text, 0)
        if found is None:
            return None
        return signed(found, bits) if sign else found & ((1 << bits) - 1)

    def step(self, mnemonic: str, operands: Sequence[str]) -> None:
        """Run one instruction that is no branch."""
        verb, *forms = mnemonic.split(".")
        bits, sign = width(mnemonic), any(form[0] == "s" for form in forms if form[1:].isdigit())
        into = operands[0]
        if verb in ("ld", "st"):
            self.access(mnemonic, operands)
            return
        if verb == "cvt":
            target, source = forms[-2], forms[-1]
            given = self.value(operands[1], int(source[1:]), source[0] == "s")
            self.registers[into] = None if given is None else given & ((1 << int(target[1:])) - 1)
            return
        if verb == "cvta":
            self.registers[into] = self.value(operands[1], 64, False)
            return
        if verb == "selp":
            chosen = self.registers[operands[3]]
            self.registers[into] = self.value(operands[1 if chosen else 2], bits, sign)
            return
        values = [self.value(each, bits, sign) for each in operands[1:]]
        if any(value is None for value in values):
            self.registers[into] = None
            return
        known = [value for value in values if value is not None]
        if verb == "setp":
            self.registers[into] = int(COMPARISONS[forms[0]](*known[:2]))
        elif verb in ("mul", "mad"):
            product = known[0] * known[1]
            more = 0
            wide = bits * (2 if forms[0] == "wide" else 1)
            if verb == "mad":
                more = self.value(operands[3], wide, sign) or 0
            assert forms[0] in ("wide", "lo"), mnemonic
            self.registers[into] = (product + more) & ((1 << wide) - 1)
        elif verb in ("shl", "shr"):
            moved = known[0] << known[1] if verb == "shl" else known[0] >> known[1]
            self.registers[into] = moved & ((1 << bits) - 1)
        else:
            self.registers[into] = OPERATIONS[verb](*known) & ((1 << bits) - 1)

    def access(self, mnemonic: str, operands: Sequence[str]) -> None:
        """Note an access to global memory; load a parameter."""
        place = next(each for each in operands if each.startswith("["))
        inside, _, offset = place[1:-1].partition("+")
        if ".param" in mnemonic:
            index = int(inside.rsplit("_", 1)[1])
            self.registers[operands[0]] = self.parameters.get(index, 0)
            return
        address = self.value(inside, 64, False)
        assert address is not None, f"{mnemonic} {operands}: an address that is not known"
        self.touched.append((mnemonic, address + int(offset or 0)))
        for register in re.findall(r"%\w+", "" if operands[0] == place else operands[0]):
            self.registers[register] = None


def touched(
    ptx: str, parameters: Mapping[int, int], thread: int = 0, bx: int = 0, by: int = 0
) -> list[tuple[str, int]]:
    """Return (instruction, address) of every access to global memory, in order, of one thread.

    Args:
        ptx: a module of one kernel.
        parameters: the value of each parameter, by its number.
        thread: its number.
        bx: the CTA's place in the grid.
        by: likewise.
    """
    body = ptx[ptx.index("{", ptx.index(".entry")) + 1 : ptx.rindex("}")]
    lines = [each.strip() for each in re.sub(r"//[^\n]*", "", body).splitlines()]
    labels, code = {}, []
    for each in filter(None, lines):
        if each.endswith(":"):
            labels[each[:-1]] = len(code)
        elif not each.startswith("."):
            code.append(each.rstrip(";"))
    running = Thread({"thread": thread, "bx": bx, "by": by}, parameters)
    at = 0
    for _ in range(STEPS):
        if at >= len(code) or code[at] == "ret":
            return running.touched
        text, at = code[at].replace("\t", " "), at + 1
        found = STATEMENT.match(text)
        assert found is not None, text
        negated, guard, mnemonic, rest = found.groups()
        if guard and bool(running.registers[guard]) == bool(negated):
            continue
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest or "")
        if mnemonic.startswith("bra"):
            at = labels[operands[0]]
        elif not re.search(r"\.(f32|f64|b16)", mnemonic) or mnemonic[:2] in ("ld", "st"):
            running.step(mnemonic, operands)
    raise AssertionError("the kernel does not end")
