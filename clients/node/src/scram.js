// The client's half of SCRAM-SHA-256 (RFC 7677), in MongoDB's variant.
"use strict";

const { createHash, createHmac, pbkdf2, randomBytes, timingSafeEqual } = require("node:crypto");
const { promisify } = require("node:util");

const ITERATIONS_MIN = 4096;

const hmac = (key, text) => createHmac("sha256", key).update(text).digest();

/** Parses the `name=value` pairs of a message. */
function fields(message) {
  return new Map(message.split(",").map((field) => [field[0], field.slice(2)]));
}

/** Authenticates. `send` sends a command and resolves to its reply with a binary payload. */
async function logIn({ user, password, source }, send) {
  const text = (reply) => Buffer.from(reply.payload.buffer).toString();
  const nonce = randomBytes(24).toString("base64");
  const bare = `n=${user.replaceAll("=", "=3D").replaceAll(",", "=2C")},r=${nonce}`;
  const begun = await send({
    saslStart: 1, mechanism: "SCRAM-SHA-256", payload: Buffer.from(`n,,${bare}`), options: { skipEmptyExchange: true },
  }, source);
  const offer = text(begun);
  const [joint, salt, iterations] = ["r", "s", "i"].map((name) => fields(offer).get(name));
  if (!joint?.startsWith(nonce) || !(Number(iterations) >= ITERATIONS_MIN)) {
    throw new Error("the server's SCRAM nonce does not begin with the client's nonce");
  }
  // SASLprep without the check for prohibited characters, which the server refuses.
  const prepared = password.normalize("NFKC");
  const salted = await promisify(pbkdf2)(prepared, Buffer.from(salt, "base64"), Number(iterations), 32, "sha256");
  const clientKey = hmac(salted, "Client Key");
  const final = `c=biws,r=${joint}`;
  const said = `${bare},${offer},${final}`;
  const signature = hmac(createHash("sha256").update(clientKey).digest(), said);
  const proof = clientKey.map((byte, at) => byte ^ signature[at]);
  const ended = await send({
    saslContinue: 1, conversationId: begun.conversationId, payload: Buffer.from(`${final},p=${Buffer.from(proof).toString("base64")}`),
  }, source);
  const shown = Buffer.from(fields(text(ended)).get("v") ?? "", "base64");
  const expected = hmac(hmac(salted, "Server Key"), said);
  if (shown.length !== expected.length || !timingSafeEqual(shown, expected) || !ended.done) {
    throw new Error("the server's SCRAM signature is wrong");
  }
}

module.exports = { logIn };
