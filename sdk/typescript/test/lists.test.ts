import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, type CountParams, type ListParams, type operations } from "asyncflow";

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

// Each parameter of the API. Required<…> refuses to compile without one that is new.
type Query = Required<NonNullable<operations["listTasks"]["parameters"]["query"]>>;

test("each filter of lists and counts is sent", async (t) => {
  const asked: URL[] = [];
  const url = await serve(t, (req, res) => {
    asked.push(new URL(req.url ?? "", "http://localhost"));
    res.writeHead(200, { "Content-Type": "application/json" })
      .end(JSON.stringify({ data: [], count: 0, exact: true }));
  });
  const c = new Client(url, "a-token");
  const at = new Date("2026-11-21T10:00:00Z");
  const time = at.toISOString();
  const filter: Required<CountParams> = { type: "t", status: "failed", stage: "s", error: "no",
    key: "k", since: at, until: at, endedSince: at, endedUntil: at, attempts: 3, code: "5xx",
    flowKey: "a b", fingerprint: "f", worker: "w", user: "ada", tags: "eu,nightly",
    anyTags: "eu,us", metadata: "order=4711", parent: "t.1.1", latest: true, children: false };
  const sent = { type: "t", status: "failed", stage: "s", error: "no", key: "k", since: time,
    until: time, ended_since: time, ended_until: time, attempts: 3, code: "5xx", flow_key: "a b",
    fingerprint: "f", worker: "w", user: "ada", tags: "eu,nightly", any_tags: "eu,us",
    metadata: "order=4711", parent: "t.1.1", latest: true, children: false } as const;
  const place: Required<Omit<ListParams, keyof CountParams>> = { text: "x", order: "ended",
    reverse: true, limit: 7, cursor: "c" };
  await c.list({ ...filter, ...place });
  await c.count(filter);
  const whole: Query = { ...sent, ...place };
  const got = asked.map((one) => [one.pathname, Object.fromEntries(one.searchParams)]);
  const texts = (query: object) =>
    Object.fromEntries(Object.entries(query).map(([name, value]) => [name, String(value)]));
  assert.deepEqual(got, [["/v1/tasks", texts(whole)], ["/v1/tasks/count", texts(sent)]]);
  asked.length = 0;
  await c.list({});
  assert.equal(asked[0]?.search, "");
});
