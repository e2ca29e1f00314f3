"""What a cubin says of its one kernel: registers, bytes of stack, tensor-core instructions.

A cubin is an ELF file. Records of ``.nv.info`` are a format, an attribute and a size; SASS
instructions have 16 bytes, whose low 9 bits say what is done, whatever its operands are. The
numbers were read off nvdisasm and cuobjdump of CUDA 13.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

REGISTERS, FRAME = 0x2F, 0x11  # attributes of .nv.info: of a function, so many
SIZED = 4  # the format of a record with content
SASS = 16  # bytes of an instruction
PRODUCTS = {
    0x03C: "HMMA", 0x037: "IMMA", 0x03F: "DMMA", 0x07A: "QMMA",
    0x1F0: "HGMMA", 0x1F1: "IGMMA", 0x1F3: "QGMMA",
}  # fmt: skip
SHUFFLE = 0x189
LOCAL = {0x183: "LDL", 0x187: "STL"}
FMUL, FADD, FFMA = 0x020, 0x021, 0x023


@dataclass(frozen=True)
class Usage:
    """What a kernel takes: registers of a thread, bytes of its stack; and how often it does what.

    ``products``: tensor-core instructions by name; ``spills``: loads and stores of local memory;
    ``shuffles``: exchanges of a word between lanes.
    """

    registers: int
    stack: int
    products: Counter[str]
    spills: int
    shuffles: int


def usage(code: bytes) -> Usage:
    """Return what a cubin of one kernel takes."""
    done = operations(code)
    numbers = dict(_numbers(dict(_sections(code))[".nv.info"]))
    return Usage(
        numbers[REGISTERS],
        numbers[FRAME],
        Counter({name: done[each] for each, name in PRODUCTS.items() if done[each]}),
        sum(done[each] for each in LOCAL),
        done[SHUFFLE],
    )


def operations(code: bytes) -> Counter[int]:
    """Return how often a cubin of one kernel does what, by the low bits of the instructions."""
    (text,) = (data for name, data in _sections(code) if name.startswith(".text."))
    return Counter(
        struct.unpack_from("<H", text, at)[0] & 0x1FF for at in range(0, len(text), SASS)
    )


def _sections(code: bytes) -> Iterator[tuple[str, bytes]]:
    (table,) = struct.unpack_from("<Q", code, 40)
    size, count, names = struct.unpack_from("<HHH", code, 58)
    rows = [struct.unpack_from("<IIQQQQ", code, table + at * size) for at in range(count)]
    for name, kind, _, _, begin, length in rows:
        at = rows[names][4] + name
        data = b"" if kind == 8 else code[begin : begin + length]  # 8: of no bytes in the file
        yield code[at : code.index(b"\0", at)].decode(), data


def _numbers(info: bytes) -> Iterator[tuple[int, int]]:
    """Yield the attributes that are a number of a function."""
    at = 0
    while at < len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form == SIZED:
            if size == 8:
                yield attribute, struct.unpack_from("<I", info, at + 4)[0]
            at += size
