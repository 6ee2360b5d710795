import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AsyncflowError,
  Fail,
  finish,
  later,
  next,
  Reporter,
  Retry,
  Snooze,
  spawn,
  Worker,
} from "asyncflow";

import { Bench, deferred, ed25519, freePort, secret, signed } from "./setup.js";

test("a handler gets the labels of its task", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handle("images", "inspect", ({ user, tags, metadata, trace, traceparent }) =>
      ({ user, tags, metadata, trace, traceparent })),
  );
  const labels = {
    user: "ada",
    tags: ["eu", "nightly"],
    metadata: { order: "4711" },
    trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  };
  assert.deepEqual((await b.deliver({}, labels)).body,
    { output: { ...labels, traceparent: labels.trace } });
  const traceparent = "00-8f2c1d0e5b7a49c3a1f06de2b4c8d913-3b9d5c7e1f2a4860-01";
  assert.deepEqual((await b.deliver({}, { ...labels, traceparent })).body,
    { output: { ...labels, traceparent } });
  assert.deepEqual((await b.deliver()).body, { output: { tags: [], metadata: {} } });
});

test("what a handler returns or throws is the answer", async (t) => {
  const outcomes: [(context: unknown) => unknown, unknown][] = [
    [() => ({ width: 640 }), { output: { width: 640 } }],
    [() => "text", { output: "text" }],
    [() => 0, { output: 0 }],
    [() => undefined, {}],
    [() => null, {}],
    [() => next("review", { page: 2 }), { output: { page: 2 }, next_stage: "review" }],
    [() => next("review"), { next_stage: "review" }],
    [() => finish(0), { output: 0, finish: true }],
    [() => finish(), { finish: true }],
    [
      () => spawn([{ type: "part", context: { n: 1 } }], { parts: 1 }),
      { output: { parts: 1 }, spawn: [{ type: "part", context: { n: 1 } }] },
    ],
    [
      () => spawn([{ type: "part", context: 1, key: "k" }], next("review", 0)),
      { output: 0, next_stage: "review", spawn: [{ type: "part", context: 1, key: "k" }] },
    ],
    [
      () => spawn([{ type: "part", context: 1 }], finish()),
      { finish: true, spawn: [{ type: "part", context: 1 }] },
    ],
    [() => spawn([]), {}],
    [
      () => spawn([{ type: "part", context: 1 }], { parts: 1 }).join(),
      { spawn: [{ type: "part", context: 1 }], join: {} }, // the results are the output
    ],
    [
      () => spawn([{ type: "part", context: 1 }], next("merge")).join({
        on_child_failure: { tolerate: { percent: 5 } },
        max_parallel: 20,
        results: "settled",
      }),
      {
        next_stage: "merge",
        spawn: [{ type: "part", context: 1 }],
        join: {
          on_child_failure: { tolerate: { percent: 5 } },
          max_parallel: 20,
          results: "settled",
        },
      },
    ],
    [
      () => spawn(
        [{ type: "mail", context: 2 }],
        spawn([{ type: "part", context: 1 }], finish(0)).join({ max_parallel: 1 }),
      ),
      {
        finish: true,
        spawn: [{ type: "part", context: 1 }, { type: "mail", context: 2 }],
        join: { max_parallel: 1 },
      },
    ],
    [() => spawn([]).join(), { join: {} }],
    [
      () => spawn([]).join({ max_parallel: 1n as never }),
      {
        outcome: "fail",
        error: "the tasks to start can't be written as JSON: Do not know how to serialize a BigInt",
      },
    ],
    [
      () => spawn([{ type: "part", context: 1n }]),
      {
        outcome: "fail",
        error: "the tasks to start can't be written as JSON: Do not know how to serialize a BigInt",
      },
    ],
    [
      () => 1n,
      {
        outcome: "fail",
        error: "the output can't be written as JSON: Do not know how to serialize a BigInt",
      },
    ],
    [
      () => () => 1,
      { outcome: "fail", error: "the output can't be written as JSON: it is a function" },
    ],
    [
      () => {
        throw new Error("disk full");
      },
      { outcome: "retry", error: "disk full" },
    ],
    [
      () => {
        throw "a text";
      },
      { outcome: "retry", error: "a text" },
    ],
    [
      () => {
        throw new Fail("no image");
      },
      { outcome: "fail", error: "no image" },
    ],
    [
      () => {
        throw new Error("outer", { cause: new Fail("inner") });
      },
      { outcome: "fail", error: "outer" },
    ],
    [
      () => {
        throw new Retry("busy", 90_000);
      },
      { outcome: "retry", error: "busy", retry_after: "90000ms" },
    ],
    [
      () => {
        throw new Snooze(60_000);
      },
      { outcome: "snooze", error: "it isn't ready yet", retry_after: "60000ms" },
    ],
    [
      () => {
        throw new Error("no label", { cause: new Snooze(0) });
      },
      { outcome: "snooze", error: "no label", retry_after: "1000ms" },
    ],
    [
      () => {
        throw new Retry("busy", -1);
      },
      { outcome: "retry", error: "busy" },
    ],
    [
      () => {
        throw new Error("ä".repeat(5000));
      },
      { outcome: "retry", error: "ä".repeat(4095) + "…" },
    ],
  ];
  const b = await Bench.start(t, (w) =>
    w.handle<number>("images", "inspect", (task) => outcomes[task.context]?.[0](task.context)),
  );
  for (const [i, [, want]] of outcomes.entries()) {
    assert.deepEqual(await b.deliver(i), { status: 200, body: want });
  }
  assert.equal(b.worker.inFlight, 0);
});

