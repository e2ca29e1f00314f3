"use strict";
// The explorer: evaluates layouts (from their text) and the operations of lowered programs (from
// JSON rows), so that a page carries no table. Parts: text -> layout; layout -> owners; owners ->
// grid; operations -> data flow; panels on canvas; the page. Text is shown as text, never as HTML.

const WARP = 32;
const MOST_CELLS = 1 << 18; // of a grid of lanes × registers, or of memory
const MOST_TOLD = 64; // owners of an element, and registers of a lane, that are listed
const MOST_MOVES = 1 << 20; // per-thread moves of a program that are followed

// -- text -> layout -----------------------------------------------------------------------------

class Refusal extends Error {
  /** A message for the reader; `at` is the offset in the text that it is about. */
  constructor(words, at = null, field = "text") {
    super(words);
    Object.assign(this, { at, field });
  }
}

const TOKEN =
  /\s*(?:(?<number>\d+)|(?<name>[\p{L}_][\p{L}\p{N}_]*)|(?<string>"[^"]*"|'[^']*')|(?<op>\*\*|\/\/|[-+*%@:,()[\]=]))/uy;

function tokensOf(text) {
  const tokens = [];
  const end = text.trimEnd().length;
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < end) {
    const at = TOKEN.lastIndex;
    const found = TOKEN.exec(text);
    if (!found) {
      const start = at + text.slice(at).search(/\S/);
      const sign = String.fromCodePoint(text.codePointAt(start));
      throw new Refusal(`the character '${sign}' has no place here`, start);
    }
    const [kind, value] = Object.entries(found.groups).find((group) => group[1] !== undefined);
    tokens.push({ kind, value, at: TOKEN.lastIndex - value.length });
  }
  tokens.push({ kind: "end", value: "", at: end });
  return tokens;
}

function exact(value, at) {
  if (!Number.isSafeInteger(value)) throw new Refusal("the explorer counts up to 2**53", at);
  return value;
}

const modulo = (value, by) => value - Math.floor(value / by) * by;

/** The edit distance of two words. */
function distance(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, j) => j);
  for (let i = 1; i <= one.length; i++) {
    const next = [i];
    for (let j = 1; j <= other.length; j++) {
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, row[j - 1] + (one[i - 1] !== other[j - 1]));
    }
    row = next;
  }
  return row[other.length];
}

/** Reads what layoutalg.parse reads, with numbers for sizes, and ComposeLayout(...). */
class LayoutReader {
  constructor(text, axes) {
    this.tokens = tokensOf(text);
    this.axes = axes;
    this.next = 0;
    this.depth = 0;
  }

  get token() {
    const { kind, value } = this.tokens[this.next];
    return kind === "string" ? "" : value;
  }

  get at() {
    return this.tokens[this.next].at;
  }

  take() {
    return this.tokens[this.next++].value;
  }

  found() {
    const { kind, value } = this.tokens[this.next];
    return kind === "end" ? "found the end" : `found '${value}'`;
  }

  expect(value) {
    if (this.token !== value) throw new Refusal(`expected '${value}', ${this.found()}`, this.at);
    this.take();
  }

  whole() {
    if (this.token !== "ComposeLayout") return this.layout([""]);
    const at = this.at;
    this.take();
    this.expect("(");
    const [per, len, atom] = [0, 1, 2].map(() => {
      const value = this.size(this.sum(), this.at);
      this.expect(",");
      return value;
    });
    const tile = this.layout([",", ")"]);
    let inner = true;
    if (this.token === ",") {
      this.take();
      for (const word of ["swizzle_inner", "="]) this.expect(word);
      if (!["True", "False"].includes(this.token)) this.expect("True");
      inner = this.take() === "True";
    }
    this.expect(")");
    if (this.token !== "") throw new Refusal(`expected the end, ${this.found()}`, this.at);
    if (Math.min(per, len, atom) < 0 || atom < len) {
      throw new Refusal("a swizzle needs three lengths from 0 on, the second at most the third", at);
    }
    const names = new Set([...tile.shard.map((it) => it.axis), ...tile.offset.keys()]);
    if (names.size !== 1 || !names.has("m")) {
      throw new Refusal("a swizzle permutes addresses: its tile must lie on axis m alone", at);
    }
    return { ...tile, swizzle: { per, len, atom, inner } };
  }

  layout(ends) {
    const made = { shard: null, replica: null, offset: new Map(), swizzle: null };
    for (;;) {
      const at = this.at;
      const letter = this.token;
      if ((letter === "S" || letter === "R") && this.tokens[this.next + 1].value === "[") {
        const part = letter === "S" ? "shard" : "replica";
        if (made[part]) throw new Refusal(`there can be one ${letter}[...]`, at);
        made[part] = this.bracket();
      } else {
        const value = this.product();
        const terms = typeof value === "number" ? new Map([["m", value]]) : value.terms;
        if (!terms) throw new Refusal("an offset is n or n @ axis", at);
        for (const [axis, step] of terms) {
          made.offset.set(axis, exact((made.offset.get(axis) ?? 0) + step, at));
        }
      }
      if (ends.includes(this.token) && (this.token || this.tokens[this.next].kind === "end")) break;
      this.expect("+");
    }
    if (!made.shard && !made.replica) {
      throw new Refusal("a layout has S[...] or R[...], such as S[8:1]", 0);
    }
    return { ...made, shard: made.shard ?? [], replica: made.replica ?? [] };
  }

  bracket() {
    const letter = this.take();
    const open = this.at;
    this.expect("[");
    const sizes = this.elements(letter);
    let strides = null;
    if (this.token === ":") {
      this.take();
      strides = this.elements(letter);
    }
    this.expect("]");
    const extents = sizes.map((size) => {
      if (typeof size.value !== "number" || size.value < 1) {
        throw new Refusal(`${letter}[...]: an extent is a number from 1 on`, size.at);
      }
      return size.value;
    });
    if (!strides) {
      let dense = extents.reduce((all, extent) => exact(all * extent, open), 1);
      return extents.map((extent) => ({ extent, stride: (dense /= extent), axis: "m" }));
    }
    if (strides.length !== extents.length) {
      throw new Refusal(
        `${letter}[...]: needs one stride per extent; got ${extents.length} extents and ` +
          `${strides.length} strides`,
        open,
      );
    }
    return strides.map((stride, i) => ({ extent: extents[i], ...this.stride(stride, letter) }));
  }

  stride({ value, at }, letter) {
    if (typeof value === "number") return { stride: value, axis: "m" };
    if (typeof value === "string") return { stride: 1, axis: this.axis(value, at) };
    if (value.terms && value.terms.size === 1) {
      const [[axis, stride]] = value.terms;
      return { stride, axis };
    }
    const pair = value.length === 2 ? value.map((each) => each.value) : [];
    if (typeof pair[0] === "number" && typeof pair[1] === "string") {
      return { stride: pair[0], axis: this.axis(pair[1], at) };
    }
    throw new Refusal(`${letter}[...]: a stride is n or n @ axis, on one axis`, at);
  }

  elements(letter) {
    const before = this.tokens[this.next - 1].value;
    const at = this.at;
    const found = this.several("]");
    if (!found.length || (found.length > 1 && [this.token, before].includes(":"))) {
      throw new Refusal(
        `put the extents in one tuple and the strides in another, as ${letter}[(8, 4) : (4, 1)]`,
        at,
      );
    }
    return found.length === 1 && Array.isArray(found[0].value) ? found[0].value : found;
  }

  several(close) {
    const found = [];
    while (this.token !== close) {
      const at = this.at;
      found.push({ value: this.sum(), at });
      if (this.token !== ",") break;
      this.take();
    }
    return found;
  }

  sum() {
    let value = this.product();
    while (this.token === "+" || this.token === "-") {
      const at = this.at;
      const sign = this.take();
      const right = this.product();
      if (sign === "+" && (value.terms || right.terms)) {
        const total = new Map();
        for (const side of [value, right]) {
          for (const [axis, step] of side.terms ?? [["m", this.size(side, at)]]) {
            total.set(axis, exact((total.get(axis) ?? 0) + step, at));
          }
        }
        value = { terms: total };
      } else {
        const step = this.size(right, at);
        value = exact(this.size(value, at) + (sign === "+" ? step : -step), at);
      }
    }
    return value;
  }

  product() {
    let value = this.signed();
    while (["*", "//", "%", "mod", "@"].includes(this.token)) {
      const at = this.at;
      const sign = this.take();
      const left = this.size(value, at);
      const place = this.at;
      if (sign === "@") {
        if (this.tokens[this.next].kind === "name") {
          value = { terms: new Map([[this.axis(this.take(), place), left]]) };
          continue;
        }
        const name = this.signed();
        if (typeof name !== "string") throw new Refusal("expected the name of an axis", place);
        value = { terms: new Map([[this.axis(name, place), left]]) };
        continue;
      }
      const right = this.size(this.signed(), at);
      if (sign === "*") value = exact(left * right, at);
      else if (right === 0) throw new Refusal("division by zero", place);
      else value = sign === "//" ? Math.floor(left / right) : modulo(left, right);
    }
    return value;
  }

  signed() {
    const at = this.at;
    if (this.token === "-") {
      this.take();
      return -this.nested(() => this.size(this.signed(), at)) || 0;
    }
    const base = this.atom();
    if (this.token !== "**") return base;
    this.take();
    const exponent = this.size(this.atom(), at);
    if (exponent < 0 || exponent > 64) {
      throw new Refusal("an exponent must be a number from 0 to 64", at);
    }
    return exact(this.size(base, at) ** exponent, at);
  }

  atom() {
    const { kind, at } = this.tokens[this.next];
    if (this.token === "(" || this.token === "[") {
      return this.nested(() => {
        const close = this.take() === "(" ? ")" : "]";
        const found = this.several(close);
        const comma = this.tokens[this.next - 1].value === ",";
        this.expect(close);
        return found.length === 1 && close === ")" && !comma ? found[0].value : found;
      });
    }
    if (kind === "number") return exact(Number(this.take()), at);
    if (kind === "string") return this.take().slice(1, -1);
    if (kind === "name") {
      const name = this.take();
      if (Object.hasOwn(this.axes, name)) return name;
      throw new Refusal(`${name} is no axis and has no value: ${this.advice(name)}`, at);
    }
    throw new Refusal(`expected a number or a name, ${this.found()}`, at);
  }

