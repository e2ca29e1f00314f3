"""Conversions that Triton 3.9 compiles, beside ours: counts of instructions, and time on a device.

``python -m tests.hardware.triton_conversions record tests/data/triton_conversions.json --cubins
FOLDER`` needs Triton (the extra ``oracle``) and no device. It counts what Triton's PTX takes for
each pair of layouts, less what the loads and stores around the conversion take, and keeps a cubin
of each that converts to and fro in a loop. ``… time FOLDER -o FILE`` runs those on a device beside
ours, a CTA a multiprocessor and one alone, and needs no Triton.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = Path("tests/data/triton_conversions.json")
BITS = {"f16": 16, "f32": 32, "f8E5M2": 8}
ROUNDS = 1000
TARGET = 90

# -- the pairs -------------------------------------------------------------------------------------


def pairs(gl: Any) -> Iterator[tuple[tuple[int, ...], str, Any, Any, int]]:
    """Yield shape, type, source, destination and warps; ``gl``: Gluon, which names layouts."""

    def blocked(size: Any, lanes: Any, warps: Any, order: Any) -> Any:
        return gl.BlockedLayout([*size], [*lanes], [*warps], [*order])

    def rows(vector: int, columns: int, *warps: int) -> Any:
        """Coalesced rows: a vector a thread, as many lanes as a row takes."""
        lanes = min(32, columns // vector)
        return blocked((1, vector), (32 // lanes, lanes), warps, (1, 0))

    def columns(vector: int, rows: int, *warps: int) -> Any:
        lanes = min(32, rows // vector)
        return blocked((vector, 1), (lanes, 32 // lanes), warps, (0, 1))

    def mma(*warps: int) -> Any:
        return gl.NVMMADistributedLayout([2, 0], [*warps], [16, 8])

    def wgmma(n: int, *warps: int) -> Any:
        return gl.NVMMADistributedLayout([3, 0], [*warps], [16, n, 16])

    def linear(registers: Any, lanes: Any) -> Any:
        return gl.DistributedLinearLayout(registers, lanes, [], [], [8, 16])

    operand, statistic = gl.DotOperandLayout, gl.SliceLayout
    vectors = {"f16": 8, "f32": 4, "f8E5M2": 16}
    for token, v in vectors.items():
        k = {"f16": 2, "f32": 1, "f8E5M2": 4}[token]
        # what is loaded becomes an accumulator, and an accumulator what is stored
        yield (64, 64), token, rows(v, 64, 4, 1), mma(4, 1), 4
        yield (64, 64), token, mma(4, 1), rows(v, 64, 4, 1), 4
        yield (128, 128), token, wgmma(128, 8, 1), rows(v, 128, 8, 1), 8
        yield (64, 128), token, mma(2, 2), rows(v, 128, 4, 1), 4
        yield (32, 64), token, mma(1, 2), mma(2, 1), 2
        # rows to columns
        yield (64, 64), token, rows(v, 64, 4, 1), columns(v, 64, 1, 4), 4
        yield (32, 32), token, rows(v, 32, 1, 1), columns(v, 32, 1, 1), 1
        four = blocked((1, 4), (8, 4), (1, 1), (1, 0)), blocked((4, 1), (4, 8), (1, 1), (0, 1))
        yield (16, 16), token, *four, 1
        yield (16, 64), token, mma(1, 1), rows(v // 2, 64, 1, 1), 1
        # operands
        yield (64, 64), token, mma(4, 1), operand(0, mma(4, 1), k), 4
        yield (64, 64), token, rows(v, 64, 4, 1), operand(0, mma(4, 1), k), 4
        yield (64, 64), token, rows(v, 64, 4, 1), operand(1, mma(2, 2), k), 4
        yield (64, 32), token, columns(v, 64, 1, 4), operand(1, mma(2, 2), k), 4
    yield (64, 64), "f16", wgmma(64, 4, 1), operand(0, wgmma(64, 4, 1), 2), 4
    yield (16, 32), "f16", operand(0, mma(1, 1), 2), operand(0, mma(1, 1), 4), 1
    yield (16, 32), "f8E5M2", mma(1, 1), operand(0, mma(1, 1), 4), 1
    yield (32, 16), "f16", operand(1, mma(1, 1), 2), mma(1, 1), 1
    for token in ("f32", "f16"):  # statistics of rows and columns
        yield (64,), token, statistic(1, mma(4, 1)), statistic(1, rows(4, 64, 4, 1)), 4
        yield (128,), token, statistic(1, wgmma(64, 8, 1)), blocked((1,), (32,), (8,), (0,)), 8
        over = statistic(0, rows(vectors[token], 64, 4, 1))
        yield (64,), token, over, statistic(0, mma(2, 2)), 4
        yield (16,), token, statistic(1, mma(1, 1)), statistic(0, mma(1, 1)), 1
    turned = [
        linear([[0, 1], [0, 2]], [[0, 4], [0, 8], [1, 0], [2, 0], [4, 0]]),
        linear([[1, 0], [2, 0]], [[4, 0], [0, 1], [0, 2], [0, 4], [0, 8]]),
        linear([[0, 8], [0, 4]], [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]]),
        linear([[0, 4], [4, 0]], [[0, 1], [0, 2], [1, 0], [2, 0], [0, 8]]),
    ]
    for token in vectors:  # within a warp
        for src, dst in ((0, 1), (0, 2), (2, 3), (3, 0)):
            yield (8, 16), token, turned[src], turned[dst], 1


# -- Triton's side ---------------------------------------------------------------------------------


def tensor(shape: Sequence[int], element: str, layout: str) -> str:
    """Return the type of a tensor."""
    return f"tensor<{'x'.join(map(str, shape))}x{element}, {layout}>"


def addresses(name: str, shape: Sequence[int], element: str, layout: str) -> list[str]:
    """Return the lines that point at a row-major matrix: ``%{name}_at`` from ``%{name}``."""
    lines, total, stride = [], "", 1
    for dim in reversed(range(len(shape))):
        others = [other for other in range(len(shape)) if other != dim]
        layouts = [layout]
        for other in reversed(others):
            layouts.append(f"#ttg.slice<{{dim = {other}, parent = {layouts[-1]}}}>")
        here, at = [shape[dim]], f"%{name}_range{dim}"
        kind = tensor(here, "i32", layouts[-1])
        lines.append(f"{at} = tt.make_range {{start = 0 : i32, end = {here[0]} : i32}} : {kind}")
        for k, other in enumerate(others):
            wider, into = [*here[:other], 1, *here[other:]], f"%{name}_wider{dim}_{k}"
            kinds = tensor(here, "i32", layouts[-1 - k]), tensor(wider, "i32", layouts[-2 - k])
            how = f"{{axis = {other} : i32}} : {kinds[0]} -> {kinds[1]}"
            lines.append(f"{into} = tt.expand_dims {at} {how}")
            here, at = wider, into
        kind, whole = tensor(here, "i32", layout), tensor(shape, "i32", layout)
        lines.append(f"%{name}_stride{dim} = arith.constant dense<{stride}> : {kind}")
        lines.append(f"%{name}_step{dim} = arith.muli {at}, %{name}_stride{dim} : {kind}")
        lines.append(f"%{name}_all{dim} = tt.broadcast %{name}_step{dim} : {kind} -> {whole}")
        if total:
            lines.append(f"%{name}_sum{dim} = arith.addi {total}, %{name}_all{dim} : {whole}")
        total = f"%{name}_sum{dim}" if total else f"%{name}_all{dim}"
        stride *= shape[dim]
    pointer = f"!tt.ptr<{element}>"
    kinds = tensor(shape, pointer, layout), tensor(shape, "i32", layout)
    lines.append(f"%{name}_base = tt.splat %{name} : {pointer} -> {kinds[0]}")
    lines.append(f"%{name}_at = tt.addptr %{name}_base, {total} : {kinds[0]}, {kinds[1]}")
    return lines


def module(
    shape: Sequence[int], element: str, src: str, dst: str, warps: int, loop: bool = False
) -> str:
    """Return TTGIR that loads in one layout and stores in another; or converts to and fro."""
    kinds = tensor(shape, element, src), tensor(shape, element, dst)
    pointer = f"!tt.ptr<{element}>"
    lines = addresses("src", shape, element, src)
    lines.append(f"%value = tt.load %src_at : {tensor(shape, pointer, src)}")
    there = f"ttg.convert_layout %value : {kinds[0]} -> {kinds[1]}"
    if loop:
        lines += [
            "%zero = arith.constant 0 : i32", "%one = arith.constant 1 : i32",
            "%result = scf.for %i = %zero to %n step %one iter_args(%x = %value) -> "
            f"({kinds[0]}) : i32 {{",
            f"%y = ttg.convert_layout %x : {kinds[0]} -> {kinds[1]}",
            f"%z = ttg.convert_layout %y : {kinds[1]} -> {kinds[0]}",
            f"scf.yield %z : {kinds[0]}", "}",
        ]  # fmt: skip
    elif src != dst:
        lines.append(f"%result = {there}")
    stored = src if loop else dst
    lines += addresses("dst", shape, element, stored)
    result = "%result" if loop or src != dst else "%value"
    lines.append(f"tt.store %dst_at, {result} : {tensor(shape, pointer, stored)}")
    numbers = f'"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = {warps} : i32'
    target = f'"ttg.threads-per-warp" = 32 : i32, ttg.target = "cuda:{TARGET}"'
    given = f"{pointer} {{tt.divisibility = 16 : i32}}"
    return "\n".join(
        [
            f"module attributes {{{numbers}, {target}}} {{",
            f"tt.func public @convert(%src: {given}, %dst: {given}, %n: i32) {{",
            *lines, "tt.return", "}", "}", "",
        ]
    )  # fmt: skip


def counted(ptx: str) -> collections.Counter[str]:
    """Count the instructions of a text that move data between registers, lanes and memory."""
    found: collections.Counter[str] = collections.Counter()
    for line in ptx.splitlines():
        match = re.match(r"(?:@!?%p\d+\s+)?([a-z][\w.:]*)\s", line.strip())
        if match is None:
            continue
        verb, *rest = match[1].split(".")
        if verb in ("shfl", "selp", "prmt", "movmatrix"):
            found[verb] += 1
        elif verb == "mov" and "{" in line:
            found["pack"] += 1
        elif verb in ("ldmatrix", "stmatrix"):
            found[verb] += 1
            found[f"{verb[:2]}_bytes"] += 4 * int(next(each for each in rest if each[0] == "x")[1:])
        elif verb in ("st", "ld") and "shared" in rest:
            lanes = next((int(each[1:]) for each in rest if re.fullmatch(r"v\d", each)), 1)
            found[verb] += 1
            found[f"{verb}_bytes"] += lanes * int(rest[-1][1:]) // 8
    return found


def record(out: Path, cubins: Path | None) -> None:
    """Compile every pair with Triton; write layouts and counts."""
    import triton  # type: ignore[import-not-found]
    from triton._C import libtriton  # type: ignore[import-not-found]
    from triton.backends.compiler import GPUTarget  # type: ignore[import-not-found]
    from triton.experimental.gluon import language  # type: ignore[import-not-found]

    context = libtriton.ir.context()
    libtriton.ir.load_dialects(context)
    libtriton.nvidia.load_dialects(context)
    build = libtriton.gluon_ir.GluonOpBuilder(context)
    elements = {
        "f16": build.get_half_ty(), "f32": build.get_float_ty(), "f8E5M2": build.get_fp8e5_ty()
    }  # fmt: skip

    def compiled(text: str) -> Any:
        with tempfile.NamedTemporaryFile("w", suffix=".ttgir") as file:
            file.write(text)
            file.flush()
            return triton.compile(file.name, target=GPUTarget("cuda", TARGET, 32))

    def bases(layout: Any, shape: Sequence[int]) -> str:
        linear = layout
        if not hasattr(layout, "reg_bases"):
            linear = build.to_linear_layout(layout._to_ir(build), [*shape])
        parts = {"register": linear.reg_bases, "lane": linear.lane_bases, "warp": linear.warp_bases}
        return f"#ttg.linear<{{{', '.join(f'{n} = {rows}' for n, rows in parts.items())}}}>"

    rows = []
    for number, (shape, token, src, dst, warps) in enumerate(pairs(language)):
        texts = []
        for side in (src, dst):
            kind = build.get_distributed_ty(elements[token], [*shape], side._to_ir(build))
            texts.append(str(kind)[str(kind).index("#") : -1])
        counts = counted(compiled(module(shape, token, *texts, warps)).asm["ptx"])
        for side in texts:  # what loads and stores take
            around = counted(compiled(module(shape, token, side, side, warps)).asm["ptx"])
            assert {*around} <= {"selp", "prmt", "pack"}, around
            counts = counts - around
        row = {
            "shape": shape, "type": token, "warps": warps, "src": texts[0], "dst": texts[1],
            "src_linear": bases(src, shape), "dst_linear": bases(dst, shape),
            "triton": dict(sorted(counts.items())),
        }  # fmt: skip
        rows.append(row)
        if cubins is not None:
            cubins.mkdir(parents=True, exist_ok=True)
            made = compiled(module(shape, token, *texts, warps, loop=True))
            (cubins / f"{number}.cubin").write_bytes(made.asm["cubin"])
            head = {"shared": made.metadata.shared, "warps": warps}
            (cubins / f"{number}.json").write_text(json.dumps(head))
    head = {
        "triton": triton.__version__,
        "target": f"sm_{TARGET}",
        "command": f"python -m tests.hardware.triton_conversions record {out}",
        "pairs": rows,
    }
    out.write_text(json.dumps(head, indent=1) + "\n")


# -- on a device -----------------------------------------------------------------------------------


def of_pair(row: Mapping[str, Any]) -> tuple[Any, Any, tuple[int, ...], int]:
    """Return the layouts of a pair, its shape, and the bits of an element."""
    from layoutalg.interop import LinearLayout, from_triton

    shape = tuple(row["shape"])
    src, dst = (
        from_triton(LinearLayout.parse(row[f"{side}_linear"], shape)) for side in ("src", "dst")
    )
    return src, dst, shape, BITS[row["type"]]


def ours(row: Mapping[str, Any], via: str | None = None) -> Any:
    """Return a kernel that converts to and fro in a loop, as Triton's do."""
    import lowering as lw

    src, dst, shape, bits = of_pair(row)
    k = lw.Kernel("convert", 32 * row["warps"])
    dtype = {8: "uint8", 16: "float16", 32: "float32"}[bits]
    before, after = k.param("src", shape, dtype), k.param("dst", shape, dtype)
    x = k.alloc("x", shape, dtype, layout=src)
    y = k.alloc("y", shape, dtype, layout=dst)
    count = k.scalar("n")
    k.copy(x, before)
    how = {} if via is None else {"via": via}
    with k.loop("i", count):
        k.copy(y, x, **how)
        k.copy(x, y, **how)
    k.copy(after, x)
    return k.lower()


