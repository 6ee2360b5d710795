import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";

import {
  AbortedError,
  AsyncflowError,
  Client,
  ConnectionError,
  ProblemError,
  register,
  Reporter,
  SubmitManyError,
  Worker,
  type TaskEvent,
  type TaskTypeSpec,
} from "asyncflow";
import { listen } from "asyncflow/node";

import { aborted, deferred, freePort, secret, serve, textOf } from "./setup.js";

// These tests need a real server, whose URL and token are in the environment.
const [url, token] = [process.env["ASYNCFLOW_URL"] ?? "", process.env["ASYNCFLOW_TOKEN"] ?? ""];
const client = url === "" ? undefined : new Client(url, token);
const options = { skip: client ? false : "ASYNCFLOW_URL and ASYNCFLOW_TOKEN are not set" };
const c = client as Client;

let names = 0;

/** Makes a task type for one test. */
async function type(stages: TaskTypeSpec["stages"]): Promise<string> {
  const name = `ts${process.pid}-${++names}`;
  await c.putTaskType(name, {
    stages: stages.map((s) => ({ retry: { max_attempts: 2, interval: -0.1 }, ...s })),
  });
  return name;
}

/** Serves a worker that registers itself. */
async function run(
  t: TestContext,
  worker: Worker,
  registration: Partial<Parameters<typeof register>[1]> = {},
): Promise<string> {
  const served = await listen(worker, { port: 0 });
  t.after(() => served.close());
  await register(worker, { client: c, url: served.url, ...registration });
  return served.url;
}

const quiet = { keys: [], log: () => {} };

test("a task through two stages, by a worker that registers itself", options, async (t) => {
  const name = await type([{ name: "inspect" }, { name: "resize" }]);
  const worker = new Worker(quiet)
    .handle<{ n: number }>(name, "inspect", (task) => ({ n: task.context.n + 1 }))
    .handle<{ n: number }>(name, "resize", async (task) => {
      await task.progress(50, "half");
      return { n: task.context.n * 10 };
    }, { answerWithinMs: -1 });
  const at = await run(t, worker);
  await register(worker, { client: c, url: at }); // changes nothing
  const endpoints = await c.endpoints(name);
  assert.deepEqual(
    endpoints.map((e) => [e.stage, e.secrets.map((s) => s.kind)]),
    [
      ["inspect", ["ed25519"]],
      ["resize", ["ed25519"]],
    ],
  );

  const { id } = await c.submit({ type: name, context: { n: 1 }, key: "a" });
  assert.deepEqual((await c.submit({ type: name, context: { n: 1 }, key: "a" })).existing, true);
  const task = await c.wait(id);
  assert.deepEqual([task.status, task.result], ["succeeded", { n: 20 }]);
  assert.deepEqual(
    (await c.attempts(id)).map((a) => [a.stage, a.outcome]),
    [
      ["inspect", "done"],
      ["resize", "done"],
    ],
  );
  const events: TaskEvent[] = [];
  for await (const event of c.watch(id)) events.push(event);
  assert.deepEqual(events.map((e) => e.attempt?.seq ?? e.task?.status), [1, 2, "succeeded"]);
  const all: string[] = [];
  for await (const one of c.all({ type: name, limit: 1, since: new Date(0) })) all.push(one.id);
  assert.deepEqual(all, [id]);
  const counted = await c.count({ type: name, status: "succeeded", since: new Date(0) });
  assert.deepEqual(counted, { count: 1, exact: true });
  assert.deepEqual(await c.count({ type: name, until: new Date(0) }), { count: 0, exact: true });
  assert.deepEqual(await c.count({ type: name, parent: id }), { count: 0, exact: true });
});

test("batches, with a secret of the worker's own", options, async (t) => {
  const name = await type([{ name: "insert" }]);
  const sizes: number[] = [];
  const worker = new Worker({ ...quiet, keys: [secret] }).handleBatch<number, number>(
    name,
    "insert",
    (tasks) => {
      sizes.push(tasks.length);
      return tasks.map((task) => ({ output: task.context + 1 }));
    },
  );
  await run(t, worker, {
    prepare: (e) => {
      e.batch = { max_tasks: 50, max_wait: "50ms" };
    },
  });
  assert.deepEqual(
    (await c.endpoints(name)).map((e) => e.secrets.map((s) => s.kind)),
    [["hmac"]],
  );
  const results = await c.submitMany(
    Array.from({ length: 20 }, (_, i) => ({ type: name, context: i })),
  );
  for (const [i, r] of results.entries())
    assert.equal((await c.wait(r.task?.id ?? assert.fail())).result, i + 1);
  assert.ok(Math.max(...sizes) > 1, String(sizes));
});