test("a handler gets the task", async (t) => {
  const b = await Bench.start(t, (w) => {
    w.handle<{ n: number }>("images", "inspect", async (task) => {
      await task.progress(40, "page 2");
      return [
        task.id,
        task.type,
        task.stage,
        task.attempt,
        task.maxAttempts,
        task.seq,
        task.deadline instanceof Date,
        task.context.n,
        task.signal.aborted,
      ];
    });
  });
  assert.deepEqual((await b.deliver({ n: 7 })).body, {
    output: ["images.1.42", "images", "inspect", 2, 20, 1, true, 7, false],
  });
  assert.deepEqual(await b.report("progress"), {
    verb: "progress",
    body: { percent: 40, note: "page 2" },
    token: "Bearer a-token",
    worker: b.worker.name,
  });
});

test("a checkpoint is left, and found by the next attempt", async (t) => {
  const b = await Bench.start(t, (w) => {
    w.handle("images", "inspect", async (task) => {
      await assert.rejects(task.saveCheckpoint(undefined), /checkpoint/);
      await task.saveCheckpoint({ page: 12 });
      return [task.checkpoint ?? "none"];
    });
  });
  assert.deepEqual((await b.deliver()).body, { output: ["none"] });
  assert.deepEqual(await b.report("heartbeat"), {
    verb: "heartbeat",
    body: { checkpoint: { page: 12 } },
    token: "Bearer a-token",
    worker: b.worker.name,
  });
  assert.deepEqual((await b.deliver({}, { checkpoint: { page: 11 } })).body, {
    output: [{ page: 11 }],
  });
});

test("a handler gets the links by which somebody decides", async (t) => {
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", (task) => task.links));
  const links = { review: { approve: "https://tasks.example.com/l/afl1.x.1" } };
  assert.deepEqual((await b.deliver({}, { links })).body, { output: links });
  assert.deepEqual((await b.deliver()).body, { output: {} });
});

test("a handler can tell a test delivery from a task", async (t) => {
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", (task) => task.test));
  assert.deepEqual((await b.deliver({}, { test: true })).body, { output: true });
  assert.deepEqual((await b.deliver()).body, { output: false });
});

test("progress that doesn't arrive fails nothing", async (t) => {
  const b = await Bench.start(t, (w) => {
    w.handle("images", "inspect", async (task) => {
      await task.progress(40);
      return "done";
    });
  });
  for (const status of [503, 409, 400, 0]) { // 0: the connection breaks
    b.answers["progress"] = () => ({ status });
    assert.deepEqual((await b.deliver()).body, { output: "done" }, String(status));
  }
  const nobody = {
    url: `http://127.0.0.1:${await freePort()}/v1/callbacks/images.1.42`,
    token: "a-token",
  };
  assert.deepEqual((await b.deliver({}, { callback: nobody })).body, { output: "done" });
  assert.equal(
    b.lines.filter((line) => line.message === "no progress" && line.level === "warn").length,
    5,
  );
});

test("progress of an attempt that is over ends the handler's work", async (t) => {
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async (task) => {
    await task.progress(40);
    return task.signal.aborted ? String(task.signal.reason) : "goes on";
  }));
  b.answers["progress"] = () => ({ status: 409 });
  b.answers["heartbeat"] = () => ({ status: 200, body: { status: "cancelled" } });
  assert.match(JSON.stringify((await b.deliver()).body), /cancelled/);
});

