// Changes of a test as text that is equal in every run: for assertions, and for approval files, which are
// kept next to a test and compared with its later runs.
//
// The text is extended JSON with int32 as plain numbers. Fields of documents are sorted by name. Indexes and
// options keep their order, which is significant. In files, ObjectIds, dates, timestamps and UUIDs are
// numbered in order of appearance. Equal values get equal numbers. The packages for PyTest, Go and JUnit
// use the same format.
"use strict";

const { AssertionError } = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { fileURLToPath } = require("node:url");
const { EJSON } = require("bson");

const LINE_MAX = 100;
const KINDS = { $oid: "ObjectId", $date: "Date", $timestamp: "Timestamp" };
/** Fields of an event that contain a test's documents. Other fields describe collections and indexes. */
const DOCUMENT_FIELDS = ["documentKey", "fullDocument", "updateDescription"];

const anonymous = (kind) => `<${kind}>`;
const exact = (_kind, value) => value;

/** Compares changes with a file. Writes the file if VELLUM_APPROVE is set, or if it is missing (except in CI). */
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
  assertEqual(changed, approved, `the changes differ from ${name}; VELLUM_APPROVE=1 writes the file`);
}

/** Compares changes with the expected events, whose `ns` need no `db`. */
function assertSame(changes, expected) {
  assertEqual(text(changes, exact), text(expected, exact), "the changes differ from the expected changes");
}

/** Throws like Node's assertions: the message has the difference, and the error has both values for the runner. */
function assertEqual(actual, expected, title) {
  if (actual === expected) return;
  const error = new AssertionError({ actual, expected, operator: "strictEqual", stackStartFn: assertEqual });
  error.message = `${title}:\n${error.message}`;
  throw error;
}

/** Numbers volatile values of each kind in order of appearance. */
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

/**
 * Returns the changes in the server's order, but documents with volatile keys last, sorted by their other
 * contents.
 */
function text(changes, replace) {
  const sorted = changes.map((change) => {
    const parts = EJSON.serialize(change, { relaxed: false });
    const key = parts.documentKey ?? {};
    const volatile = line(plain(key, anonymous, false)) !== line(plain(key, exact, false));
    return { parts, sortKey: [parts.ns.coll, volatile ? line(event(parts, anonymous)) : ""] };
  });
  sorted.sort((a, b) => compare(a.sortKey[0], b.sortKey[0]) || compare(a.sortKey[1], b.sortKey[1]));
  return print(sorted.map(({ parts }) => event(parts, replace)), "") + "\n";
}

function compare(a, b) {
  return a < b ? -1 : Number(a > b);
}

/**
 * Returns an event without the database: its name differs in each run. Uses maps: objects sort keys
 * like "10" first.
 */
function event(parts, replace) {
  const { updateDescription: update, ns } = parts;
  const own = { ...parts, ns: { coll: ns.coll } };
  if (update?.removedFields) own.updateDescription = { ...update, removedFields: [...update.removedFields].sort(compare) };
  return new Map(Object.entries(own).map(([name, part]) => [name, plain(part, replace, DOCUMENT_FIELDS.includes(name))]));
}

/** Returns a value with plain int32 and replaced volatile values. `byName` sorts fields of documents. */
function plain(value, replace, byName) {
  if (Array.isArray(value)) return value.map((item) => plain(item, replace, byName));
  if (value === null || typeof value !== "object") return value;
  const fields = Object.entries(value);
  const [name, inner] = fields[0] ?? [];
  if (name === "$numberInt") return Number(inner);
  if (byName) fields.sort(([a], [b]) => compare(a, b));
  const plainFields = new Map(fields.map(([key, field]) => [key, plain(field, replace, byName)]));
  if (Object.hasOwn(KINDS, name ?? "")) return replace(KINDS[name], plainFields);
  return name === "$binary" && inner.subType === "04" ? replace("UUID", plainFields) : plainFields;
}

function line(value) {
  if (Array.isArray(value)) return `[${value.map(line).join(", ")}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  return `{${[...value].map(([name, field]) => `${JSON.stringify(name)}: ${line(field)}`).join(", ")}}`;
}

/** Prints a value on one line if it fits, except the list of events itself. */
function print(value, indent) {
  const short = line(value);
  const splittable = Array.isArray(value) ? value.length > 0 : value instanceof Map && value.size > 0;
  if (!splittable || (indent && indent.length + short.length <= LINE_MAX)) return short;
  const deeper = indent + "  ";
  if (Array.isArray(value)) return `[\n${value.map((item) => deeper + print(item, deeper)).join(",\n")}\n${indent}]`;
  const fields = [...value].map(([name, field]) => `${deeper}${JSON.stringify(name)}: ${print(field, deeper)}`);
  return `{\n${fields.join(",\n")}\n${indent}}`;
}

module.exports = { approve, assertSame };