test("a worker learns that the task was cancelled; redrive", options, async (t) => {
  const name = await type([{ name: "wait" }]);
  const [begun, reason] = [deferred(), deferred<unknown>()];
  let calls = 0;
  const worker = new Worker({ ...quiet, heartbeatMs: 20 }).handle(name, "wait", async (task) => {
    if (calls++ > 0) return "again";
    begun.resolve();
    reason.resolve(await aborted(task.signal));
    return "first";
  }, { answerWithinMs: -1 });
  await run(t, worker);
  const { id } = await c.submit({ type: name, context: {} });
  await begun.promise;
  assert.equal((await c.wait(id, { timeoutMs: 1 })).status, "running");
  assert.equal((await c.cancel(id, "no need")).status, "cancelled");
  const why = await reason.promise;
  assert.ok(why instanceof AbortedError && why.why === "cancelled", String(why));
  await c.redrive(id);
  assert.deepEqual((await c.wait(id)).result, "again");
  const idempotencyKey = `again ${id}`;
  const made = await c.rerun(id, { context: [1] }, { idempotencyKey });
  assert.equal((await c.rerun(id, { context: [1] }, { idempotencyKey })).id, made.id);
  const rerun = await c.wait(made.id);
  assert.deepEqual([rerun.rerun_of, rerun.context, rerun.result], [id, [1], "again"]);
  const rest = await c.erase(made.id);
  assert.ok(rest.erased?.at, JSON.stringify(rest));
  assert.deepEqual([rest.status, rest.context, rest.result], ["succeeded", undefined, undefined]);
  await assert.rejects(c.rerun(made.id), { code: "task_erased" });
});

test("watch, while it happens, over a connection that breaks", options, async (t) => {
  const name = await type([{ name: "first" }, { name: "second" }]);
  const go = deferred();
  const worker = new Worker(quiet)
    .handle(name, "first", () => 1)
    .handle(name, "second", () => go.promise.then(() => 2));
  await run(t, worker);
  let connections = 0;
  const proxy = await serve(t, (req, res) => {
    connections++;
    void fetch(url + req.url, { headers: req.headers as Record<string, string> })
      .then(async (upstream) => {
        res.writeHead(upstream.status, {
          "Content-Type": upstream.headers.get("Content-Type") ?? "",
        });
        for await (const part of upstream.body ?? []) {
          res.write(part);
          if (connections === 1 && String(Buffer.from(part)).includes('"seq":1'))
            return res.socket?.end(); // in the middle
        }
        return res.end();
      })
      .catch(() => res.destroy());
  });
  const { id } = await c.submit({ type: name, context: {} });
  const seen: (number | string)[] = [];
  for await (const event of new Client(proxy, token).watch(id)) {
    if (event.attempt) seen.push(event.attempt.seq);
    if (connections > 1) go.resolve();
  }
  assert.deepEqual(seen, [1, 2]);
  assert.equal(connections, 2);

  await assert.rejects(async () => {
    for await (const _ of c.watch(`${name}.1.999`)) assert.fail();
  }, (err) => err instanceof ProblemError && err.status === 404);
  const enough = new AbortController();
  const { id: waiting } = await c.submit({ type: name, context: {}, delay: "1h" });
  await assert.rejects(async () => {
    for await (const _ of c.watch(waiting, { signal: enough.signal }))
      enough.abort(new Error("enough"));
  }, /enough/);
});

test("errors name what is wrong", options, async () => {
  const name = await type([{ name: "first" }]);
  await assert.rejects(
    c.submit({ type: name, context: {}, priority: -1 }),
    (err) =>
      err instanceof ProblemError &&
      err.status === 400 &&
      err.code === "invalid_argument" &&
      err.fields[0]?.field === "priority" &&
      err.requestId !== "" &&
      !err.uncertain,
  );
  await assert.rejects(
    c.submit({ type: name, context: 1n }),
    (err) => err instanceof AsyncflowError && err.fields[0]?.field === "context",
  );
  await assert.rejects(
    c.get("x.1.1"),
    (err) => err instanceof ProblemError && err.code === "not_found",
  );
  await assert.rejects(c.get(""), /id is required/);
  await assert.rejects(
    new Client(url, "nobody").get("x.1.1"),
    (err) => err instanceof ProblemError && err.code === "unauthenticated",
  );
  const results = await c.submitMany([
    { type: name, context: 1 },
    { type: name, context: 2n },
    { type: name, context: 3, priority: -1 },
    { type: name, context: 4 },
  ]);
  assert.deepEqual(
    results.map((r) => r.error?.fields[0]?.field ?? r.task?.status),
    ["pending", "context", "priority", "pending"],
  );
  assert.throws(() => new Client("tasks.example.com", ""), /url must be an absolute URL/);
  assert.throws(() => new Client(url, "a b"), /token has white space/);
});

