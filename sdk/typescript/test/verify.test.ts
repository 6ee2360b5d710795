import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { promisify } from "node:util";

import { Worker } from "asyncflow";
import { nodeHandler } from "asyncflow/node";

import { secret, serve } from "./setup.js";

const binary = process.env["ASYNCFLOW_BINARY"] ?? "";
const options = { skip: binary === "" ? "ASYNCFLOW_BINARY is not set" : false };

interface Check {
  name: string;
  result: string;
  detail: string;
}

test("asyncflow verify finds nothing wrong with a worker", options, async (t) => {
  const worker = new Worker({ keys: [secret], log: () => {} }).handle(
    "pipe",
    "first",
    (task) => task.context,
  );
  const at = await serve(t, nodeHandler(worker));
  const env = { ...process.env, ASYNCFLOW_ENDPOINT_SECRET: secret };
  const command = [
    "verify",
    at,
    "--type=pipe",
    "--stage=first",
    "--batch=2",
    "--allow-http",
    "--allow-private-networks",
    "-o",
    "json",
  ];
  const { stdout } = await promisify(execFile)(binary, command, { env }).catch(
    (err: { stdout: string }) => err,
  ); // its exit code says less
  const { checks } = JSON.parse(stdout) as { checks: Check[] };
  assert.deepEqual(
    checks.filter((c) => c.result === "failed"),
    [],
  );
  for (const name of [
    "challenge",
    "bad signature",
    "duplicate at once",
    "stale attempt",
    "batch",
  ]) {
    assert.equal(checks.find((c) => c.name === name)?.result, "passed", name);
  }
});

test("asyncflow verify --on-final finds nothing wrong with a worker", options, async (t) => {
  let told = 0;
  const worker = new Worker({ keys: [secret], log: () => {} }).handleFinal(() => void told++);
  const at = await serve(t, nodeHandler(worker));
  const env = { ...process.env, ASYNCFLOW_ENDPOINT_SECRET: secret };
  const command = ["verify", at, "--on-final", "--allow-http", "--allow-private-networks"];
  await promisify(execFile)(binary, command, { env }); // it exits with 0, or this throws
  assert.ok(told > 0);
});
