import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import type { FinalEvent } from "asyncflow";

import { Bench, secret } from "./setup.js";

const event: FinalEvent = {
  id: "final-mail.1.7.3",
  type: "task.failed",
  timestamp: "2026-11-21T10:00:01Z",
  data: {
    id: "mail.1.7",
    type: "mail",
    status: "failed",
    attempts: 2,
    created_at: "2026-11-21T10:00:00Z",
    finished_at: "2026-11-21T10:00:01Z",
    error: "no",
  },
};

async function tell(url: string, body: string, key = secret): Promise<Response> {
  const at = Math.floor(Date.now() / 1000);
  const mac = createHmac("sha256", Buffer.from(key.slice("whsec_".length), "base64"));
  const signature = mac.update(`${event.id}.${at}.${body}`).digest("base64");
  return fetch(`${url}/ended`, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      "Webhook-Id": event.id,
      "Webhook-Timestamp": `${at}`,
      "Webhook-Signature": `v1,${signature}`,
    },
    body,
  });
}

test("a worker handles events, and what fails comes again", async (t) => {
  const got: FinalEvent[] = [];
  let fail = "";
  const b = await Bench.start(t, () => {});
  const doc = JSON.stringify(event);
  assert.equal((await tell(b.workerURL, doc)).status, 404);
  b.worker.handleFinal(async (e) => {
    got.push(e);
    if (fail) throw new Error(fail);
  });
  assert.equal((await tell(b.workerURL, doc)).status, 204);
  assert.deepEqual(got, [event]);
  fail = "the disk is full";
  const answer = await tell(b.workerURL, doc);
  assert.deepEqual([answer.status, await answer.json()], [500, { error: fail }]);
  const other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
  assert.equal((await tell(b.workerURL, doc, other)).status, 401);
  const running = JSON.stringify({ ...event, data: { ...event.data, status: "running" } });
  assert.equal((await tell(b.workerURL, running)).status, 400);
  assert.equal(got.length, 2);
});
