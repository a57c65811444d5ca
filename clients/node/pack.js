// Builds the published packages: `node pack.js OUT linux-x64=PROGRAM darwin-arm64=PROGRAM …`
//
// Each program becomes a separate package, which npm installs only on its platform. A copy of this package
// lists all of them as optional dependencies. The source tree does not list them, so that npm does not look
// them up there.
"use strict";

const fs = require("node:fs");
const path = require("node:path");

/** Writes the packages into a folder and returns their folders. */
function pack(out, programs) {
  const manifest = JSON.parse(fs.readFileSync(path.join(__dirname, "package.json"), "utf8"));
  const { version, license, homepage, repository } = manifest;
  manifest.optionalDependencies = {};
  const folders = Object.entries(programs).map(([platform, program]) => {
    const [os, cpu] = platform.split("-");
    const name = `@vellum/${platform}`;
    const folder = path.join(out, platform);
    const file = path.join(folder, "bin", os === "win32" ? "vellum.exe" : "vellum");
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.copyFileSync(program, file);
    fs.chmodSync(file, 0o755);
    const description = `The vellum server for ${platform}`;
    const own = { name, version, license, homepage, repository, description, os: [os], cpu: [cpu] };
    fs.writeFileSync(path.join(folder, "package.json"), JSON.stringify(own, null, 2) + "\n");
    manifest.optionalDependencies[name] = version;
    return folder;
  });
  const main = path.join(out, "memory-server");
  fs.mkdirSync(main, { recursive: true });
  for (const part of manifest.files) fs.cpSync(path.join(__dirname, part), path.join(main, part), { recursive: true });
  fs.writeFileSync(path.join(main, "package.json"), JSON.stringify(manifest, null, 2) + "\n");
  return [main, ...folders];
}

if (require.main === module) {
  const [out, ...programs] = process.argv.slice(2);
  if (!out || programs.length === 0) throw new Error("usage: node pack.js OUT PLATFORM=PROGRAM…");
  for (const folder of pack(out, Object.fromEntries(programs.map((part) => part.split("="))))) console.log(folder);
}

module.exports = { pack };
