// Prints the tensors of .binpb, .pbs and .tb files as JSON. Needs Node 18 or later and nothing else.
//
//     node read_tensors.mjs file.pbs
//
// Numbers follow protobuf's JSON mapping: 64-bit integers are strings, and so are "NaN",
// "Infinity", "-Infinity" and "-0"; bytes are base64. The formats are those of spec/frame.md.

import { readFileSync } from "node:fs";
import process, { argv, stderr, stdout } from "node:process";

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const real = (x) => (Object.is(x, -0) ? "-0" : Number.isFinite(x) ? x : String(x));

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

function brain(bits) { // bfloat16: the upper half of a float32
  return new Float32Array(new Uint32Array([bits << 16]).buffer)[0];
}

function truth(byte) {
  if (byte > 1) throw new Error(`the byte ${byte} is not a valid bool`);
  return byte === 1;
}

// code: [name, bytes for each element, how one is read from a DataView]
const DTYPES = {
  1: ["float32", 4, (d, i) => real(d.getFloat32(i, true))],
  2: ["float64", 8, (d, i) => real(d.getFloat64(i, true))],
  3: ["int32", 4, (d, i) => d.getInt32(i, true)],
  4: ["uint8", 1, (d, i) => d.getUint8(i)],
  5: ["int16", 2, (d, i) => d.getInt16(i, true)],
  6: ["int8", 1, (d, i) => d.getInt8(i)],
  8: ["complex64", 8, (d, i) => [0, 4].map((half) => real(d.getFloat32(i + half, true)))],
  9: ["int64", 8, (d, i) => String(d.getBigInt64(i, true))],
  10: ["bool", 1, (d, i) => truth(d.getUint8(i))],
  14: ["bfloat16", 2, (d, i) => real(brain(d.getUint16(i, true)))],
  17: ["uint16", 2, (d, i) => d.getUint16(i, true)],
  18: ["complex128", 16, (d, i) => [0, 8].map((half) => real(d.getFloat64(i + half, true)))],
  19: ["float16", 2, (d, i) => real(half(d.getUint16(i, true)))],
  22: ["uint32", 4, (d, i) => d.getUint32(i, true)],
  23: ["uint64", 8, (d, i) => String(d.getBigUint64(i, true))],
};

// ---- protobuf's wire format -------------------------------------------------

function varint(data, at) { // [value as a BigInt, next position]
  const first = at;
  let value = 0n;
  for (let shift = 0n; shift < 70n; shift += 7n, at++) {
    if (at >= data.length) throw new Error(`a number is cut off at byte ${first}`);
    value |= BigInt(data[at] & 0x7f) << shift;
    if (data[at] < 0x80 && value >> 64n === 0n) return [value, at + 1];
    if (data[at] < 0x80) break;
  }
  throw new Error(`a number of more than 64 bits at byte ${first}`);
}

// The fields of a message as {number, value}: a BigInt for wire type 0, bytes for the others.
// `wires` tells which wire type the fields that we know must have.
function* fields(data, wires) {
  for (let at = 0; at < data.length; ) {
    let tag, value;
    [tag, at] = varint(data, at);
    const number = Number(tag >> 3n), wire = Number(tag & 7n);
    if (number === 0 || ![0, 1, 2, 5].includes(wire)) throw new Error(`no field of a message at byte ${at}`);
    if (wire !== (wires[number] ?? wire)) throw new Error(`field ${number} has the wire type ${wire}`);
    if (wire === 0) {
      [value, at] = varint(data, at);
    } else {
      let size = BigInt(wire === 1 ? 8 : 4);
      if (wire === 2) [size, at] = varint(data, at);
      if (size > BigInt(data.length - at))
        throw new Error(`field ${number} claims ${size} bytes where ${data.length - at} are left`);
      value = data.subarray(at, at + Number(size));
      at += Number(size);
    }
    yield { number, value };
  }
}

