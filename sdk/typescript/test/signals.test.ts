import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, ProblemError } from "asyncflow";

import { serve, textOf } from "./setup.js";

test("a signal with an idempotency key is sent again, one without is not", async (t) => {
  const got: [string | undefined, string][] = [];
  const url = await serve(t, async (req, res) => {
    got.push([req.headers["idempotency-key"] as string | undefined, await textOf(req)]);
    const status = got.length % 2 === 1 ? 503 : 202;
    const doc = { name: "approved", type: "orders", kept_until: "2026-01-01T00:00:00Z" };
    res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(doc));
  });
  const c = new Client(url, "a-token");
  const signal = { name: "approved", type: "orders", key: "k", data: { by: "anna" } };
  const sent = await c.sendSignal(signal, { idempotencyKey: "one" });
  assert.equal(sent.type, "orders");
  const text = JSON.stringify(signal);
  assert.deepEqual(got, [["one", text], ["one", text]]);
  await assert.rejects(c.sendSignal(signal), ProblemError);
  assert.equal(got.length, 3);
});