  axis(name, at) {
    if (Object.hasOwn(this.axes, name)) return name;
    throw new Refusal(`no axis is named '${name}': ${this.advice(name)}`, at);
  }

  advice(name) {
    const near = Object.keys(this.axes).filter((axis) => axis.length > 3 && distance(axis, name) < 3);
    return near.length ? `did you mean ${near.join(", ")}?` : "write a number";
  }

  nested(read) {
    if (this.depth === 50) throw new Refusal("brackets and signs nest at most 50 deep", this.at);
    this.depth += 1;
    const value = read();
    this.depth -= 1;
    return value;
  }

  size(value, at) {
    if (typeof value !== "number") throw new Refusal("a number is needed here", at);
    return value;
  }
}

function parseLayout(text, axes) {
  return new LayoutReader(text, axes).whole();
}

// -- layout -> owners ---------------------------------------------------------------------------

const sizeOf = (iters) => iters.reduce((all, it) => exact(all * it.extent), 1);

function swizzled(address, { per, len, atom, inner }) {
  if (per + atom + len < 31 && Math.abs(address) < 2 ** 30) {
    const x = address >> per;
    const mask = (1 << len) - 1;
    const moved = inner ? (x >> atom) & mask : (x & mask) << atom;
    return ((x ^ moved) << per) + (address & ((1 << per) - 1));
  }
  const [p, a, wide] = [BigInt(per), BigInt(atom), BigInt(address)];
  const x = wide >> p;
  const mask = (1n << BigInt(len)) - 1n;
  const moved = inner ? (x >> a) & mask : (x & mask) << a;
  return exact(Number(((x ^ moved) << p) + (wide & ((1n << p) - 1n))));
}

/** The coordinates of every owner, by axis: entry e * copies + c is copy c of element e. */
function tableOf(layout, most) {
  const count = sizeOf(layout.shard);
  const copies = sizeOf(layout.replica);
  if (count > most.elements || count * copies > most.owners) {
    throw new Refusal(
      `the layout has ${count} elements of ${copies} owners each; the explorer shows ` +
        `${most.elements} elements and ${most.owners} owners`,
    );
  }
  const iters = [...layout.shard, ...layout.replica];
  const ordered = [...layout.shard.map((it) => it.axis), ...layout.offset.keys()];
  const axes = [...new Set([...ordered, ...layout.replica.map((it) => it.axis)])];
  const values = {};
  for (const axis of axes) {
    let steps = [layout.offset.get(axis) ?? 0];
    for (const it of iters) {
      const stride = it.axis === axis ? it.stride : 0;
      const longer = new Float64Array(steps.length * it.extent);
      let at = 0;
      for (const step of steps) {
        for (let digit = 0; digit < it.extent; digit++) longer[at++] = exact(step + digit * stride);
      }
      steps = longer;
    }
    values[axis] = Float64Array.from(steps);
  }
  if (layout.swizzle) values.m = values.m.map((address) => swizzled(address, layout.swizzle));
  return { count, copies, axes, values };
}

/** Rows and columns of a layout without a shape: near to square. */
function shapeFor(layout) {
  const size = sizeOf(layout.shard);
  if (layout.swizzle) {
    const line = 2 ** (layout.swizzle.per + layout.swizzle.atom);
    if (size > line && size % line === 0) return [size / line, line];
  }
  const cuts = [];
  let rows = 1;
  for (const it of layout.shard) {
    cuts.push(rows);
    rows *= it.extent;
  }
  cuts.push(rows);
  if (layout.shard.length === 1) {
    for (let cut = 1; cut * cut <= size; cut++) if (size % cut === 0) cuts.push(cut);
  }
  const skew = (cut) => Math.max(cut, size / cut);
  cuts.sort((a, b) => skew(a) - skew(b) || b - a);
  return [cuts[0], size / cuts[0]];
}

const THREADS = { thread: 1, warp: WARP, warpgroup: 4 * WARP, cta: Infinity };
const LETTER = { thread: "T", warp: "W", warpgroup: "G" };

/** The owners of each element: coordinates on thread and memory axes, lane, warp and colour. */
function ownersOf(layout, doc) {
  const table = tableOf(layout, doc.most);
  const size = table.count * table.copies;
  const threads = table.axes
    .filter((axis) => doc.axes[axis])
    .map((axis) => ({ axis, subscope: doc.axes[axis][0], scope: doc.axes[axis][1] }))
    .sort((a, b) => THREADS[b.subscope] - THREADS[a.subscope]);
  const memory = table.axes.filter((axis) => !doc.axes[axis]);
  if (!table.axes.length) {
    memory.push("m");
    table.values.m = new Float64Array(size);
  }
  let lane = null;
  let warp = null;
  for (const { axis, subscope, scope } of threads) {
    if (subscope === "cta") continue;
    const all = table.values[axis];
    let part = subscope === "warpgroup" ? all.map((value) => value * 4) : all;
    if (subscope === "thread") {
      lane = scope === "warp" ? all : all.map((value) => modulo(value, WARP));
      part = all.map((value) => (scope === "warp" ? 0 : Math.floor(value / WARP)));
    }
    warp = warp ? warp.map((value, o) => value + part[o]) : part;
  }
  const top = (all) => all.reduce((most, value) => Math.max(most, value), -Infinity);
  if (warp && lane && top(warp) === 0) warp = null;
  const owners = { ...table, size, threads, memory, lane, warp };
  owners.hue = warp && (!lane || warp.some((each) => each !== warp[0])) ? "warp"
    : lane ? "group"
    : threads.length ? "block"
    : layout.swizzle ? "chunk"
    : "memory";
  owners.low = memory.length ? -top(table.values[memory[0]].map((value) => -value)) : 0;
  owners.high = memory.length ? top(table.values[memory[0]]) + 1 : 1;
  owners.fill = Uint8Array.from({ length: size }, (_, o) => fillOf(owners, layout, doc, o));
  return owners;
}

function fillOf(owners, layout, doc, o) {
  const hue = (number) => doc.warpHues[modulo(number, doc.warpHues.length)] * 4;
  if (owners.hue === "warp") {
    return hue(owners.warp[o]) + (owners.lane ? modulo(Math.floor(owners.lane[o] / 8), 4) : 0);
  }
  if (owners.hue === "group") return modulo(owners.lane[o], WARP);
  if (owners.hue === "block") return hue(owners.values[owners.threads[0].axis][o]);
  const address = owners.values[owners.memory[0]][o];
  if (owners.hue === "chunk") return modulo(Math.floor(address / 2 ** layout.swizzle.per), 8) * 4;
  return Math.floor(((address - owners.low) * WARP) / (owners.high - owners.low));
}

/** The number of an owner's thread, 32 * warp + lane; null where no axis counts threads. */
function threadOf(owners, o) {
  return owners.lane ? owners.lane[o] + (owners.warp ? WARP * owners.warp[o] : 0) : null;
}

function threadName(owners, o) {
  return owners.threads
    .map(({ axis, subscope }) => `${LETTER[subscope] ?? axis}${owners.values[axis][o]}`)
    .join("");
}

/** The name of a register (as in the PTX ISA where the space has its letter) or an address. */
function slotName(space, slot) {
  if (!space.dotted) return `${space.letter ?? ""}${slot}`;
  const word = Math.floor(slot / space.pack);
  return space.pack > 1 ? `r${word}.${modulo(slot, space.pack)}` : `r${word}`;
}

function memoryName(space, o) {
  const { memory, values } = space.owners;
  return memory
    .map((axis, n) => (n ? `${axis}${values[axis][o]}` : slotName(space, values[axis][o])))
    .join(" ");
}

/** The distinct owners of an element; first the one that is no replica. */
function ownersAt(owners, element) {
  const seen = new Set();
  const found = [];
  for (let o = element * owners.copies; o < (element + 1) * owners.copies; o++) {
    const key = owners.axes.map((axis) => owners.values[axis][o]).join();
    if (!seen.has(key)) found.push(o);
    seen.add(key);
  }
  return found;
}

// -- owners -> grid -----------------------------------------------------------------------------

/** Lists that share one array: `of(i)` are the values that were put under i. */
class Lists {
  constructor(length, keys, values) {
    this.start = new Int32Array(length + 1);
    for (const key of keys) this.start[key + 1] += 1;
    for (let i = 0; i < length; i++) this.start[i + 1] += this.start[i];
    this.values = new Int32Array(keys.length);
    const next = this.start.slice();
    keys.forEach((key, n) => (this.values[next[key]++] = values[n]));
  }

  of(i) {
    return this.values.subarray(this.start[i], this.start[i + 1]);
  }
}

/** Number the distinct coordinates on some axes, sorted; `of` has the number of each owner. */
function ranked(owners, axes) {
  const keys = Array.from({ length: owners.size }, (_, o) => axes.map((a) => owners.values[a][o]).join());
  const first = new Map();
  keys.forEach((key, o) => first.has(key) || first.set(key, o));
  const order = [...first.values()].sort((a, b) => {
    const axis = axes.find((each) => owners.values[each][a] !== owners.values[each][b]);
    return axis ? owners.values[axis][a] - owners.values[axis][b] : 0;
  });
  const rank = new Map(order.map((o, n) => [keys[o], n]));
  return { order, of: keys.map((key) => rank.get(key)) };
}

