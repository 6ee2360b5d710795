import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import type { Readable } from "node:stream";
import { test } from "node:test";

import { Client } from "asyncflow";

import { freePort } from "./setup.js";

const [url, token] = [process.env["ASYNCFLOW_URL"] ?? "", process.env["ASYNCFLOW_TOKEN"] ?? ""];
const options = { skip: url === "" ? "ASYNCFLOW_URL and ASYNCFLOW_TOKEN are not set" : false };
const program = (name: string) => new URL(`docs/${name}.js`, import.meta.url).pathname;

// Ends a process when its standard input does: also when this one is killed.
const endsWithUs = "data:text/javascript,process.stdin.resume().once('end',()=>process.exit(1)).unref()";

test("the programs of docs/typescript.md", options, async (t) => {
  const stage = (name: string) => ({ name, retry: { max_attempts: 2, interval: -0.1 } });
  await new Client(url, token).putTaskType("images", { stages: [stage("inspect"), stage("resize")] });
  const port = await freePort();
  const env = { ...process.env, PORT: String(port), WORKER_URL: `http://127.0.0.1:${port}` };
  const worker = spawn(process.execPath, ["--import", endsWithUs, program("worker")], { env, stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise<number | null>((resolve) => worker.once("exit", resolve));
  t.after(() => worker.kill("SIGKILL"));
  await registered(worker.stdout, 2);
  const out = execFileSync(process.execPath, [program("submit")], { env, encoding: "utf8", timeout: 60_000 });
  assert.match(out, /^images\.\d+\.\d+\nsucceeded \{ width: 800, height: 500 \}\n/);
  worker.kill("SIGTERM");
  assert.equal(await ended, 0);
});

/** Resolves when a worker has said n times that a stage is registered. */
async function registered(log: Readable, n: number): Promise<void> {
  let said = "";
  for await (const part of log.iterator({ destroyOnReturn: false })) {
    said += String(part);
    if (said.split('"registered"').length > n) return void log.resume();
  }
  assert.fail(said);
}

test("the package has what its users need, and nothing else", () => {
  const out = execFileSync("npm", ["pack", "--dry-run", "--ignore-scripts", "--json"], { encoding: "utf8", cwd: new URL("../..", import.meta.url) });
  const [{ files }] = JSON.parse(out) as [{ files: { path: string }[] }];
  const names = files.map((f) => f.path);
  for (const name of ["package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/node.js", "dist/node.d.ts"]) assert.ok(names.includes(name), name);
  assert.deepEqual(names.filter((n) => !/^(package\.json|README\.md|LICENSE|dist\/[a-z.]+\.(js|d\.ts))$/.test(n)), []);
});
