// Writes tensors as a .pbs file: size-delimited messages that tensorbytes, and protobuf's libraries, read.
//
//     node write_tensors.mjs out.pbs
//     python -c "import tensorbytes as tb; print(tb.load('out.pbs'))"

import { writeFileSync } from "node:fs";
import { argv, exit, stderr } from "node:process";

const utf8 = new TextEncoder();
const CODES = new Map([
  [Float32Array, 1], [Float64Array, 2], [Int32Array, 3], [Uint8Array, 4], [Int16Array, 5], [Int8Array, 6],
  [BigInt64Array, 9], [Uint16Array, 17], [Uint32Array, 22], [BigUint64Array, 23],
]);

function varint(value) {
  const out = [];
  for (value = BigInt.asUintN(64, BigInt(value)); value > 127n; value >>= 7n) out.push(Number(value & 127n) | 128);
  return Uint8Array.from([...out, Number(value)]);
}

const join = (...pieces) => Buffer.concat(pieces);
const number = (field, value) => join(varint(field << 3), varint(value));
const bytes = (field, raw) => join(varint((field << 3) | 2), varint(raw.length), raw);
const text = (field, string) => bytes(field, utf8.encode(string));

function head(code, shape) { // dtype and tensor_shape
  const dims = shape.map((size) => bytes(2, size ? number(1, size) : new Uint8Array(0)));
  return join(number(1, code), bytes(2, join(...dims)));
}

// A Tensor message. `values`: a typed array, or an array of strings or of booleans. `extra`: fields of tensorbytes.
export function message(values, shape, extra = new Uint8Array(0)) {
  if (shape.reduce((a, b) => a * b, 1) !== values.length) throw new Error(`${values.length} values for [${shape}]`);
  if (Array.isArray(values) && typeof values[0] === "string")
    return join(head(7, shape), extra, text(1008, "utf-8"), ...values.map((item) => text(8, item)));
  const code = Array.isArray(values) ? 10 : CODES.get(values.constructor);
  if (code === undefined) throw new Error(`no dtype for ${values.constructor.name}`);
  const raw = Array.isArray(values)
    ? Uint8Array.from(values, Number)
    : new Uint8Array(values.buffer, values.byteOffset, values.byteLength); // little-endian, as all of Node's machines
  return join(head(code, shape), extra, raw.length ? bytes(4, raw) : raw);
}

export function metadata(entries, field = 1001) {
  const pairs = Object.entries(entries).sort(([a], [b]) => (a < b ? -1 : 1));
  return join(...pairs.map(([key, value]) => bytes(field, join(text(1, key), text(2, value)))));
}

// An object {name: [values, shape, metadata]}: one message for each, which Python reads as one dict.
export function* dict(tensors) {
  const names = Object.keys(tensors);
  for (const [part, name] of names.entries()) {
    const [values, shape, meta = {}] = tensors[name];
    const place = names.length > 1 ? join(number(1003, part), number(1004, names.length)) : new Uint8Array(0);
    const named = bytes(1002, number(5, 1)); // the path is one step: the key that is the name
    const body = message(values, shape, join(text(1000, name), metadata(meta), named, place));
    yield join(varint(body.length), body);
  }
}

try {
  if (!argv[2]) throw new Error("usage: node write_tensors.mjs out.pbs");
  const pieces = dict({
    weights: [Float32Array.of(1.5, -2, 0.1, 4, 5, -0), [2, 3], { unit: "volt" }],
    counts: [BigInt64Array.of(-1n, 2n ** 62n), [2]],
    flags: [[true, false, true], [3]],
    texts: [["Grüße", "", "漢字"], [3, 1]],
    empty: [new Uint16Array(0), [0, 4]],
    scalar: [Float64Array.of(Math.PI), []],
  });
  writeFileSync(argv[2], join(...pieces));
} catch (error) {
  stderr.write(`${argv[2] ?? "write_tensors"}: ${error.message}\n`);
  exit(1);
}