def timed(made: Any, cells: int, size: int, arguments: int) -> dict[str, float]:
    """Return ns of one conversion: one CTA alone, and a CTA on each multiprocessor, eight times."""
    import numpy as np

    from lowering.launch.driver import DeviceMemory, Loaded, call, device, download

    found = {}
    with DeviceMemory() as memory:
        kernel = Loaded(made, device(0))
        image = np.random.default_rng(0).integers(0, 255, cells * size, np.uint8)
        given, result = memory.upload(image), memory.upload(np.zeros_like(image))
        begin, end = call("cuEventCreate", 0), call("cuEventCreate", 0)
        for name, ctas in (("alone", 1), ("full", 8 * device(0).processors)):
            times = []
            for rounds in (ROUNDS, 2 * ROUNDS):
                best = float("inf")
                for _ in range(5):
                    call("cuEventRecord", begin, 0)
                    values = (given, result, rounds, 0, 0)[:arguments]
                    pointers = len(made.params)
                    kernel.launch((ctas, 1), values[:pointers], values[pointers:], 0)
                    call("cuEventRecord", end, 0)
                    call("cuEventSynchronize", end)
                    best = min(best, call("cuEventElapsedTime", begin, end))
                times.append(best)
            found[name] = (times[1] - times[0]) * 1e6 / ROUNDS / 2
        copied = np.zeros_like(image)
        download(copied, result)
        assert np.array_equal(copied, image), "to and fro is not what was given"
    return found