test("progress that can't be", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handle<[number, string]>("images", "inspect", (task) => task.progress(...task.context)),
  );
  for (const percent of [-1, 101, 1.5]) {
    assert.deepEqual((await b.deliver([percent, ""])).body, {
      outcome: "retry",
      error: `percent is ${percent}; it must be a whole number from 0 to 100`,
    });
  }
  assert.deepEqual((await b.deliver([1, "ä".repeat(501)])).body, {
    outcome: "retry",
    error: "note is longer than 500 characters",
  });
  assert.deepEqual((await b.deliver([100, "😀".repeat(500)])).body, {});
  assert.equal((await b.report("progress")).body["percent"], 100);
});

test("a context that can't be parsed fails the task for good", async (t) => {
  const parse = (context: unknown) => {
    if (typeof context !== "number") throw new Error("it is no number");
    return context;
  };
  const b = await Bench.start(t, (w) =>
    w.handle("images", "inspect", (task) => task.context + 1, { parse }),
  );
  assert.deepEqual((await b.deliver(1)).body, { output: 2 });
  assert.deepEqual((await b.deliver("1")).body, {
    outcome: "fail",
    error: "the context can't be read: it is no number",
  });
});

test("later", async (t) => {
  const kept = deferred<string>();
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", (task) => {
    kept.resolve(JSON.stringify(task.callback));
    return later;
  }));
  assert.equal((await b.deliver()).status, 202);
  const reporter = new Reporter({ retryMs: 1 });
  const callback = JSON.parse(await kept.promise) as { url: string; token: string };
  await reporter.complete(callback, [1]);
  assert.deepEqual((await b.report("complete")).body, { output: [1] });
  const started = spawn([{ type: "part", context: 2 }], "output").join({ results: "settled" });
  await reporter.complete(callback, started);
  assert.deepEqual((await b.report("complete")).body, {
    spawn: [{ type: "part", context: 2 }],
    join: { results: "settled" },
  });
  await reporter.fail(callback, new Fail("no"));
  assert.deepEqual((await b.report("fail")).body, { error: "no", retryable: false });
  await reporter.fail(callback, new Retry("busy", 1000));
  assert.deepEqual((await b.report("fail")).body, {
    error: "busy",
    retryable: true,
    retry_after: "1000ms",
  });
  assert.equal(b.worker.inFlight, 0);
});

test("what is refused", async (t) => {
  const b = await Bench.start(
    t,
    (w) => w.handle("images", "inspect", () => assert.fail("it isn't to be called")),
    { maxBodyBytes: 2000 },
  );
  const good = signed(b.envelope());
  const now = Math.floor(Date.now() / 1000);
  const header = (name: string, value: string) => ({
    ...good,
    headers: { ...good.headers, [name]: value },
  });
  const without = (name: string) => ({
    ...good,
    headers: Object.fromEntries(Object.entries(good.headers).filter(([n]) => n !== name)),
  });
  const cases: [RequestInit, number, RegExp][] = [
    [{ ...good, method: "PUT" }, 405, /POSTed/],
    [header("Content-Type", "text/plain"), 415, /application\/json/],
    [signed("x".repeat(2001)), 413, /too large: the limit is 2000 bytes/],
    [without("Webhook-Id"), 401, /not signed/],
    [without("Webhook-Timestamp"), 401, /not signed/],
    [without("Webhook-Signature"), 401, /not signed/],
    [header("Webhook-Id", "another"), 401, /no signature/],
    [header("Webhook-Timestamp", String(now - 1)), 401, /no signature/],
    [header("Webhook-Timestamp", "soon"), 401, /no number/],
    [header("Webhook-Signature", "v1, v1a, v2,x"), 401, /no signature/],
    [header("Webhook-Signature", "v1,AAAA ".repeat(17)), 401, /too many/],
    [{ ...good, body: String(good.body).replace("images", "imagez") }, 401, /no signature/],
    [signed(b.envelope(), { at: now - 400 }), 401, /more than 5m/],
    [signed(b.envelope(), { at: now + 400 }), 401, /more than 5m/],
    [
      signed(b.envelope(), { key: "whsec_" + Buffer.alloc(32).toString("base64") }),
      401,
      /no signature/,
    ],
    [signed(b.envelope(), { key: ed25519().key }), 401, /no signature/],
    [signed("[]"), 400, /no object/],
    [signed("{"), 400, /not JSON/],
    [signed({ type: "images" }), 400, /needs task_id/],
    [signed({ deliveries: [] }), 400, /no deliveries/],
    [
      signed({ deliveries: [b.envelope(), b.envelope({}, { stage: "resize" })] }),
      400,
      /several stages/,
    ],
    [signed(b.envelope({}, { stage: "resize" })), 404, /no handler for the stage/],
  ];
  for (const [init, status, why] of cases) {
    const answer = await b.post(init);
    assert.deepEqual(
      [answer.status, why.test(JSON.stringify(answer.body))],
      [status, true],
      `${why}: ${JSON.stringify(answer)}`,
    );
  }
  await b.worker.close();
  assert.equal((await b.post(signed(b.envelope()))).status, 503);
});

