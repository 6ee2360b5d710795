import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "asyncflow";

import { serve } from "./setup.js";

const known = { id: "t.1.1", type: "t", stage: "s" };

test("submitAndWait asks for the rest of the time when the task isn't final", async (t) => {
  const asked: string[] = [];
  const url = await serve(t, (req, res) => {
    asked.push(`${req.method} ${req.url}`);
    const [status, doc] =
      req.method === "POST"
        ? [202, { ...known, status: "running", existing: true }]
        : [200, { ...known, status: "succeeded", result: [1] }];
    res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(doc));
  });
  const task = await new Client(url, "a-token").submitAndWait({ type: "t", context: 1, key: "k" });
  assert.deepEqual(task, { ...known, status: "succeeded", result: [1], existing: true });
  assert.deepEqual(asked, ["POST /v1/tasks?wait=60000ms", "GET /v1/tasks/t.1.1?wait=60000ms"]);
});

test("submitAndWait submits first while the share of waiting calls is in use", async (t) => {
  const url = await serve(t, (req, res) => {
    const busy = req.method === "POST" && req.url?.includes("wait");
    const status = busy ? 429 : req.method === "POST" ? 201 : 200;
    const doc = { ...known, status: status === 201 ? "pending" : "failed" };
    res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(doc));
  });
  const c = new Client(url, "a-token", { retries: 0 });
  const task = await c.submitAndWait({ type: "t", context: 1 }, { timeoutMs: 60_000 });
  assert.equal(task.status, "failed");
});