test("no answer: keyed submits are tried again, others are uncertain", options, async (t) => {
  const name = await type([{ name: "first" }]);
  let broken = 0;
  const proxy = await serve(
    t,
    (req, res) =>
      void (async () => {
        const body = await textOf(req);
        const upstream = await fetch(url + req.url, {
          method: req.method ?? "",
          body,
          headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
        });
        const answer = await upstream.text(); // it was done
        if (broken-- > 0) res.destroy();
        else res.writeHead(upstream.status, { "Content-Type": "application/json" }).end(answer);
      })(),
  );
  const flaky = new Client(proxy, token);
  broken = 2;
  assert.equal((await flaky.submit({ type: name, context: 1, key: "k" })).existing, true);
  broken = 1;
  assert.equal(
    (await flaky.submitMany([{ type: name, context: 2, key: "l" }]))[0]?.task?.existing,
    true,
  );
  broken = 1;
  await assert.rejects(
    flaky.submit({ type: name, context: 3 }),
    (err) => err instanceof ConnectionError && err.uncertain && err.url === proxy,
  );
  broken = 1;
  await assert.rejects(
    flaky.submitMany([{ type: name, context: 4 }]),
    (err) => err instanceof SubmitManyError && err.uncertain && err.results.length === 0,
  );
  await assert.rejects(
    new Client(`http://127.0.0.1:${await freePort()}`, token, { retries: 0 }).submit({
      type: name,
      context: 5,
    }),
    (err) => err instanceof ConnectionError && !err.uncertain,
  );
  const stop = new AbortController();
  stop.abort(new Error("stopped"));
  await assert.rejects(c.get("x.1.1", stop), /stopped/);
});

test("fetch is called without a this, which some runtimes refuse", async () => {
  const strict = function (this: unknown): Promise<Response> {
    assert.equal(this, undefined);
    return Promise.resolve(new Response("{}", { headers: { "Content-Type": "application/json" } }));
  } as typeof fetch;
  await new Client("http://127.0.0.1:1", "a-token", { fetch: strict }).get("x.1.1");
  await new Reporter({ fetch: strict }).complete({ url: "http://127.0.0.1:1", token: "a-token" });
});

test("answers that pass are retried, and any call that was never sent", async (t) => {
  for (const [status, tries] of [
    [429, 2],
    [502, 2],
    [503, 2],
    [504, 2],
    [500, 1],
    [409, 1],
  ] as const) {
    let got = 0;
    const away = await serve(t, (_, res) => void (got++, res.writeHead(status).end()));
    await assert.rejects(
      new Client(away, "a-token", { retries: 1 }).get("x.1.1"),
      (err) => err instanceof ProblemError && err.status === status,
    );
    assert.equal(got, tries, String(status));
    await assert.rejects(
      new Client(away, "a-token", { retries: 1 }).submit({ type: "x", context: 1 }),
    );
    assert.equal(got, tries + 1, String(status));
  }
  let calls = 0;
  const refused: typeof fetch = () => (calls++, fetch(`http://127.0.0.1:${port}`));
  const port = await freePort();
  await assert.rejects(
    new Client("http://127.0.0.1:1", "a-token", { retries: 1, fetch: refused }).submit({
      type: "x",
      context: 1,
    }),
  );
  assert.equal(calls, 2);
});

test("redirects are not followed: a token is for one server", async (t) => {
  const stranger = await serve(t, () => assert.fail("it isn't to be called"));
  const moved = await serve(t, (_, res) => res.writeHead(307, { Location: stranger }).end());
  await assert.rejects(
    new Client(moved, "a-token").get("x.1.1"),
    (err) => err instanceof ProblemError && err.status === 307,
  );
  await assert.rejects(
    new Reporter().complete({ url: moved, token: "a-token" }),
    (err) => err instanceof ProblemError && err.status === 307,
  );
});

test(
  "a worker that never answers 202 may be registered; of several secrets the one that is told",
  options,
  async (t) => {
    const name = await type([{ name: "first", timeout: "1s" }]);
    const other = "whsec_" + Buffer.alloc(32).toString("base64");
    const worker = new Worker({ ...quiet, keys: [other, secret], answerWithinMs: Infinity }).handle(
      name,
      "first",
      () => "done",
    );
    let used: string | undefined;
    await run(t, worker, {
      secret,
      prepare: (e) => {
        used = e.secret;
      },
    });
    assert.equal(used, secret);
    const { id } = await c.submit({ type: name, context: {} });
    assert.equal((await c.wait(id)).result, "done");
  },
);

test("what can't be registered", options, async (t) => {
  const name = await type([{ name: "first", timeout: "1s" }]);
  const slow = new Worker(quiet).handle(name, "first", () => 1);
  await assert.rejects(
    register(slow, { client: c, url: "http://127.0.0.1:1" }),
    /answerWithinMs is 2000; it must be below the timeout of the stage first, 1s/,
  );
  const lost = new Worker({ ...quiet, answerWithinMs: 10 }).handle(name, "second", () => 1);
  await assert.rejects(
    register(lost, { client: c, url: "http://127.0.0.1:1" }),
    /has no stage second/,
  );
  const stranger = new Worker({ ...quiet, answerWithinMs: 10 }).handle(name, "first", () => 1);
  const elsewhere = await serve(t, (_, res) => res.end("{}"));
  await assert.rejects(
    register(stranger, { client: c, url: elsewhere }),
    /didn't echo its challenge/,
  );
});
