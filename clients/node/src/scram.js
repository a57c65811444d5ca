// The client's half of SCRAM-SHA-256 (RFC 7677), in MongoDB's variant. Names are as in the RFC.
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
  const clientFirstBare = `n=${user.replaceAll("=", "=3D").replaceAll(",", "=2C")},r=${nonce}`;
  const firstReply = await send({
    saslStart: 1, mechanism: "SCRAM-SHA-256", payload: Buffer.from(`n,,${clientFirstBare}`), options: { skipEmptyExchange: true },
  }, source);
  const serverFirst = text(firstReply);
  const [serverNonce, salt, iterations] = ["r", "s", "i"].map((name) => fields(serverFirst).get(name));
  if (!serverNonce?.startsWith(nonce) || !(Number(iterations) >= ITERATIONS_MIN)) {
    throw new Error("the server's SCRAM nonce does not begin with the client's nonce");
  }
  // SASLprep without the check for prohibited characters, which the server refuses.
  const prepared = password.normalize("NFKC");
  const saltedPassword = await promisify(pbkdf2)(prepared, Buffer.from(salt, "base64"), Number(iterations), 32, "sha256");
  const clientKey = hmac(saltedPassword, "Client Key");
  const clientFinal = `c=biws,r=${serverNonce}`;
  const authMessage = `${clientFirstBare},${serverFirst},${clientFinal}`;
  const clientSignature = hmac(createHash("sha256").update(clientKey).digest(), authMessage);
  const proof = clientKey.map((byte, at) => byte ^ clientSignature[at]);
  const finalReply = await send({
    saslContinue: 1, conversationId: firstReply.conversationId, payload: Buffer.from(`${clientFinal},p=${Buffer.from(proof).toString("base64")}`),
  }, source);
  const signature = Buffer.from(fields(text(finalReply)).get("v") ?? "", "base64");
  const expected = hmac(hmac(saltedPassword, "Server Key"), authMessage);
  if (signature.length !== expected.length || !timingSafeEqual(signature, expected) || !finalReply.done) {
    throw new Error("the server's SCRAM signature is wrong");
  }
}

module.exports = { logIn };