/** What holds the elements of a space, as a grid: threads × registers, or lines of memory. */
function placesOf(space) {
  const { owners } = space;
  let [rowAxes, columnAxes] = [owners.threads.map((each) => each.axis), owners.memory];
  let grid;
  if (!rowAxes.length && columnAxes.length === 1) {
    const line = lineOf(space);
    const all = owners.values[columnAxes[0]];
    const lines = [...new Set(Array.from(all, (value) => Math.floor(value / line)))];
    lines.sort((a, b) => a - b);
    const rank = new Map(lines.map((each, n) => [each, n]));
    grid = {
      rows: lines.length,
      columns: line,
      cells: Array.from(all, (v) => rank.get(Math.floor(v / line)) * line + modulo(v, line)),
      rowName: (row) => String(lines[row] * line),
      columnName: (column) => String(column),
    };
  } else {
    if (!rowAxes.length) [rowAxes, columnAxes] = [columnAxes.slice(0, 1), columnAxes.slice(1)];
    const rows = ranked(owners, rowAxes);
    const columns = ranked(owners, columnAxes);
    const named = owners.threads.length > 0;
    grid = {
      rows: rows.order.length,
      columns: columns.order.length,
      cells: rows.of.map((row, o) => row * columns.order.length + columns.of[o]),
      rowName: (row) => {
        const o = rows.order[row];
        return named ? threadName(owners, o) : String(owners.values[rowAxes[0]][o]);
      },
      columnName: (column) => {
        const o = columns.order[column];
        return named ? memoryName(space, o) : String(owners.values[columnAxes[0]][o]);
      },
      warpOf: owners.warp && named ? (row) => owners.warp[rows.order[row]] : null,
    };
  }
  if (grid.rows * grid.columns > MOST_CELLS) return null;
  const elements = grid.cells.map((_, o) => Math.floor(o / owners.copies));
  return { ...grid, elements: new Lists(grid.rows * grid.columns, grid.cells, elements) };
}

/** Addresses in a line of a memory view: 128 bytes, a period of a swizzle, or a row. */
function lineOf(space) {
  if (space.bits) return Math.max(1, Math.floor(1024 / space.bits));
  const { swizzle } = space.layout;
  if (swizzle && swizzle.per + swizzle.atom < 9) return 2 ** (swizzle.per + swizzle.atom);
  const columns = space.shape[space.shape.length - 1];
  return columns >= 4 && columns <= 128 ? columns : 64;
}

// -- operations -> data flow --------------------------------------------------------------------

const APPLY = {
  "^": (a, b) => a ^ b,
  "&": (a, b) => a & b,
  "*": (a, b) => a * b,
  "//": (a, b) => Math.floor(a / b),
  "%": modulo,
};

/** Evaluate an index: a constant, and terms of a factor and variable // stride % extent, or left op right. */
function valueOf([constant, ...terms], env) {
  const atom = (name, one, other) => name in APPLY
    ? APPLY[name](valueOf(one, env), valueOf(other, env))
    : Math.floor(env[name] / one) % other;
  return terms.reduce((sum, [factor, ...each]) => sum + factor * atom(...each), constant);
}

const holds = (guards, env) => guards.every(([index, low, high]) => {
  const value = valueOf(index, env);
  return low <= value && value < valueOf(high, env);
});

/** A program: which cell each operation moves where. Row n of `ops` is line n of the script. */
class Flow {
  constructor({ script, ops, threads, fragments }, spaces, doc) {
    this.threads = threads;
    this.spaces = new Map(spaces.map((space) => [space.name, space]));
    this.lines = script.split("\n");
    this.ops = ops.map((op, line) => ({ line, ...op }));
    this.unfollowed = ops.filter((op) => op.kind === "unfollowed").length;
    this.fragments = Object.fromEntries(
      Object.entries(fragments).map(([name, operands]) => [
        name,
        operands.map(([text, shape]) => slotsOf(text, shape, doc)),
      ]),
    );
    for (const space of spaces) this.number(space);
    this.instances = [];
    this.moves = 0;
    this.whole = this.expand(0, ops.length, {});
  }

  /** Number the cells of a space (addresses, or thread * registers + register) and map elements. */
  number(space) {
    const { owners } = space;
    const cells = [];
    const elements = [];
    const slot = owners.values[owners.memory[0]];
    if (space.scope === "local") {
      space.registers = owners.memory.length ? owners.high : 1;
      const held = new Map();
      for (let thread = 0; thread < this.threads; thread++) {
        const key = owners.threads.map((axis) => coordinateOf(axis, thread)).join();
        held.has(key) ? held.get(key).push(thread) : held.set(key, [thread]);
      }
      for (let o = 0; o < owners.size; o++) {
        const key = owners.threads.map(({ axis }) => owners.values[axis][o]).join();
        for (const thread of held.get(key) ?? []) {
          cells.push(thread * space.registers + (slot ? slot[o] : 0));
          elements.push(Math.floor(o / owners.copies));
        }
      }
      space.cells = this.threads * space.registers;
    } else {
      for (let o = 0; o < owners.size; o++) {
        cells.push(slot[o]);
        elements.push(Math.floor(o / owners.copies));
      }
      space.cells = owners.high;
    }
    space.elementsIn = new Lists(space.cells, cells, elements);
    space.cellsOf = new Lists(owners.count, elements, cells);
  }

  /** List the operations in the order of execution; false where there are too many to follow. */
  expand(at, end, env) {
    while (at < end) {
      const op = this.ops[at++];
      if (op.kind === "loop") {
        for (let step = 0; step < op.extent; step++) {
          if (!this.expand(at, at + op.body, { ...env, [op.variable]: step })) return false;
        }
        at += op.body;
      } else if (op.into) {
        this.moves += this.threads * (op.numbers?.length ?? op.count);
        if (this.moves > MOST_MOVES) return false;
        this.instances.push({ op, env });
      }
    }
    return true;
  }

  register(name, thread, number) {
    return thread * this.spaces.get(name).registers + number;
  }

  /**
   * The moves of an operation, cell to cell; from -1 where a register becomes zero. `by` is the
   * thread, or the cell of the row that ldmatrix or stmatrix moves.
   */
  movesOf(instance) {
    if (!instance.from) {
      const from = [];
      const into = [];
      const makers = [];
      this.list(instance, (source, target, by) => {
        from.push(source);
        into.push(target);
        makers.push(by);
      });
      instance.from = Int32Array.from(from);
      instance.into = Int32Array.from(into);
      instance.by = Int32Array.from(makers);
    }
    return instance;
  }

  /** Report every move: source cell, target cell, and `by`. */
  list({ op, env }, report) {
    const numbers = op.numbers ?? [];
    for (let thread = 0; thread < this.threads; thread++) {
      const here = { ...env, thread };
      const mine = (name, number) => this.register(name, thread, number);
      if (op.kind === "zero") {
        for (const number of numbers) report(-1, mine(op.into, number), thread);
      } else if (op.kind === "move") {
        numbers.forEach((number, n) => {
          const [from, into] = [mine(op.from, op.source[n]), mine(op.into, number)];
          if (op.from !== op.into || from !== into) report(from, into, thread);
        });
      } else if (op.kind === "movmatrix") {
        const [warp, lane] = [thread - (thread % WARP), thread % WARP];
        numbers.forEach((number, n) => {
          const [row, column] = [Math.floor(lane / 4), (lane % 4) * 2 + (n % 2)];
          const source = warp + column * 4 + Math.floor(row / 2);
          const slot = op.source[n - (n % 2) + (row % 2)];
          report(this.register(op.from, source, slot), mine(op.into, number), thread);
        });
      } else if (op.kind === "load") {
        const taking = holds(op.when, here);
        const start = taking ? valueOf(op.address, here) : 0;
        numbers.forEach((number, n) => report(taking ? start + n : -1, mine(op.into, number), thread));
      } else if (op.kind === "store" && holds(op.when, here)) {
        const start = valueOf(op.address, here);
        numbers.forEach((number, n) => report(mine(op.from, number), start + n, thread));
      } else if (op.kind === "transfer" && holds(op.when, here)) {
        const [source, target] = [valueOf(op.address, here), valueOf(op.target, here)];
        for (let n = 0; n < op.count; n++) report(source + n, target + n, thread);
      } else if (op.kind === "ldmatrix" || op.kind === "stmatrix") {
        this.listMatrix(op, env, thread, report);
      }
    }
  }

  listMatrix(op, env, thread, report) {
    const lane = thread % WARP;
    const pack = this.packOf(op);
    op.numbers.forEach((number, n) => {
      const [matrix, part] = [Math.floor(n / pack), n % pack];
      const [row, column] = op.trans
        ? [8 * matrix + 2 * (lane % 4) + part, Math.floor(lane / 4)]
        : [8 * matrix + Math.floor(lane / 4), (lane % 4) * pack + part];
      const cell = valueOf(op.address, { ...env, thread: thread - lane + row }) + column;
      const held = this.register(op.kind === "ldmatrix" ? op.into : op.from, thread, number);
      const place = row * 4 * pack + column;
      if (op.kind === "ldmatrix") report(cell, held, place);
      else report(held, cell, place);
    });
  }

  /** The heading of a space in a program. */
  partOf({ name, scope }) {
    const mmas = this.ops.filter((op) => op.kind === "mma");
    if (mmas.some((op) => op.into === name)) return "accumulator";
    if (mmas.some((op) => op.a === name || op.b === name)) return "mma operands";
    return { global: "global memory", shared: "shared memory", local: "registers" }[scope];
  }

  packOf(op) {
    return 32 / this.spaces.get(op.kind === "ldmatrix" ? op.from : op.into).bits;
  }

  /** The operations that write a new value to a cell; an mma adds to the old one. */
  births(name, cell) {
    const found = [];
    this.instances.forEach((instance, at) => {
      if (instance.op.into !== name || instance.op.kind === "mma") return;
      const { into } = this.movesOf(instance);
      if (into.includes(cell)) found.push(at);
    });
    return found.length ? found : [-1];
  }

