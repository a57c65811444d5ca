// Connection strings: address, credentials and TLS options of the server.
"use strict";

const fs = require("node:fs");

const TLS = ["tls", "ssl", "tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword", "tlsAllowInvalidCertificates",
  "tlsAllowInvalidHostnames", "tlsInsecure"];

/** Parses a connection string of one server. Refuses unsupported options by name. */
function parse(uri) {
  const match = /^mongodb:\/\/(?:([^@/]*)@)?(\[[^\]]+\]|[^:/,?]+)(?::(\d+))?(?:\/([^?]*))?(?:\?(.*))?$/.exec(uri);
  if (!match) throw new Error("the connection string must name one server");
  const [, user, host, port, database, query] = match;
  const options = new Map();
  for (const pair of (query ?? "").split("&").filter(Boolean)) {
    const [name, value = ""] = pair.split("=");
    const known = [...TLS, "authSource", "authMechanism"].find((known) => known.toLowerCase() === name.toLowerCase());
    if (known) options.set(known, decodeURIComponent(value));
    else if (/^(tls|ssl|auth)/i.test(name)) throw new Error(`the option ${name} is not supported`);
  }
  return { address: { host: host.replace(/^\[|\]$/g, ""), port: Number(port ?? 27017) }, login: login(user, database, options), tls: tls(options) };
}

function login(user, database, options) {
  const mechanism = options.get("authMechanism") ?? "SCRAM-SHA-256";
  if (mechanism !== "SCRAM-SHA-256") throw new Error(`the mechanism ${mechanism} is not supported: use SCRAM-SHA-256`);
  if (!user) return undefined;
  const [name, password] = user.split(":").map(decodeURIComponent);
  if (password === undefined) throw new Error("the connection string has a user but no password");
  return { user: name, password, source: options.get("authSource") ?? (decodeURIComponent(database ?? "") || "admin") };
}

function tls(options) {
  const isTrue = (name) => options.get(name) === "true";
  if (!isTrue("tls") && !isTrue("ssl")) return undefined;
  const read = (name) => (options.has(name) ? fs.readFileSync(options.get(name)) : undefined);
  const certificate = read("tlsCertificateKeyFile");
  const anyCertificate = isTrue("tlsInsecure") || isTrue("tlsAllowInvalidCertificates");
  return {
    ca: read("tlsCAFile"), cert: certificate, key: certificate, passphrase: options.get("tlsCertificateKeyFilePassword"),
    rejectUnauthorized: !anyCertificate, ...(isTrue("tlsAllowInvalidHostnames") ? { checkServerIdentity: () => undefined } : {}),
  };
}

module.exports = { parse };
