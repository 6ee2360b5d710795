import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, etagOf, ProblemError } from "asyncflow";

import { serve } from "./setup.js";

test("a change is made only if nobody else has made one", async (t) => {
  const sent: string[] = [];
  const url = await serve(t, (req, res) => {
    const { "if-match": match, "if-none-match": none } = req.headers;
    sent.push([req.method, match, none].filter(Boolean).join(" "));
    if (match === '"old"') {
      res.writeHead(412).end(); // without a problem, as of a proxy
      return;
    }
    // weak: a proxy has compressed it
    res.writeHead(200, { "Content-Type": "application/json", ETag: 'W/"now"' }).end('{"name":"t"}');
  });
  const c = new Client(url, "a-token");
  const read = await c.taskType("t");
  assert.deepEqual(read, { name: "t" });
  assert.equal(etagOf(read), '"now"');
  const changed = await c.putTaskType("t", { stages: [] }, { ifMatch: etagOf(read) });
  assert.equal(etagOf(changed), '"now"');
  await c.putTaskType("t", { stages: [] }, { ifNew: true });
  await c.putTaskType("t", { stages: [] });
  await c.deleteEndpoint("e", { ifMatch: '"now"' });
  await assert.rejects(c.putTaskType("t", { stages: [] }, { ifMatch: '"old"' }),
    (err) => err instanceof ProblemError && err.code === "precondition_failed");
  assert.deepEqual(sent,
    ["GET", 'PUT "now"', "PUT *", "PUT", 'DELETE "now"', 'PUT "old"']);
});