  /**
   * Follow a value from the cells that hold it: forward to all results, back to all sources. Level
   * 1 is the value itself, level 2 a result or a source of an mma.
   */
  trace(name, seeds, pass) {
    const births = this.births(name, seeds[0]);
    const chosen = Math.min(pass, births.length - 1);
    const [start, end] = [births[chosen], births[chosen + 1] ?? this.instances.length];
    const seen = new Map();
    const steps = new Map();
    const live = { marks: new Map(), count: new Map() };
    const marksOf = (from, space) => {
      if (!from.has(space)) from.set(space, new Uint8Array(this.spaces.get(space).cells));
      return from.get(space);
    };
    const put = (space, cell, level) => {
      const marks = marksOf(live.marks, space);
      const change = (level > 0) - (marks[cell] > 0);
      if (change) live.count.set(space, (live.count.get(space) ?? 0) + change);
      if (!marks[cell] || level < marks[cell] || !level) marks[cell] = level;
      if (!level) return;
      const all = marksOf(seen, space);
      if (!all[cell] || level < all[cell]) all[cell] = level;
    };
    const note = (at, level, move) => {
      if (!steps.has(at)) steps.set(at, { at, moves: [], levels: [] });
      steps.get(at).moves.push(move);
      steps.get(at).levels.push(level);
    };
    const begin = () => {
      live.marks.clear();
      live.count.clear();
      for (const cell of seeds) put(name, cell, 1);
    };
    const walk = { live, put, note };
    begin();
    for (let at = start + 1; at < this.instances.length; at++) this.pass(at, walk, true);
    begin();
    for (let at = end - 1; at >= 0; at--) this.pass(at, walk, false);
    const sorted = [...steps.values()].sort((a, b) => a.at - b.at);
    return { seen, steps: sorted, passes: births.length, pass: chosen };
  }

  /** Move the live cells through one operation, forward or back. */
  pass(at, walk, forward) {
    const instance = this.instances[at];
    const { op } = instance;
    const { live, put, note } = walk;
    const alive = (name) => (live.count.get(name) ?? 0) > 0;
    if (op.kind === "mma") {
      if (forward ? alive(op.a) || alive(op.b) : alive(op.into)) this.passMma(at, walk, forward);
      return;
    }
    if (!alive(op.into) && !(forward && op.from && alive(op.from))) return;
    const { from, into } = this.movesOf(instance);
    const [before, after] = forward ? [from, into] : [into, from];
    const [source, target] = forward ? [op.from, op.into] : [op.into, op.from];
    const marks = live.marks.get(source);
    const found = [];
    for (let n = 0; n < before.length; n++) {
      const level = marks && before[n] >= 0 ? marks[before[n]] : 0;
      if (level) found.push([n, level]);
    }
    const stale = live.marks.get(op.into);
    if (stale) for (const cell of into) if (stale[cell]) put(op.into, cell, 0);
    for (const [n, level] of found) {
      if (after[n] >= 0) put(target, after[n], level);
      note(at, level, n);
    }
  }

  passMma(at, { live, put, note }, forward) {
    const { op } = this.instances[at];
    const [a, b, d] = this.fragments[op.instruction];
    const marks = (name) => live.marks.get(name);
    for (let warp = 0; warp < this.threads; warp += WARP) {
      const cellsOf = (name, numbers, fragment, hit) => {
        for (let lane = 0; lane < WARP; lane++) {
          numbers.forEach((number, slot) => {
            const cell = this.register(name, warp + lane, number);
            hit(cell, fragment[lane * numbers.length + slot]);
          });
        }
      };
      const rows = new Map();
      const columns = new Map();
      const reach = (lines, line, level) => lines.set(line, Math.min(lines.get(line) ?? 3, level));
      if (forward) {
        cellsOf(op.a, op.aNumbers, a, (cell, [row]) => marks(op.a)?.[cell] && reach(rows, row, 2));
        cellsOf(op.b, op.bNumbers, b, (cell, [, column]) => marks(op.b)?.[cell] && reach(columns, column, 2));
        if (!rows.size && !columns.size) continue;
        cellsOf(op.into, op.numbers, d, (cell, [row, column]) => {
          if (rows.has(row) || columns.has(column)) put(op.into, cell, 2);
        });
      } else {
        cellsOf(op.into, op.numbers, d, (cell, [row, column]) => {
          if (!marks(op.into)?.[cell]) return;
          reach(rows, row, 2);
          reach(columns, column, 2);
        });
        if (!rows.size) continue;
        cellsOf(op.a, op.aNumbers, a, (cell, [row]) => rows.has(row) && put(op.a, cell, 2));
        cellsOf(op.b, op.bNumbers, b, (cell, [, column]) => columns.has(column) && put(op.b, cell, 2));
      }
      note(at, 2, { rows: [...rows.keys()], columns: [...columns.keys()], forward });
    }
  }
}

/** (row, column) of every lane and slot of an operand: entry lane * slots + slot. */
function slotsOf(text, [rows, columns], doc) {
  const { count, values } = tableOf(parseLayout(text, doc.axes), doc.most);
  const slots = (rows * columns) / WARP;
  const found = [];
  for (let e = 0; e < count; e++) {
    found[values.laneid[e] * slots + (values.m?.[e] ?? 0)] = [Math.floor(e / columns), e % columns];
  }
  return found;
}

/** The coordinate of a thread on an axis: which subscope of its scope it is in. */
function coordinateOf({ subscope, scope }, thread) {
  return Math.floor(thread / THREADS[subscope]) % (THREADS[scope] / THREADS[subscope]);
}

// -- panels -------------------------------------------------------------------------------------

const [MATE, MADE, HOT] = [1, 2, 3]; // marks of a cell: of the chosen lane, made of it, chosen
const TOP = 15; // height of the column numbers
const NARROWEST = 170; // width of a panel, in CSS pixels: its fields are readable