function addEntry(map, data) { // one key and value of a map of strings
  const pair = { 1: "", 2: "" };
  for (const { number, value } of fields(data, { 1: 2, 2: 2 })) if (number in pair) pair[number] = utf8.decode(value);
  if (Object.hasOwn(map, pair[1])) throw new Error(`the metadata "${pair[1]}" is stored twice`);
  Object.defineProperty(map, pair[1], { value: pair[2], enumerable: true }); // "__proto__" is a key like any other
}

function shapeOf(data) {
  const shape = [];
  for (const dim of fields(data, { 2: 2, 3: 0 })) {
    if (dim.number !== 2) throw new Error("the shape is unknown");
    let size = 0n;
    for (const { number, value } of fields(dim.value, { 1: 0 })) if (number === 1) size = value;
    shape.push(Number(size));
  }
  return shape;
}

function stepOf(data) { // one step of a tensor's path in a structure
  for (const { number, value } of fields(data, { 1: 2, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0 })) {
    if (number === 1) return { key: utf8.decode(value) };
    if (number === 2) return { number: String((value >> 1n) ^ -(value & 1n)) };
    if (number === 3 || number === 4) return { [number === 3 ? "list" : "tuple"]: Number(value) };
    if (number === 5) return "named"; // the key is the tensor's name
    if (number === 6) return { mask: Number(value) }; // of a table's column
  }
  throw new Error("a path step without a kind");
}

// ---- one message ------------------------------------------------------------

const WIRES = { 1: 0, 2: 2, 4: 2, 8: 2, 1000: 2, 1001: 2, 1002: 2, 1003: 0, 1004: 0, 1005: 0, 1006: 2, 1007: 2,
  1008: 2, 1009: 2, 1010: 2, 1011: 5, 1014: 2, 1015: 2, 1016: 0, 1017: 0 };

export function tensor(data, inner = false) {
  const found = { name: undefined, dtype: undefined, shape: [], meta: {}, origin: {}, path: [], part: 0, parts: 1,
    document: {}, document_origin: {} };
  let code = 0, content = new Uint8Array(0);
  const strings = [];
  for (const { number, value } of fields(data, WIRES)) {
    if (number > 1011 && number < 1500 && !(number in WIRES)) throw new Error(`field ${number} is of a later version`);
    if (inner && number >= 1000 && number < 1500 && number !== 1008 && number !== 1010)
      throw new Error(`field ${number} in a part of a ragged or sparse value`);
    if (number === 1) code = Number(value);
    else if (number === 2) found.shape.push(...shapeOf(value));
    else if (number === 4) content = value;
    else if (number === 8) strings.push(value);
    else if (number > 4 && number < 19) throw new Error(`values in field ${number}, which this example does not read`);
    else if (number === 1000) found.name = utf8.decode(value);
    else if (number === 1001) addEntry(found.meta, value);
    else if (number === 1002) found.path.push(stepOf(value));
    else if (number === 1003) found.part = Number(value);
    else if (number === 1004) found.parts = Number(value);
    else if (number === 1005) found.item = Number(value);
    else if (number === 1006) found.kind = utf8.decode(value);
    else if (number === 1007) found.layout = utf8.decode(value);
    else if (number === 1008) found.encoding = utf8.decode(value);
    else if (number === 1009) addEntry(found.document, value);
    else if (number === 1014) addEntry(found.origin, value);
    else if (number === 1015) addEntry(found.document_origin, value);
    else if (number === 1016) found.rows = Number(value);
    else if (number === 1017) found.alias = Number(value);
  }
  if ((found.layout === "alias") !== (found.alias !== undefined) || found.alias >= found.part)
    throw new Error("an alias must name a part that comes before it");
  return Object.assign(found, valuesOf(code, found, content, strings));
}

