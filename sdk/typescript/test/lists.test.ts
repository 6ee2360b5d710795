import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "asyncflow";

import { serve } from "./setup.js";

test("a list of several pages comes whole", async (t) => {
  const asked: string[] = [];
  const url = await serve(t, (req, res) => {
    const { pathname, searchParams } = new URL(req.url ?? "", "http://localhost");
    asked.push(`${pathname}?${searchParams}`);
    const page = Number(searchParams.get("cursor") ?? 0);
    const doc = {
      data: [{ id: `e${page}`, seq: page }],
      ...(page < 2 ? { next_cursor: String(page + 1) } : {}),
    };
    res.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(doc));
  });
  const c = new Client(url, "a-token");
  assert.deepEqual((await c.endpoints("images")).map((e) => e.id), ["e0", "e1", "e2"]);
  assert.deepEqual((await c.attempts("images.1.42")).map((a) => a.seq), [0, 1, 2]);
  const pages = (path: string) => [path, `${path}&cursor=1`, `${path}&cursor=2`];
  assert.deepEqual(asked, [
    ...pages("/v1/endpoints?type=images"),
    ...pages("/v1/tasks/images.1.42/attempts?outputs=true"),
  ]);
});

test("the filters of lists and counts are sent", async (t) => {
  const asked: string[] = [];
  const url = await serve(t, (req, res) => {
    asked.push(new URL(req.url ?? "", "http://localhost").search);
    res.writeHead(200, { "Content-Type": "application/json" })
      .end(JSON.stringify({ data: [], count: 0, exact: true }));
  });
  const c = new Client(url, "a-token");
  const since = new Date("2026-11-21T10:00:00Z");
  await c.list({ endedSince: since, endedUntil: since, attempts: 3, code: "5xx", flowKey: "a b" });
  await c.count({ code: "lost" });
  assert.deepEqual(asked.map((text) => [...new URLSearchParams(text)].sort().join(" ")), [
    `attempts,3 code,5xx ended_since,${since.toISOString()} ` +
      `ended_until,${since.toISOString()} flow_key,a b`,
    "code,lost",
  ]);
});