def time_all(folder: Path, out: Path) -> None:
    """Time Triton's cubins and our kernels, and ours by the other means where that works."""
    from layoutalg import LayoutError, convert
    from lowering.dispatch.registry import DispatchError
    from lowering.launch.cache import Compiled, compile_body

    rows = json.loads(DATA.read_text())["pairs"]
    found = []
    for number, row in enumerate(rows):
        head = json.loads((folder / f"{number}.json").read_text())
        code = (folder / f"{number}.cubin").read_bytes()
        names = ("src", "dst", "n", "scratch", "profile")
        theirs = Compiled(names, (), 32 * head["warps"], head["shared"], (), code)
        src, dst, shape, bits = of_pair(row)
        chosen = convert(src, dst, shape, bits)
        cells = 1
        for extent in shape:
            cells *= extent
        line: dict[str, Any] = {"pair": number, "kind": chosen.kind, "price": str(chosen.price)}
        line["triton"] = timed(theirs, cells, bits // 8, 5)
        for via in (None, "shuffle", "shared"):
            try:
                body = ours(row, via).body
                made = compile_body(body, "convert", f"sm_{TARGET}a")
                line[via or "ours"] = timed(made, cells, bits // 8, 3)
            except (LayoutError, DispatchError) as error:
                line[via or "ours"] = str(error).splitlines()[0]
            if chosen.kind == "registers":
                break
        found.append(line)
        print(json.dumps(line), flush=True)
    out.write_text(json.dumps({"rows": found}, indent=1) + "\n")


def main() -> None:
    """Record or time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("record", "time"))
    parser.add_argument("path", type=Path, help="the counts to write; or the folder of cubins")
    parser.add_argument("--cubins", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("triton_conversions_time.json"))
    given = parser.parse_args()
    if given.what == "record":
        record(given.path, given.cubins)
    else:
        time_all(given.path, given.out)


if __name__ == "__main__":
    main()
