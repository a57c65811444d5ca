// What a test has changed, as text that doesn't vary from run to run: for assertions, and for approval files, which are
// kept beside a test and compared with it from then on.
//
// It is extended JSON (int32 as plain numbers). Fields of documents go by their names; what indexes and options are made
// of keeps its order, which matters there. In files ObjectIds, dates, timestamps and UUIDs are numbered as they appear, so
// that references can still be followed. The packages for PyTest, Go and JUnit write theirs alike.
"use strict";

const { AssertionError } = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { fileURLToPath } = require("node:url");
const { EJSON } = require("bson");

const LINE_MAX = 100;
const KINDS = { $oid: "ObjectId", $date: "Date", $timestamp: "Timestamp" };
/** The parts of an event that are of a test's documents; others describe collections and indexes. */
const OF_DOCUMENTS = ["documentKey", "fullDocument", "updateDescription"];

const anonymous = (kind) => `<${kind}>`;
const exact = (_kind, value) => value;

/** Compares changes with a file. It is written where VELLUM_APPROVE is set, or there is none yet (and this isn't CI). */
function approve(changes, file) {
  const name = typeof file === "string" ? file : fileURLToPath(file);
  const changed = text(changes, numbered());
  const exists = fs.existsSync(name);
  if (process.env.VELLUM_APPROVE || !(exists || process.env.CI)) {
    fs.mkdirSync(path.dirname(name), { recursive: true });
    fs.writeFileSync(name, changed);
    return;
  }
  const approved = exists ? fs.readFileSync(name, "utf8").replaceAll("\r\n", "\n") : "";
  same(changed, approved, `these aren't the changes in ${name}; VELLUM_APPROVE=1 writes it`);
}

/** Compares changes with the events that are expected, whose `ns` need no `db`. */
function assertSame(changes, expected) {
  same(text(changes, exact), text(expected, exact), "these aren't the changes that were expected");
}

/** Fails as Node's own assertions do: the message has the difference, and runners that show one themselves can. */
function same(actual, expected, what) {
  if (actual === expected) return;
  const error = new AssertionError({ actual, expected, operator: "strictEqual", stackStartFn: same });
  error.message = `${what}:\n${error.message}`;
  throw error;
}

/** Numbers volatile values of each kind as they appear. */
function numbered() {
  const names = new Map();
  const counts = {};
  return (kind, value) => {
    const key = kind + line(value);
    if (!names.has(key)) {
      counts[kind] = (counts[kind] ?? 0) + 1;
      names.set(key, `<${kind} ${counts[kind]}>`);
    }
    return names.get(key);
  };
}

/** Changes in their order: as the server has them, but documents with volatile keys last, and by all else. */
function text(changes, shown) {
  const placed = changes.map((change) => {
    const parts = EJSON.serialize(change, { relaxed: false });
    const key = parts.documentKey ?? {};
    const volatile = line(plain(key, anonymous, false)) !== line(plain(key, exact, false));
    return { parts, place: [parts.ns.coll, volatile ? line(event(parts, anonymous)) : ""] };
  });
  placed.sort((a, b) => compare(a.place[0], b.place[0]) || compare(a.place[1], b.place[1]));
  return print(placed.map(({ parts }) => event(parts, shown)), "") + "\n";
}

function compare(a, b) {
  return a < b ? -1 : Number(a > b);
}

/** An event without the database, whose name differs from run to run. Maps, as objects put keys like "10" first. */
function event(parts, shown) {
  const { updateDescription: update, ns } = parts;
  const own = { ...parts, ns: { coll: ns.coll } };
  if (update?.removedFields) own.updateDescription = { ...update, removedFields: [...update.removedFields].sort(compare) };
  return new Map(Object.entries(own).map(([name, part]) => [name, plain(part, shown, OF_DOCUMENTS.includes(name))]));
}

function plain(value, shown, byName) {
  if (Array.isArray(value)) return value.map((item) => plain(item, shown, byName));
  if (value === null || typeof value !== "object") return value;
  const fields = Object.entries(value);
  const [name, inner] = fields[0] ?? [];
  if (name === "$numberInt") return Number(inner);
  if (byName) fields.sort(([a], [b]) => compare(a, b));
  const whole = new Map(fields.map(([key, field]) => [key, plain(field, shown, byName)]));
  if (Object.hasOwn(KINDS, name ?? "")) return shown(KINDS[name], whole);
  return name === "$binary" && inner.subType === "04" ? shown("UUID", whole) : whole;
}

function line(value) {
  if (Array.isArray(value)) return `[${value.map(line).join(", ")}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  return `{${[...value].map(([name, field]) => `${JSON.stringify(name)}: ${line(field)}`).join(", ")}}`;
}

/** What fits goes into one line, except for the list of events itself. */
function print(value, indent) {
  const short = line(value);
  const several = Array.isArray(value) ? value.length > 0 : value instanceof Map && value.size > 0;
  if (!several || (indent && indent.length + short.length <= LINE_MAX)) return short;
  const deeper = indent + "  ";
  if (Array.isArray(value)) return `[\n${value.map((item) => deeper + print(item, deeper)).join(",\n")}\n${indent}]`;
  const fields = [...value].map(([name, field]) => `${deeper}${JSON.stringify(name)}: ${print(field, deeper)}`);
  return `{\n${fields.join(",\n")}\n${indent}}`;
}

module.exports = { approve, assertSame };