/** A grid of cells on two canvases: one for the cells, one for the marks. */
class Panel {
  constructor(explorer, source) {
    Object.assign(this, { explorer, ...source });
    this.host = make("div", { class: "grid" });
    this.base = make("canvas", { "aria-hidden": "true" });
    this.over = make("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "grid of cells",
      "aria-describedby": `${explorer.id}-keys`,
    });
    this.host.append(this.base, this.over);
    const at = (event) => this.cellAt(event.offsetX, event.offsetY);
    this.over.addEventListener("pointermove", (event) => explorer.hover(this, at(event)));
    this.over.addEventListener("pointerleave", () => explorer.hover(this, null));
    this.over.addEventListener("click", (event) => explorer.click(this, at(event)));
    this.over.addEventListener("keydown", (event) => explorer.key(this, event));
  }

  get count() {
    return this.rows * this.columns;
  }

  cellAt(x, y) {
    const column = Math.floor((x - this.left) / this.wide);
    const row = Math.floor((y - TOP) / this.high);
    return row >= 0 && row < this.rows && column >= 0 && column < this.columns
      ? row * this.columns + column
      : null;
  }

  /** Width of the row names, in CSS pixels. */
  get left() {
    this.named ??= Math.max(...Array.from({ length: this.rows }, (_, row) => this.rowName(row).length));
    return 10 + 6.5 * this.named;
  }

  /** Fit the size of a cell to the room and paint; the size decides which labels are shown. */
  resize(width, height = Infinity) {
    const { zoom } = this.explorer.state;
    const sized = (room, count, most) =>
      Math.max(3, Math.round(Math.min(Math.max(Math.floor(room / count), 3), most) * zoom));
    this.wide = sized(width - this.left - 8, this.columns, this.limit);
    this.high = this.kind === "tile" && this.limit > 30 ? Math.min(this.wide, 27) : Math.min(this.wide, 19);
    if (height < Infinity) this.high = sized(height, this.rows, 19);
    const ratio = globalThis.devicePixelRatio || 1;
    const [right, low] = [this.left + this.columns * this.wide + 2, TOP + this.rows * this.high + 2];
    for (const canvas of [this.base, this.over]) {
      canvas.width = right * ratio;
      canvas.height = low * ratio;
      canvas.style.width = `${right}px`;
      canvas.style.height = `${low}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    this.host.style.height = `${low}px`;
    this.host.style.width = `${right}px`;
    this.host.closest("section").style.width = `${Math.max(right + 8, NARROWEST)}px`;
    this.paint();
  }

  box(cell) {
    const [row, column] = [Math.floor(cell / this.columns), cell % this.columns];
    return [this.left + column * this.wide, TOP + row * this.high];
  }

  paint() {
    const pen = this.base.getContext("2d");
    const { fills, empty, ink } = this.explorer.doc;
    const { note } = this.explorer.colors();
    pen.clearRect(0, 0, this.base.width, this.base.height);
    const gap = Math.min(this.wide, this.high) >= 8 ? 1 : 0;
    for (let cell = 0; cell < this.count; cell++) {
      const [x, y] = this.box(cell);
      const [first, second] = this.fillsOf(cell);
      pen.fillStyle = first < 0 ? empty : fills[first];
      pen.fillRect(x, y, this.wide - gap, this.high - gap);
      if (gap && second >= 0) {
        pen.fillStyle = fills[second];
        pen.beginPath();
        pen.moveTo(x + this.wide - gap, y);
        pen.lineTo(x + this.wide - gap, y + this.high - gap);
        pen.lineTo(x, y + this.high - gap);
        pen.fill();
      }
    }
    this.paintLabels(pen, ink);
    this.paintLines(pen, note, ink);
    this.paintHeads(pen, note);
  }

  /** Labels of two lines, one line, or none: as fit. */
  paintLabels(pen, ink) {
    if (this.wide < 17 || this.high < 11) return;
    const labels = Array.from({ length: this.count }, (_, cell) => this.labelOf(cell));
    const fits = (n, size) => {
      pen.font = `${size}px ${this.explorer.font}`;
      return labels.every((lines) => pen.measureText(lines[n] ?? "").width <= this.wide - 3);
    };
    const size = [11, 10, 9].find((each) => fits(0, each));
    if (!size) return;
    const both = this.high >= 24 && labels.some((lines) => lines[1]) && fits(1, size);
    pen.font = `${size}px ${this.explorer.font}`;
    pen.fillStyle = ink;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    labels.forEach((lines, cell) => {
      const [x, y] = this.box(cell);
      const middle = x + (this.wide - 1) / 2;
      if (!both) return pen.fillText(lines[0], middle, y + this.high / 2);
      pen.fillText(lines[0], middle, y + this.high * 0.3);
      return pen.fillText(lines[1] ?? "", middle, y + this.high * 0.72);
    });
  }

  /** Lines between blocks of 8 (dashed), instructions or registers (solid), and warps (thick). */
  paintLines(pen, note, ink) {
    const line = (width, dash, color) => {
      pen.lineWidth = width;
      pen.setLineDash(dash);
      pen.strokeStyle = color;
      pen.beginPath();
    };
    const upright = (column) => {
      const x = this.left + column * this.wide - 0.5;
      pen.moveTo(x, TOP);
      pen.lineTo(x, TOP + this.rows * this.high);
    };
    const level = (row) => {
      const y = TOP + row * this.high - 0.5;
      pen.moveTo(this.left, y);
      pen.lineTo(this.left + this.columns * this.wide, y);
    };
    line(1, [3, 2], note);
    for (let row = 8; row < this.rows; row += 8) level(row);
    for (let column = 8; column < this.columns; column += 8) upright(column);
    pen.stroke();
    line(1, [], ink);
    const [down, across] = this.solid ?? [0, 0];
    for (let row = down; down && row < this.rows; row += down) level(row);
    for (let column = across; across && column < this.columns; column += across) upright(column);
    pen.stroke();
    if (!this.warpAt) return;
    line(2.5, [], ink);
    for (let cell = 0; cell < this.count; cell++) {
      const [x, y] = this.box(cell);
      if ((cell + 1) % this.columns && this.warpAt(cell) !== this.warpAt(cell + 1)) {
        pen.moveTo(x + this.wide - 0.5, y);
        pen.lineTo(x + this.wide - 0.5, y + this.high);
      }
      if (cell + this.columns < this.count && this.warpAt(cell) !== this.warpAt(cell + this.columns)) {
        pen.moveTo(x, y + this.high - 0.5);
        pen.lineTo(x + this.wide, y + this.high - 0.5);
      }
    }
    pen.stroke();
  }

  paintHeads(pen, note) {
    pen.fillStyle = note;
    pen.font = `10px ${this.explorer.font}`;
    pen.textBaseline = "middle";
    const every = (size, need) => [1, 2, 4, 8, 16, 32, 64].find((step) => step * size >= need) ?? 128;
    pen.textAlign = "right";
    const rows = every(this.high, 11);
    for (let row = 0; row < this.rows; row += rows) {
      pen.fillText(this.rowName(row), this.left - 4, TOP + (row + 0.5) * this.high);
    }
    pen.textAlign = "center";
    const widest = Math.max(...[0, this.columns - 1].map((c) => pen.measureText(this.columnName(c)).width));
    const columns = every(this.wide, widest + 4);
    for (let column = 0; column < this.columns; column += columns) {
      pen.fillText(this.columnName(column), this.left + (column + 0.5) * this.wide, TOP - 7);
    }
  }

  /** Outline the marked cells; where cells are too small for that, dim the others. */
  mark(marks, chosen, band) {
    const pen = this.over.getContext("2d");
    const { paper, text } = this.explorer.colors();
    const { ink, paper: white } = this.explorer.doc;
    pen.clearRect(0, 0, this.over.width, this.over.height);
    this.marks = marks;
    const small = Math.min(this.wide, this.high) < 12;
    if (small && marks.some((mark) => mark)) {
      pen.globalAlpha = 0.6;
      pen.fillStyle = paper;
      pen.fillRect(this.left, TOP, this.columns * this.wide, this.rows * this.high);
      pen.globalAlpha = 1;
    }
    for (const level of [MATE, MADE, HOT]) {
      for (let cell = marks.indexOf(level); cell >= 0; cell = marks.indexOf(level, cell + 1)) {
        const [x, y] = this.box(cell);
        if (small) pen.clearRect(x, y, this.wide, this.high);
        const width = level === HOT ? (small ? 1.5 : 3) : small ? 0 : 1.25;
        if (!width) continue;
        pen.setLineDash(level === MADE ? [2, 2] : []);
        pen.strokeStyle = small ? text : ink;
        pen.lineWidth = width;
        const inset = small ? -0.5 : width / 2;
        pen.strokeRect(x + inset, y + inset, this.wide - 1 - 2 * inset, this.high - 1 - 2 * inset);
      }
    }
    pen.setLineDash([]);
    if (band) {
      const [row, column] = band;
      pen.strokeStyle = text;
      pen.lineWidth = 1;
      const [right, low] = [this.columns * this.wide + 2, this.rows * this.high + 2];
      if (row !== null) pen.strokeRect(this.left - 1.5, TOP + row * this.high - 1, right, this.high + 1);
      if (column !== null) pen.strokeRect(this.left + column * this.wide - 1, TOP - 1.5, this.wide + 1, low);
    }
    if (chosen !== null) {
      const [x, y] = this.box(chosen);
      for (const [width, color] of [[5, white], [3, ink]]) {
        pen.lineWidth = width;
        pen.strokeStyle = color;
        pen.strokeRect(x - 1, y - 1, this.wide + 1, this.high + 1);
      }
    }
  }
}

/** The elements of a space, row by row. */
function tilePanel(space) {
  const { owners } = space;
  const columns = space.shape[space.shape.length - 1] ?? 1;
  const extra = owners.copies > 1 ? 1 : 0;
  const threads = owners.threads.length > 0;
  return {
    space,
    kind: "tile",
    rows: owners.count / columns,
    columns,
    solid: space.instruction,
    rowName: String,
    columnName: String,
    warpAt: owners.hue === "warp" ? (cell) => owners.warp[cell * owners.copies] : null,
    elementsAt: (cell) => [cell],
    cellsWith: (element) => [element],
    fillsOf: (cell) => {
      const first = cell * owners.copies;
      const own = owners.fill[first];
      const other = owners.fill.subarray(first, first + owners.copies).find((fill) => fill !== own);
      return [own, other ?? -1];
    },
    labelOf: (cell) => {
      const o = cell * owners.copies;
      const others = extra ? ownersAt(owners, cell).length - 1 : 0;
      const more = others ? `+${others}` : "";
      const memory = owners.memory.length ? memoryName(space, o) : "";
      return threads ? [threadName(owners, o) + more, memory] : [memory + more];
    },
  };
}

/** What holds the elements of a space: lanes × registers, or memory. */
function placePanel(space, places) {
  const { owners } = space;
  return {
    space,
    kind: "places",
    rows: places.rows,
    columns: places.columns,
    solid: owners.threads.length && space.pack > 1 ? [0, space.pack] : null,
    rowName: places.rowName,
    columnName: places.columnName,
    warpAt: places.warpOf ? (cell) => places.warpOf(Math.floor(cell / places.columns)) : null,
    elementsAt: (cell) => places.elements.of(cell),
    cellsWith: (element) => ownersAt(owners, element).map((o) => places.cells[o]),
    fillsOf: (cell) => {
      const [element] = places.elements.of(cell);
      if (element === undefined) return [-1, -1];
      return [owners.fill[places.cells.indexOf(cell, element * owners.copies)], -1];
    },
    labelOf: (cell) => {
      const [first, ...others] = places.elements.of(cell);
      if (first === undefined) return [""];
      return [coordinate(first, space.shape).join(",") + (others.length ? "…" : "")];
    },
  };
}

/** The rows that ldmatrix or stmatrix moves: a row per address lane, a cell per receiving lane. */
function matrixPanel(op, flow) {
  const [columns, pack] = [4 * flow.packOf(op), flow.packOf(op)];
  const lane = (cell) => {
    const [row, column] = [Math.floor(cell / columns) % 8, cell % columns];
    return op.trans ? 4 * column + Math.floor(row / 2) : row * 4 + Math.floor(column / pack);
  };
  const verb = `${op.kind}.x${op.count}${op.trans ? ".trans" : ""}`;
  const part = op.kind === "ldmatrix" ? "receives" : "gives";
  return {
    op,
    kind: "matrix",
    name: verb,
    note: `${op.from} → ${op.into}: a row per address lane, its cells by the lane that ${part} them`,
    rows: 8 * op.count,
    columns,
    rowName: (row) => `T${row}`,
    columnName: String,
    fillsOf: (cell) => [lane(cell), -1],
    labelOf: (cell) => [`T${lane(cell)}`],
    laneAt: lane,
    slotAt: (cell) => {
      const [row, column] = [Math.floor(cell / columns), cell % columns];
      return Math.floor(row / 8) * pack + (op.trans ? row % 2 : column % pack);
    },
  };
}

function coordinate(element, shape) {
  const found = [];
  for (let dim = shape.length - 1; dim >= 0; dim--) {
    found.unshift(element % shape[dim]);
    element = Math.floor(element / shape[dim]);
  }
  return found;
}

// -- the page -----------------------------------------------------------------------------------

function make(tag, attributes = {}, ...inside) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

let explorers = 0;

/** A page, in `root`. */
class Explorer {
  constructor(root, doc, hooks) {
    Object.assign(this, { root, doc, hooks });
    this.id = `explorer-${explorers++}`;
    this.font = "ui-sans-serif, system-ui, sans-serif";
    this.state = { at: null, pinned: false, lane: doc.lane, zoom: 1, pass: 0 };
    this.spaces = doc.spaces.map((space) => ({ ...space, given: space.layout, shapeGiven: space.shape, letterGiven: space.letter }));
    for (const space of this.spaces) this.read(space, space.given, space.shapeGiven);
    if (doc.flow) this.flow = new Flow(doc.flow, this.spaces, doc);
    this.build();
    this.restore();
    let width = root.clientWidth;
    new ResizeObserver(() => {
      if (width === root.clientWidth) return;
      width = root.clientWidth;
      this.resize();
    }).observe(root);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    if (this.linked) addEventListener("hashchange", () => this.restore());
  }

  /** Whether the state is kept in the address bar: a widget, or a frame without address, does not. */
  get linked() {
    return !this.hooks.change && location.protocol !== "about:";
  }

  colors() {
    const style = getComputedStyle(this.root);
    const color = (name) => style.getPropertyValue(name).trim();
    return { paper: color("--paper"), text: color("--text"), note: color("--note") };
  }

  /** Set the layout of a space; a refused text changes nothing. */
  read(space, text, shape) {
    const layout = parseLayout(text, this.doc.axes);
    const owners = ownersOf(layout, this.doc);
    const size = (shape ?? []).reduce((all, extent) => all * extent, 1);
    if (shape && size !== owners.count) {
      const all = shape.join(" × ");
      throw new Refusal(`the layout has ${owners.count} elements, the shape ${all} has ${size}`, null, "shape");
    }
    const alone = !owners.threads.length && owners.memory.length === 1;
    const letter = space.letterGiven ?? (alone ? "" : owners.memory[0]);
    Object.assign(space, { text, layout, owners, letter, shape: shape ?? shapeFor(layout) });
    space.places = placesOf(space);
  }

  build() {
    const { doc } = this;
    this.root.classList.add("explorer", doc.kind);
    this.readout = make("div", { class: "readout", role: "status", "aria-live": "polite" });
    const number = (label, name, least, most) => {
      const input = make("input", { type: "number", min: least, max: most, size: 4, name });
      input.addEventListener("input", () => {
        this.state[name] = Math.min(Math.max(Math.floor(Number(input.value)) || 0, least), most);
        this.changed();
      });
      this.inputs[name] = input;
      return make("label", {}, `${label} `, input);
    };
    this.inputs = {};
    const zoom = (by, name, sign) => {
      const button = make("button", { type: "button", "aria-label": name }, sign);
      button.addEventListener("click", () => this.zoom(by));
      return button;
    };
    const keys =
      "Point to follow a cell; click or Enter pins it, Esc lets go; arrows move, Tab goes to the next panel.";
    const controls = make("div", { class: "controls" });
    if (!this.flow) controls.append(number("lane", "lane", 0, 1023));
    else controls.append(number("value", "pass", 0, 99999), make("span", { class: "passes" }));
    controls.append(zoom(1.25, "larger cells", "+"), zoom(0.8, "smaller cells", "−"));
    controls.append(make("span", { id: `${this.id}-keys`, class: "keys" }, keys));
    this.lanes = make("div", { class: "lanes" });
    this.body = make("div", { class: `panels ${doc.kind}` });
    this.legend = make("div", { class: "legend" });
    this.root.replaceChildren(
      make("header", {}, make("h1", {}, doc.title), make("p", {}, doc.about ?? "")),
      controls, this.readout, this.lanes, this.body, this.legend,
    );
    if (this.flow) this.root.append(this.listing());
    this.lay();
  }

  /** Rebuild the panels of all spaces. */
  lay() {
    this.panels = [];
    this.body.replaceChildren();
    const edited = this.edited ?? new Map();
    this.edited = edited;
    const stages = this.flow ? this.stages() : [this.spaces.map((space) => [space])];
    for (const stage of stages) {
      const column = this.flow ? make("div", { class: "stage" }) : this.body;
      if (this.flow) {
        const where = stage.map(([space, op]) => op?.kind ?? this.flow.partOf(space));
        column.append(make("h3", {}, [...new Set(where)].join(", ")));
        this.body.append(column);
      }
      for (const [space, op] of stage) {
        if (op) column.append(this.section(matrixPanel(op, this.flow)));
        else column.append(...this.sections(space, edited));
      }
    }
    const places = this.body.querySelectorAll(".places");
    if (this.doc.kind === "operands") this.body.append(make("div", { class: "files" }, ...places));
    this.explain();
    this.resize();
  }

  sections(space, edited) {
    const wanted = space.views ?? ["tile", "places"];
    const views = [];
    if (wanted.includes("tile")) views.push(tilePanel(space));
    if (wanted.includes("places") && space.places) views.push(placePanel(space, space.places));
    const sections = views.map((view) => this.section(view));
    if (!edited.has(space.name)) edited.set(space.name, this.editor(space));
    sections[0].children[0].after(edited.get(space.name));
    return sections;
  }

  section(source) {
    const panel = new Panel(this, source);
    panel.index = this.panels.length;
    panel.limit = this.flow ? 24 : 40;
    this.panels.push(panel);
    const { space } = panel;
    const memory = space && !space.owners.threads.length;
    const view = memory ? ["memory", "lines of addresses"] : ["lanes × registers", "element held"];
    const tile = panel.kind === "tile";
    const title = panel.name ?? (tile ? space.name : `${space.name}: ${view[0]}`);
    const note = panel.note ?? (tile ? space.note : view[1]);
    panel.over.setAttribute("aria-label", `${title}, ${panel.rows} rows, ${panel.columns} columns`);
    panel.title = title;
    return make("section", { class: `panel ${panel.kind} ${space?.role ?? ""}` },
      make("h2", {}, title, " ", make("small", {}, note ?? "")), make("div", { class: "scroll" }, panel.host));
  }

  /** The input fields of a layout and its shape; in a program, its text. */
  editor(space) {
    if (this.flow) return make("code", {}, space.text);
    const field = (label, value, name) => {
      const input = make("input", { type: "text", spellcheck: "false", name });
      input.setAttribute("aria-label", `${label} of ${space.name}`);
      input.value = value;
      return input;
    };
    const text = field("layout", space.text, "layout");
    const shape = field("shape", space.shape.join(", "), "shape");
    const error = make("pre", { class: "error", role: "alert" });
    space.fields = { text, shape, error };
    text.addEventListener("input", () => this.typed(space, text.value, null));
    shape.addEventListener("input", () => this.typed(space, text.value, shape.value));
    return make("div", { class: "editor" }, make("div", { class: "fields" }, text, shape), error);
  }

  typed(space, text, shape) {
    const taken = this.take(space, text, shape);
    if (taken) this.changed();
    return taken;
  }

  /** Show a layout and shape that were typed, or why they are refused. */
  take(space, text, shape, before = space.shape) {
    const { fields } = space;
    this.accept(fields);
    try {
      this.read(space, text, shape === null ? this.fitting(text, before) : extentsOf(shape));
    } catch (refusal) {
      if (!(refusal instanceof Refusal)) throw refusal;
      fields.error.textContent = refusal.message;
      if (refusal.at !== null && shape === null) {
        // hidden text in front keeps the caret under its letter, with tabs and wide letters too
        const unseen = make("span", { "aria-hidden": "true" }, text.slice(0, refusal.at));
        fields.error.append(`\n${text}\n`, unseen, "^");
      }
      fields[refusal.field].setAttribute("aria-invalid", "true");
      return false;
    }
    if (shape === null) fields.shape.value = space.shape.join(", ");
    this.state.at = null;
    this.state.pinned = false;
    this.lay();
    return true;
  }

  accept({ text, shape, error }) {
    error.textContent = "";
    for (const field of [text, shape]) field.removeAttribute("aria-invalid");
  }

  /** The shape of a layout that is typed without one: the last, where it has the same size. */
  fitting(text, before) {
    const size = sizeOf(parseLayout(text, this.doc.axes).shard);
    return before.reduce((all, extent) => all * extent, 1) === size ? before : null;
  }

  /** The spaces and matrix moves of a program, in the order of the data flow. */
  stages() {
    const rank = new Map();
    const stages = [];
    const put = (at, ...entry) => (stages[at] ??= []).push(entry);
    const enter = (name, at) => {
      if (rank.has(name)) return;
      rank.set(name, at);
      put(at, this.flow.spaces.get(name));
    };
    const seen = new Set();
    for (const op of this.flow.ops) {
      if (!op.into || op.kind === "zero") continue;
      const sources = op.kind === "mma" ? [op.a, op.b] : [op.from];
      if (sources.includes(op.into)) continue;
      for (const name of sources) enter(name, 0);
      const at = Math.max(...sources.map((name) => rank.get(name)));
      const matrix = op.kind === "ldmatrix" || op.kind === "stmatrix";
      const key = matrixKey(op);
      if (matrix && !seen.has(key)) put(at + 1, null, op);
      seen.add(key);
      enter(op.into, at + 1 + matrix);
    }
    for (const space of this.spaces) enter(space.name, stages.length);
    return stages.filter(Boolean);
  }

  listing() {
    const { flow } = this;
    this.lines = flow.lines.map((line) => make("li", {}, line));
    const notes = [];
    if (flow.unfollowed) notes.push(`${flow.unfollowed} operations are shown but not followed.`);
    if (!flow.whole) notes.push("Only the first steps of the loops are followed.");
    const list = make("ol", { tabindex: 0 }, ...this.lines);
    const said = make("p", {}, notes.join(" "));
    return make("section", { class: "listing" }, make("h2", {}, "program"), said, list);
  }

  explain() {
    const { doc } = this;
    const rows = new Map();
    const swatch = (fill, words) => make("span", { class: "swatch" }, colored(doc.fills[fill]), words);
    for (const { name, owners, layout } of this.spaces) {
      const list = [];
      const hues = [...new Set(owners.fill.map((fill) => fill - (fill % 4)))].sort((a, b) => a - b);
      for (const hue of hues) {
        const warp = doc.warpHues.indexOf(hue / 4);
        const words = {
          group: `T${hue}–${hue + 3}`,
          warp: `W${warp}`,
          block: `${owners.threads[0]?.axis} ${warp}`,
          chunk: `chunk ${hue / 4}`,
          memory: `from ${owners.low + Math.ceil((hue * (owners.high - owners.low)) / WARP)}`,
        }[owners.hue];
        list.push([warp, hue, words]);
      }
      if (owners.hue === "warp") list.sort((a, b) => a[0] - b[0]);
      const caption = {
        group: "group of 4 lanes, darker: lane mod 4",
        warp: "warp mod 8, darker: quarter of its lanes",
        block: "block mod 8",
        chunk: `which chunk of ${2 ** (layout.swizzle?.per ?? 0)} addresses, mod 8`,
        memory: `range of ${owners.memory[0]}`,
      }[owners.hue];
      const key = `${caption} ${list}`;
      if (!rows.has(key)) rows.set(key, { kind: owners.hue, names: [], caption, list });
      rows.get(key).names.push(name);
    }
    const kinds = [...rows.values()].map((row) => row.kind);
    const told = [...rows.values()].map(({ kind, names, caption, list }) => {
      const alone = kinds.indexOf(kind) === kinds.lastIndexOf(kind);
      const swatches = list.map(([, hue, words]) => swatch(hue, words));
      return make("p", {}, `hue${alone ? "" : ` of ${names.join(", ")}`}: ${caption} `, ...swatches);
    });
    const marks = this.flow
      ? "Thick: the same value. Dashed: what an mma makes of it, or makes it of."
      : "Thick: the chosen element. Thin: the same lane. +n: n more owners. " +
        "Dashed lines: 8 × 8; solid: register or instruction; thick: warp.";
    this.legend.replaceChildren(...told, make("p", {}, marks));
  }

  resize() {
    const width = this.root.clientWidth - 24;
    if (width <= 0) return;
    const tiles = this.panels.filter((each) => each.kind === "tile");
    const [A, B, D] = ["A", "B", "D"].map((role) => tiles.find((each) => each.space.role === role));
    const triple = this.doc.kind === "operands" && A && B && D;
    let cell = triple ? Math.floor((width - A.left - D.left - 38) / (A.columns + D.columns)) : 0;
    const needed = ({ left, columns }) => Math.max(left + columns * cell + 10, NARROWEST);
    while (cell >= 8 && needed(A) + Math.max(needed(B), needed(D)) + 22 > width) cell--;
    const beside = cell >= 8; // otherwise one below the other: the page is too narrow
    this.body.classList.toggle("stacked", !!triple && !beside);
    const stages = this.body.querySelectorAll(".stage").length;
    for (const panel of this.panels) {
      if (this.flow) panel.resize(Math.min(Math.max(Math.floor(width / stages) - 34, 170), 320), 300);
      else if (beside && panel.kind === "tile") panel.resize(panel.columns * cell + panel.left + 8);
      else panel.resize(width > 900 && panel.columns < 4 * panel.rows ? Math.floor(width / 2) - 22 : width);
    }
    this.show();
  }

  repaint() {
    for (const panel of this.panels) panel.paint();
    this.show();
  }

  zoom(by) {
    this.state.zoom = Math.min(Math.max(this.state.zoom * by, 0.25), 8);
    this.resize();
    this.changed();
  }

  // -- choosing ---------------------------------------------------------------------------------

  hover(panel, cell) {
    if (this.state.pinned) return;
    const { at } = this.state;
    if (cell === null ? !at : at && at.panel === panel.index && at.cell === cell) return;
    this.state.at = cell === null ? null : { panel: panel.index, cell };
    this.show();
    this.hooks.change?.(this);
  }

  click(panel, cell) {
    if (cell === null) return;
    const { at, pinned } = this.state;
    const same = pinned && at.panel === panel.index && at.cell === cell;
    this.state.at = { panel: panel.index, cell };
    this.state.pinned = !same;
    this.changed();
  }

  key(panel, event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -panel.columns, ArrowDown: panel.columns };
    const at = this.state.at?.panel === panel.index ? this.state.at.cell : null;
    if (event.key in moves) {
      const next = at === null ? 0 : at + moves[event.key];
      const inRow = event.key === "ArrowLeft" || event.key === "ArrowRight";
      const stays = !inRow || at === null || Math.floor(next / panel.columns) === Math.floor(at / panel.columns);
      if (next >= 0 && next < panel.count && stays) this.state.at = { panel: panel.index, cell: next };
    } else if (event.key === "Home" || event.key === "End") {
      const row = at === null ? 0 : at - (at % panel.columns);
      this.state.at = { panel: panel.index, cell: event.key === "Home" ? row : row + panel.columns - 1 };
    } else if ((event.key === "Enter" || event.key === " ") && at !== null) {
      this.state.pinned = !this.state.pinned;
    } else if (event.key === "Escape") {
      this.state.at = null;
      this.state.pinned = false;
    } else if (event.key === "+" || event.key === "-") {
      this.zoom(event.key === "+" ? 1.25 : 0.8);
    } else return;
    event.preventDefault();
    this.changed();
  }

  changed() {
    this.show();
    this.save();
    this.hooks.change?.(this);
  }

  /** Mark what belongs to the chosen cell in all panels, and describe it. */
  show() {
    for (const [name, input] of Object.entries(this.inputs)) {
      if (document.activeElement !== input) input.value = this.state[name];
    }
    this.root.classList.toggle("pinned", this.state.pinned);
    const { at } = this.state;
    if (this.flow) this.showFlow(at && this.panels[at.panel], at?.cell);
    else this.showLayouts(at && this.panels[at.panel], at?.cell);
  }

  showLayouts(panel, cell) {
    const elements = panel ? [...panel.elementsAt(cell)] : [];
    const threads = new Set();
    for (const element of elements) {
      for (const o of ownersAt(panel.space.owners, element)) threads.add(threadOf(panel.space.owners, o));
    }
    if (!panel) threads.add(this.state.lane);
    threads.delete(null);
    for (const each of this.panels) {
      const marks = new Uint8Array(each.count);
      const { owners } = each.space;
      if (owners.lane && threads.size) {
        for (let o = 0; o < owners.size; o++) {
          if (!threads.has(threadOf(owners, o))) continue;
          marks[each.kind === "tile" ? Math.floor(o / owners.copies) : each.space.places.cells[o]] = MATE;
        }
      }
      if (each.space === panel?.space) {
        for (const element of elements) for (const here of each.cellsWith(element)) marks[here] = HOT;
      }
      const band = elements.length ? this.band(panel.space, elements[0], each) : null;
      each.mark(marks, each === panel ? cell : null, band);
    }
    this.say(panel, cell, elements, threads);
  }

  /** The row or column of another operand with the element's m, n or k. */
  band(space, element, panel) {
    if (this.doc.kind !== "operands" || panel.space === space || panel.kind !== "tile") return null;
    const place = coordinate(element, space.shape);
    const at = (dim) => {
      const same = space.dims?.indexOf(panel.space.dims?.[dim]) ?? -1;
      return same < 0 ? null : place[same];
    };
    return [at(0), at(1)];
  }

  say(panel, cell, elements, threads) {
    const lines = [];
    if (panel) {
      const { space } = panel;
      if (!elements.length) lines.push(make("p", {}, `${panel.title}: nothing is held here`));
      for (const element of elements.slice(0, 8)) {
        const owners = ownersAt(space.owners, element);
        const list = owners.slice(0, MOST_TOLD).map((o) => ownerLine(space, o));
        const more = owners.length > MOST_TOLD ? `and ${owners.length - MOST_TOLD} more` : "";
        const at = `${space.name}(${coordinate(element, space.shape).join(", ")})`;
        lines.push(make("div", {}, make("b", {}, at), " is held by", make("ul", {}, ...list), more));
      }
      if (elements.length > 8) lines.push(make("p", {}, `and ${elements.length - 8} more elements`));
    }
    if (!lines.length) lines.push(make("p", {}, "Nothing is chosen."));
    this.readout.replaceChildren(...lines);
    const [first] = [...threads].sort((a, b) => a - b);
    this.lanes.replaceChildren(...(first === undefined ? [] : [this.laneLines(first)]));
  }

  /** The registers of a thread in each space. */
  laneLines(thread) {
    const warps = this.spaces.some(({ owners }) => owners.warp);
    const name = warps ? `W${Math.floor(thread / WARP)}T${thread % WARP}` : `T${thread}`;
    const block = make("div", { class: "lane" }, make("b", {}, name), " holds");
    for (const space of this.spaces) {
      const { owners } = space;
      const held = [];
      for (let o = 0; o < owners.size; o++) {
        if (threadOf(owners, o) !== thread || !owners.memory.length) continue;
        held.push([owners.values[owners.memory[0]][o], o]);
      }
      if (!held.length) continue;
      held.sort((a, b) => a[0] - b[0]);
      const words = new Map();
      for (const [slot, o] of held.slice(0, MOST_TOLD)) {
        const word = Math.floor(slot / (space.pack ?? 1));
        const at = coordinate(Math.floor(o / owners.copies), space.shape).join(",");
        words.set(word, [...(words.get(word) ?? []), `${slotName(space, slot)}(${at})`]);
      }
      const kind = space.pack > 1 ? "word" : "slot";
      const parts = [...words.values()].map((inside) => make("span", { class: kind }, inside.join(" ")));
      const more = held.length > MOST_TOLD ? ` and ${held.length - MOST_TOLD} more` : "";
      block.append(make("p", {}, make("b", {}, `${space.name} `), ...parts, more));
    }
    return block;
  }

  // -- programs ---------------------------------------------------------------------------------

  /** The cells of a space that a panel's cell shows. */
  seedsOf(panel, cell) {
    const { op, space } = panel;
    if (op) {
      const name = op.kind === "ldmatrix" ? op.into : op.from;
      return [name, [this.flow.register(name, panel.laneAt(cell), op.numbers[panel.slotAt(cell)])]];
    }
    const found = [...panel.elementsAt(cell)].flatMap((element) => [...space.cellsOf.of(element)]);
    return [space.name, found];
  }

  showFlow(panel, cell) {
    const [name, seeds] = panel ? this.seedsOf(panel, cell) : [null, []];
    const nothing = { seen: new Map(), steps: [], passes: 0 };
    const trace = seeds.length ? this.flow.trace(name, seeds, this.state.pass) : nothing;
    const { instances } = this.flow;
    const rows = new Map();
    for (const { at, moves, levels } of trace.steps) {
      const key = matrixKey(instances[at].op);
      if (!rows.has(key)) rows.set(key, []);
      moves.forEach((n, i) => rows.get(key).push([instances[at].by?.[n], levels[i]]));
    }
    for (const each of this.panels) {
      const marks = new Uint8Array(each.count);
      const put = (place, level) => (marks[place] = Math.max(marks[place], level === 1 ? HOT : MADE));
      if (each.op) {
        for (const [place, level] of rows.get(matrixKey(each.op)) ?? []) put(place, level);
      } else {
        trace.seen.get(each.space.name)?.forEach((level, at) => {
          if (!level) return;
          for (const element of each.space.elementsIn.of(at)) {
            for (const here of each.cellsWith(element)) put(here, level);
          }
        });
      }
      each.mark(marks, each === panel ? cell : null, null);
    }
    this.sayFlow(panel, cell, trace);
  }

  sayFlow(panel, cell, trace) {
    const touched = new Set(trace.steps.map(({ at }) => this.flow.instances[at].op.line));
    this.lines.forEach((line, n) => line.classList.toggle("on", touched.has(n)));
    const turns = `${trace.pass} of 0 … ${trace.passes - 1}, which this cell holds in turn`;
    this.root.querySelector(".passes").textContent = trace.passes > 1 ? turns : "";
    if (!panel) return this.readout.replaceChildren(make("p", {}, "Nothing is chosen."));
    const lines = trace.steps.map((step) => make("li", {}, this.stepWords(step)));
    const more = lines.length - 24;
    const list = make("ol", {}, ...lines.slice(0, 24));
    if (more > 0) list.append(make("li", {}, `and ${more} more operations`));
    const what = panel.op
      ? `${panel.title}: address lane T${Math.floor(cell / panel.columns)}, lane T${panel.laneAt(cell)}`
      : this.whatWords(panel, cell);
    return this.readout.replaceChildren(make("b", {}, what), list);
  }

  whatWords(panel, cell) {
    const { space } = panel;
    const [element] = panel.elementsAt(cell);
    if (element === undefined) return `${panel.title}: nothing is held here`;
    const owners = ownersAt(space.owners, element).map((o) => ownerWords(space, o)[0]);
    return `${space.name}(${coordinate(element, space.shape).join(", ")}): ${owners.join("; ")}`;
  }

  /** Describe one operation of a trace. */
  stepWords({ at, moves }) {
    const instance = this.flow.instances[at];
    const { op, env } = instance;
    const when = Object.entries(env).map(([name, value]) => `${name} = ${value}: `).join("");
    if (op.kind === "mma") {
      const lines = (name, all) => {
        const found = [...new Set(all)].sort((a, b) => a - b);
        if (!found.length) return [];
        const shown = found.slice(0, 8).join(", ") + (found.length > 8 ? ", …" : "");
        return [`${name}${found.length > 1 ? "s" : ""} ${shown}`];
      };
      const rows = lines("row", moves.flatMap((each) => each.rows));
      const columns = lines("column", moves.flatMap((each) => each.columns));
      const both = moves.length > 1 && moves.some((each) => each.forward !== moves[0].forward);
      if (both || moves[0].forward) {
        return `${when}${op.shape} adds to ${[...rows, ...columns].join(" and ")} of ${op.into}`;
      }
      return `${when}${op.shape} adds ${rows} of ${op.a} times ${columns} of ${op.b}`;
    }
    const { from, into, by } = instance;
    const columns = op.kind === "ldmatrix" || op.kind === "stmatrix" ? 4 * this.flow.packOf(op) : 0;
    const told = moves.slice(0, 2).map((n) => {
      if (from[n] < 0) return `${this.cellWords(op.into, into[n])} becomes 0`;
      let who = op.kind === "transfer" ? ` by T${by[n]}` : "";
      if (columns) who = `, row address from lane ${Math.floor(by[n] / columns)}`;
      return `${this.cellWords(op.from, from[n])} → ${this.cellWords(op.into, into[n])}${who}`;
    });
    const more = moves.length > 2 ? ` and ${moves.length - 2} more` : "";
    return `${when}${op.kind === "transfer" ? "copy" : op.kind} ${told.join("; ")}${more}`;
  }

  cellWords(name, cell) {
    const space = this.flow.spaces.get(name);
    if (space.scope === "local") {
      return `${name}[${cell % space.registers}] of T${Math.floor(cell / space.registers)}`;
    }
    if (space.scope !== "shared") return `${name}[${cell}]`;
    return `${name}[${cell}] (bank ${Math.floor((cell * space.bits) / 32) % 32})`;
  }

  // -- state in the address ---------------------------------------------------------------------

  save() {
    if (!this.linked) return;
    const { at, pinned, lane, zoom, pass } = this.state;
    const kept = new URLSearchParams();
    if (at) kept.set("at", `${at.panel}.${at.cell}`);
    if (pinned) kept.set("pin", "1");
    if (lane !== this.doc.lane) kept.set("lane", lane);
    if (zoom !== 1) kept.set("zoom", zoom.toFixed(3));
    if (pass) kept.set("pass", pass);
    this.spaces.forEach((space, n) => {
      if (space.text !== space.given) kept.set(`layout${n}`, space.text);
      if (String(space.shape) !== String(space.shapeGiven)) kept.set(`shape${n}`, space.shape.join(","));
    });
    history.replaceState(null, "", `${location.pathname}${location.search}#${kept}`);
  }

  restore() {
    if (!this.linked) return this.show();
    const kept = new URLSearchParams(location.hash.slice(1));
    const number = (name, otherwise, least, most) => {
      const value = Number(kept.get(name) ?? otherwise);
      return value >= least && value <= most ? value : otherwise;
    };
    if (!this.flow) {
      this.spaces.forEach((space, n) => {
        // An address without a shape means the page's own, or one that fits; never the last shown.
        const text = kept.get(`layout${n}`) ?? space.given;
        const given = space.shapeGiven.join();
        const shape = kept.get(`shape${n}`) ?? (kept.has(`layout${n}`) ? null : given);
        const same = text === space.text && (shape ?? given) === space.shape.join();
        space.fields.text.value = text;
        space.fields.shape.value = shape?.split(",").join(", ") ?? space.shape.join(", ");
        if (same) this.accept(space.fields);
        else this.take(space, text, shape, space.shapeGiven);
      });
    }
    const zoom = number("zoom", 1, 0.25, 8);
    const [panel, cell] = (kept.get("at") ?? "").split(".").map(Number);
    const there = Number.isInteger(cell) && cell >= 0 && cell < (this.panels[panel]?.count ?? 0);
    const resized = zoom !== this.state.zoom;
    this.state = {
      at: there ? { panel, cell } : null,
      pinned: there && kept.get("pin") === "1",
      lane: Math.floor(number("lane", this.doc.lane, 0, 1023)),
      zoom,
      pass: Math.floor(number("pass", 0, 0, 99999)),
    };
    if (resized) this.resize();
    return this.show();
  }

  /** Choose an element of the first space, for the widget; null clears the choice. */
  choose(place, pinned) {
    const [{ shape }] = this.spaces;
    const element = place?.reduce((flat, index, dim) => flat * shape[dim] + index, 0);
    this.state.at = place ? { panel: 0, cell: element } : null;
    this.state.pinned = !!place && pinned;
    this.show();
  }

  /** The coordinate of the chosen element of the first space, or null. */
  get chosen() {
    const { at } = this.state;
    const panel = at && this.panels[at.panel];
    if (!panel || panel.space !== this.spaces[0]) return null;
    const [element] = panel.elementsAt(at.cell);
    return element === undefined ? null : coordinate(element, panel.space.shape);
  }
}

