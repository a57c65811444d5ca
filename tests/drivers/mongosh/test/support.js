// Shared code of the test files: a run of mongosh, in which a warning about the server is a failure.

import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after } from 'node:test';

export const uri = process.env.VELLUM_URI;
const require = createRequire(import.meta.url);
const shell = join(dirname(require.resolve('mongosh/package.json')), 'bin', 'mongosh.js');

// A separate home folder: no history, no configuration, and telemetry off before the first run.
export const home = mkdtempSync(join(tmpdir(), 'mongosh-home-'));
after(() => rmSync(home, { recursive: true, force: true }));

/** Runs mongosh. Resolves to its trimmed standard output, or rejects with its whole output. */
export function mongosh(args, input, address = uri) {
  const environment = { ...process.env, HOME: home, MONGOSH_FORCE_DISABLE_TELEMETRY_FOR_TESTING: '1', NO_COLOR: '1' };
  return new Promise((resolve, reject) => {
    const child = execFile(process.execPath, [shell, address, ...args], { env: environment, timeout: 30_000 },
      (error, stdout, stderr) => {
        const said = `${stdout}\n${stderr}`;
        if (/warning|non-genuine|emulation|deprecat.*server/i.test(withoutGreeting(withoutNodeAdvice(said)))) {
          return reject(new Error(`mongosh warns:\n${said}`));
        }
        if (error) return reject(new Error(reasonIn(stdout) ?? `mongosh ended with ${error.code ?? error.signal}:\n${said}`));
        return resolve(stdout.trim());
      });
    if (input !== undefined) child.stdin.write(input);
    child.stdin.end();
  });
}

/** With --json, mongosh prints an uncaught error as a document. */
function reasonIn(stdout) {
  try {
    const { name, code, message } = JSON.parse(stdout);
    return message && `${name} ${code ?? ''}: ${message}`;
  } catch {
    return undefined;
  }
}

/** Warnings of mongosh about Node.js, which are not about the server. */
function withoutNodeAdvice(text) {
  return text.replace(/Deprecation warnings:\n(?:\s+- Using mongosh with Node\.js.*\n)+.*documentation on supported platforms\./, '');
}

/** Start-up warnings of the server, which shells print. */
function withoutGreeting(text) {
  return text.replace(/The server generated these startup warnings when booting\n\s+\S+: The memory engine is in use[^\n]*\n/, '');
}