function valuesOf(code, { shape, layout, encoding }, content, strings) {
  const count = shape.reduce((a, b) => a * b, 1);
  if (code === 7) {
    if (strings.length !== count || content.length) throw new Error(`${count} strings expected, got ${strings.length}`);
    if (layout === "alias") return { dtype: layout, values: strings.map((raw) => utf8.decode(raw)) };
    if (layout !== undefined) return { dtype: layout, pieces: strings.map((raw) => tensor(raw, true)) };
    const text = (raw) => (encoding ? utf8.decode(raw) : Buffer.from(raw).toString("base64"));
    return { dtype: "string", values: strings.map(text) };
  }
  if (code === 0 || strings.length || layout !== undefined)
    throw new Error("not a tensor: no dtype, or strings among numbers");
  const [dtype, size, read] = DTYPES[code] ?? [`code ${code}`];
  if (!read) return { dtype, content: Buffer.from(content).toString("base64") };
  if (content.length !== count * size)
    throw new Error(`${dtype} [${shape}] takes ${count * size} bytes, got ${content.length}`);
  const view = new DataView(content.buffer, content.byteOffset, content.length);
  return { dtype, values: Array.from({ length: count }, (_, i) => read(view, i * size)) };
}

// ---- files ------------------------------------------------------------------

const CRC = Uint32Array.from({ length: 256 }, (_, n) => {
  for (let bit = 0; bit < 8; bit++) n = n & 1 ? (n >>> 1) ^ 0x82f63b78 : n >>> 1;
  return n;
});

function maskedCrc(data) {
  let crc = 0xffffffff;
  for (const byte of data) crc = (crc >>> 8) ^ CRC[(crc ^ byte) & 255];
  crc = ~crc >>> 0;
  return (((crc >>> 15) | (crc << 17)) + 0xa282ead8) >>> 0;
}

function* records(data) { // the payloads of a .tb file
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  for (let at = 0; at < data.length; ) {
    if (data.length - at < 16) throw new Error(`the file ends inside a record at byte ${at}`);
    if (view.getUint32(at + 8, true) !== maskedCrc(data.subarray(at, at + 8)))
      throw new Error(`the checksum of a record's length differs at byte ${at}`);
    const size = view.getBigUint64(at, true), start = at + 12;
    if (size > BigInt(data.length - start - 4)) throw new Error(`a record runs past the end of the file at byte ${at}`);
    at = start + Number(size);
    const payload = data.subarray(start, at);
    if (view.getUint32(at, true) !== maskedCrc(payload))
      throw new Error(`the checksum of a record's data differs at byte ${start}`);
    yield payload;
    at += 4;
  }
}

function* messages(data) { // those of a .pbs file
  for (let at = 0; at < data.length; ) {
    const [size, start] = varint(data, at);
    if (size === 0n) throw new Error(`a message of no bytes at byte ${at}`);
    if (size > BigInt(data.length - start)) throw new Error(`a message runs past the end of the file at byte ${at}`);
    at = start + Number(size);
    yield data.subarray(start, at);
  }
}

export function* tensors(data, suffix) {
  const payloads = suffix === "tb" ? records(data) : suffix === "pbs" ? messages(data) : [data];
  let due = 0, parts = 1;
  for (const payload of payloads) {
    const found = tensor(payload);
    if (found.part !== due || due >= found.parts || (due && found.parts !== parts))
      throw new Error(`part ${found.part} of ${found.parts} where part ${due} was due`);
    parts = found.parts;
    due = (due + 1) % parts;
    yield found;
  }
  if (due) throw new Error(`the file ends after ${due} of ${parts} tensors of an object`);
}

const paths = argv.slice(2);
if (!paths.length) {
  stderr.write("usage: node read_tensors.mjs file.binpb | file.pbs | file.tb ...\n");
  process.exitCode = 2;
}
for (const path of paths) {
  try {
    const suffix = path.slice(path.lastIndexOf(".") + 1);
    const lines = Array.from(tensors(readFileSync(path), suffix), (found) => JSON.stringify(found));
    stdout.write(`[${lines.join(",\n")}]\n`);
  } catch (error) {
    stderr.write(`${path}: ${error.message}\n`);
    process.exitCode = 1;
  }
}