/** Operations with one key share a panel: they move matrices between the same spaces alike. */
const matrixKey = (op) => [op.kind, op.count, op.trans, op.from, op.into].join();

function extentsOf(text) {
  const parts = text.split(/[\s,x×]+/).filter(Boolean);
  if (!parts.length || !parts.every((part) => /^[1-9]\d{0,6}$/.test(part))) {
    throw new Refusal("a shape is numbers from 1 on with commas between, such as 16, 8", null, "shape");
  }
  return parts.map(Number);
}

function colored(color) {
  const made = make("i");
  made.style.background = color;
  return made;
}

/** The name of an owner with its part of a register, or byte and bank; and its coordinates. */
function ownerWords(space, o) {
  const { owners } = space;
  const bare = !owners.threads.length && !space.letter && owners.memory.length === 1;
  const name = [threadName(owners, o), bare && "address", memoryName(space, o)].filter(Boolean).join(" ");
  const place = owners.axes.map((axis) => `${axis} ${owners.values[axis][o]}`).join(", ");
  const slot = owners.memory.length ? owners.values[owners.memory[0]][o] : 0;
  let part = "";
  if (owners.threads.length && space.pack > 1) {
    const inside = modulo(slot, space.pack);
    const where = space.pack === 2 ? ["low half", "high half"][inside] : `element ${inside} of ${space.pack}`;
    part = `b32 register ${Math.floor(slot / space.pack)}, ${where}`;
  } else if (!owners.threads.length && space.bits && space.scope !== "local") {
    const bank = modulo(Math.floor((slot * space.bits) / 32), 32);
    part = byteWords(slot * space.bits, space.bits) + (space.scope === "shared" ? `, bank ${bank}` : "");
  }
  return [[name, part].filter(Boolean).join(", "), place];
}

/** The byte at which an element begins, and its bits there where it shares the byte. */
function byteWords(first, bits) {
  const [byte, bit] = [Math.floor(first / 8), modulo(first, 8)];
  if (bit === 0 && bits >= 8) return `byte ${byte}`;
  if (bits === 4) return `byte ${byte}, ${bit ? "high" : "low"} nibble`;
  if (bit + bits > 8) return `byte ${byte} from bit ${bit} on`;
  return `byte ${byte}, bit${bits > 1 ? "s" : ""} ${bit}${bits > 1 ? `–${bit + bits - 1}` : ""}`;
}

function ownerLine(space, o) {
  const [name, place] = ownerWords(space, o);
  return make("li", {}, make("b", {}, name), " ", make("span", { class: "place" }, place));
}

/** Show a document in an element; `hooks.change` is called when the choice or a text changes. */
function mount(root, doc, hooks = {}) {
  return new Explorer(root, doc, hooks);
}
