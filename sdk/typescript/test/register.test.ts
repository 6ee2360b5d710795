import assert from "node:assert/strict";
import { test } from "node:test";

import { AsyncflowError, Client, register, Worker } from "asyncflow";

import { secret, serve } from "./setup.js";

// Registers a worker at a stage with a timeout. A worker that would answer in time gets as far as
// the endpoints: there are none.
test("a timeout of mixed units is understood", async (t) => {
  let timeout = "";
  const url = await serve(t, (req, res) => {
    if (req.url === "/v1/task-types/t") {
      res.writeHead(200, { "Content-Type": "application/json" });
      res.end(JSON.stringify({ name: "t", stages: [{ name: "first", timeout }] }));
    } else res.writeHead(404).end();
  });
  const client = new Client(url, "a-token");
  const refusal = async (answerWithinMs: number) => {
    const worker = new Worker({ keys: [secret], answerWithinMs }).handle("t", "first", () => 1);
    try {
      await register(worker, { client, url });
    } catch (err) {
      if (err instanceof AsyncflowError) return [err.code, err.message].join(": ");
      throw err;
    }
    return "";
  };
  const minute = 60_000, hour = 60 * minute, day = 24 * hour;
  for (const [text, ms] of [
    ["1h30m", 1.5 * hour],
    ["1h30m0s", 1.5 * hour],
    ["0.5h1.5m", 31.5 * minute],
    ["1.h", hour],
    ["1m30s500ms", 90_500],
    ["1s1ms", 1001],
    ["1ms500us", 1.5],
    ["1ms500µs20000ns", 1.52],
    ["1w2d12h", 9.5 * day],
    ["30m1h", 1.5 * hour],
    ["1m1m", 2 * minute],
  ] as const) {
    timeout = text;
    const late = await refusal(ms * (1 + 1e-9));
    assert.ok(late.endsWith(`below the timeout of the stage first, ${text}`), `${text}: ${late}`);
    assert.match(await refusal(ms * (1 - 1e-9)), /^not_found: /, text);
  }
  for (const text of ["90", "h", "1h30", "1h 30m", "-1h", "1y", "1H", ".5h", "1..5h", "1e3s"]) {
    timeout = text;
    const unknown = await refusal(10);
    assert.ok(unknown.includes(`duration is "${text}"; it must be such as`), `${text}: ${unknown}`);
  }
});