test("several keys of both kinds", async (t) => {
  const [a, b_] = [ed25519(), ed25519()];
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", () => 1), {
    keys: [secret, a.publicKey, b_.publicKey],
  });
  for (const key of [secret, a.key, b_.key])
    assert.equal((await b.post(signed(b.envelope(), { key }))).status, 200);
  for (const [key, why] of [
    ["whsk_AAAA", /private key/],
    ["", /has an empty key/],
    ["abc", /must start/],
    ["whsec_!", /base64/],
    ["whsec_AAAA", /3 bytes/],
    ["whpk_AAAA", /32 bytes/],
  ] as const) {
    assert.throws(
      () => new Worker({ keys: [key] }),
      (err) =>
        err instanceof AsyncflowError &&
        err.code === "invalid_argument" &&
        err.fields[0]?.field === "keys" &&
        why.test(err.message),
    );
  }
  assert.throws(() => new Worker({ keys: [], maxInFlight: 0 }), /maxInFlight is 0/);
  assert.throws(() => new Worker({ keys: [] }).handle("Images", "x", () => 1), /type is "Images"/);
  assert.throws(() => b.worker.handle("images", "inspect", () => 1), /has a handler already/);
});

test("a challenge is echoed", async (t) => {
  const b = await Bench.start(t, () => {});
  assert.deepEqual(await b.post(signed({ type: "asyncflow.challenge", challenge: "x-1" })), {
    status: 200,
    body: { challenge: "x-1" },
  });
});

test("the same request again gets the same answer, and starts nothing", async (t) => {
  let calls = 0;
  const [begun, go] = [deferred(), deferred()];
  const b = await Bench.start(t, (w) => w.handle<string>("images", "inspect", async (task) => {
    begun.resolve();
    await go.promise;
    return task.context + ++calls;
  }));
  const request = signed(b.envelope("a"));
  const first = b.post(request);
  await begun.promise;
  const second = b.post(request); // while the first is under way, or just after
  go.resolve();
  for (const answer of [await first, await second, await b.post(request)])
    assert.deepEqual(answer, { status: 200, body: { output: "a1" } });
  const large = signed(b.envelope("b".repeat(5000)));
  assert.equal((await b.post(large)).status, 200);
  assert.deepEqual(await b.post(large), {
    status: 409,
    body: { error: "this delivery was answered before; the answer is not kept" },
  });
  assert.equal(calls, 2);
});

test("no more than there is room for", async (t) => {
  const [begun, go] = [deferred(), deferred()];
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async () => {
    begun.resolve();
    await go.promise;
  }), { maxInFlight: 1 });
  const first = b.deliver();
  await begun.promise;
  assert.equal((await b.deliver()).status, 503);
  go.resolve();
  assert.equal((await first).status, 200);
  assert.equal((await b.deliver()).status, 200);
});

test("a fetch-style server", async () => {
  const w = new Worker({ keys: [secret], log: () => {} }).handle<number>(
    "images",
    "inspect",
    (task) => task.context * 2,
  );
  const envelope = {
    task_id: "images.1.1",
    type: "images",
    stage: "inspect",
    deadline: new Date(Date.now() + 60_000).toISOString(),
    context: 21,
    callback: { url: "http://127.0.0.1:1", token: "" },
  };
  const response = await w.fetch(new Request("http://worker/", signed(envelope)));
  assert.deepEqual(
    [response.status, response.headers.get("Content-Type"), await response.json()],
    [200, "application/json", { output: 42 }],
  );
  assert.equal((await w.fetch(new Request("http://worker/"))).status, 405);
});
