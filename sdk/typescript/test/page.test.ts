import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { test } from "node:test";

import { Client } from "asyncflow";

import { freePort } from "./setup.js";

const [url, token] = [process.env["ASYNCFLOW_URL"] ?? "", process.env["ASYNCFLOW_TOKEN"] ?? ""];
const options = { skip: url === "" ? "ASYNCFLOW_URL and ASYNCFLOW_TOKEN are not set" : false };
const program = (name: string) => new URL(`docs/${name}.js`, import.meta.url).pathname;

// Ends the process when its standard input ends, also if this process is killed.
const endsWithUs =
  "data:text/javascript,process.stdin.resume().once('end',()=>process.exit(1)).unref()";

test("the programs of docs/typescript.md", options, async (t) => {
  const stage = (name: string) => ({ name, retry: { max_attempts: 2, interval: -0.1 } });
  await new Client(url, token).putTaskType("images", {
    stages: [stage("inspect"), stage("resize")],
  });
  const port = await freePort();
  const env = { ...process.env, PORT: String(port), WORKER_URL: `http://127.0.0.1:${port}` };
  const worker = spawn(process.execPath, ["--import", endsWithUs, program("worker")], {
    env,
    stdio: ["pipe", "pipe", "inherit"],
  });
  const ended = new Promise<number | null>((resolve) => worker.once("exit", resolve));
  t.after(() => worker.kill("SIGKILL"));
  await registered(worker.stdout, 2);
  const out = execFileSync(process.execPath, [program("submit")], {
    env,
    encoding: "utf8",
    timeout: 180_000,
  });
  assert.match(out, /^images\.\d+\.\d+\nsucceeded \{ width: 800, height: 500 \}\n/);
  worker.kill("SIGTERM");
  assert.equal(await ended, 0);
});

/** Resolves when a worker has logged n times that a stage is registered. */
async function registered(log: Readable, n: number): Promise<void> {
  let said = "";
  for await (const part of log.iterator({ destroyOnReturn: false })) {
    said += String(part);
    if (said.split('"registered"').length > n) return void log.resume();
  }
  assert.fail(said);
}

test("the package can be imported when packed, and has only what its users need", (t) => {
  const [here, temp] = [
    new URL("../..", import.meta.url).pathname,
    mkdtempSync(join(tmpdir(), "asyncflow-pack-")),
  ];
  t.after(() => rmSync(temp, { recursive: true }));
  const [source, unpacked] = [
    join(temp, "sdk/typescript"),
    join(temp, "app/node_modules/asyncflow"),
  ];
  // prepack rebuilds dist, in which this test runs. Pack a copy instead; in the short form of the
  // tests one of what is built already, without that script.
  const long = process.env["ASYNCFLOW_TEST_LONG"] === "1";
  mkdirSync(source, { recursive: true });
  if (!long) {
    copyFileSync(join(here, "../../LICENSE"), join(source, "LICENSE"));
    cpSync(join(here, "dist"), join(source, "dist"), { recursive: true });
  }
  for (const name of ["package.json", "tsconfig.json", "README.md", "src"])
    cpSync(join(here, name), join(source, name), { recursive: true });
  symlinkSync(join(here, "node_modules"), join(source, "node_modules"));
  copyFileSync(join(here, "../../LICENSE"), join(temp, "LICENSE"));
  const pack = ["pack", "--offline", "--silent", "--pack-destination", temp];
  execFileSync("npm", long ? pack : [...pack, "--ignore-scripts"], { cwd: source });

  const [file = assert.fail()] = readdirSync(temp).filter((name) => name.endsWith(".tgz"));
  mkdirSync(unpacked, { recursive: true });
  execFileSync("tar", ["-xzf", join(temp, file), "--strip-components=1", "-C", unpacked]);
  const names = readdirSync(unpacked, { recursive: true }).map(String);
  for (const name of [
    "package.json",
    "README.md",
    "LICENSE",
    "dist/index.js",
    "dist/index.d.ts",
    "dist/node.js",
    "dist/node.d.ts",
  ])
    assert.ok(names.includes(name), name);
  assert.deepEqual(
    names.filter(
      (name) => !/^(package\.json|README\.md|LICENSE|dist|dist\/[a-z.]+\.(js|d\.ts))$/.test(name),
    ),
    [],
  );

  const app = `import { Client, Worker } from "asyncflow";
    import { listen } from "asyncflow/node";
    console.log(typeof Client, typeof Worker, typeof listen)`;
  const out = execFileSync(process.execPath, ["--input-type=module", "--eval", app], {
    cwd: join(temp, "app"),
    encoding: "utf8",
  });
  assert.equal(out, "function function function\n");
});
