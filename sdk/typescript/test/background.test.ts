import assert from "node:assert/strict";
import { test } from "node:test";

import { AbortedError, ProblemError, Reporter, Retry, Worker } from "asyncflow";

import { aborted, Bench, deferred, secret, signed } from "./setup.js";

const why = (reason: unknown) => (reason instanceof AbortedError ? reason.why : reason);

test("a slow handler is reported", async (t) => {
  const go = deferred();
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async () => {
    await go.promise;
    return { n: 1 };
  }), { answerWithinMs: 1 });
  assert.equal((await b.deliver()).status, 202);
  assert.equal(b.worker.inFlight, 1);
  const statuses = [0, 503, 429, 200];
  b.answers["complete"] = () => ({ status: statuses.shift() ?? assert.fail() });
  go.resolve();
  for (let i = 0; i < 4; i++)
    assert.deepEqual((await b.report("complete")).body, { output: { n: 1 } });
  await b.worker.close();
  assert.equal(b.count("complete"), 0);
});

test("202 at once, and a failure", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handle(
      "images",
      "inspect",
      () => {
        throw new Retry("busy", 500);
      },
      { answerWithinMs: -1 },
    ),
  );
  assert.equal((await b.deliver()).status, 202);
  assert.deepEqual((await b.report("fail")).body, {
    error: "busy",
    retryable: true,
    retry_after: "500ms",
  });
});

test("a connection that breaks: the result is reported", async (t) => {
  const [begun, go] = [deferred(), deferred()];
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async () => {
    begun.resolve();
    await go.promise;
    return 1;
  }));
  const hangUp = new AbortController();
  const answer = b.post({ ...signed(b.envelope()), signal: hangUp.signal });
  await begun.promise;
  hangUp.abort();
  await assert.rejects(answer);
  await b.report("heartbeat"); // it may mean that the attempt is over
  go.resolve();
  assert.deepEqual((await b.report("complete")).body, { output: 1 });
});

test("a connection that breaks in the middle of the answer", async (t) => {
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", () => "x".repeat(20 << 20)));
  const answer = await fetch(b.workerURL, signed(b.envelope()));
  assert.equal(answer.status, 200);
  await answer.body?.cancel();
  assert.equal(String((await b.report("complete")).body["output"]).length, 20 << 20);
});

test("a fetch-style server whose client hangs up", async (t) => {
  const [begun, go] = [deferred(), deferred()];
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async () => {
    begun.resolve();
    await go.promise;
    return 1;
  }));
  const hangUp = new AbortController();
  const answer = b.worker.fetch(
    new Request("http://worker/", { ...signed(b.envelope()), signal: hangUp.signal }),
  );
  await begun.promise;
  hangUp.abort();
  await answer;
  go.resolve();
  assert.deepEqual((await b.report("complete")).body, { output: 1 });
});

test("an output that is refused fails the task for good", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handle("images", "inspect", () => "large", { answerWithinMs: -1 }),
  );
  b.answers["complete"] = () => ({
    status: 413,
    body: { code: "too_large", detail: "output is too large" },
  });
  await b.deliver();
  assert.deepEqual((await b.report("fail")).body, {
    error: "asyncflow refused the output: 413 too_large: output is too large",
    retryable: false,
  });
});

test("heartbeats, until the task is cancelled", async (t) => {
  const reason = deferred<unknown>();
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async (task) => {
    reason.resolve(await aborted(task.signal));
    throw task.signal.reason;
  }), { answerWithinMs: -1, heartbeatMs: 20 });
  await b.deliver();
  for (let i = 0; i < 3; i++) assert.equal((await b.report("heartbeat")).token, "Bearer a-token");
  b.answers["heartbeat"] = () => ({ status: 200, body: { status: "cancelled" } });
  assert.equal(why(await reason.promise), "cancelled");
  await b.worker.close();
  assert.equal(b.count("fail"), 0); // the report would have no effect
});

test("an attempt that is over otherwise is lost", async (t) => {
  const reason = deferred<unknown>();
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async (task) => {
    reason.resolve(await aborted(task.signal));
    return "done all the same";
  }), { answerWithinMs: -1, heartbeatMs: 20 });
  b.answers["heartbeat"] = () => ({ status: 409, body: { code: "conflict" } });
  await b.deliver();
  assert.equal(why(await reason.promise), "lost");
  // it may count
  assert.deepEqual((await b.report("complete")).body, { output: "done all the same" });
});

test("the deadline without a heartbeat", async (t) => {
  const reason = deferred<unknown>();
  const b = await Bench.start(
    t,
    (w) =>
      w.handle("images", "inspect", async (task) => reason.resolve(await aborted(task.signal))),
    { answerWithinMs: -1 },
  );
  await b.deliver({}, { deadline: new Date(Date.now() + 10_000).toISOString() });
  assert.equal(why(await reason.promise), "lost");
  await b.report("complete"); // it may count
});

test("what comes too late", async (t) => {
  const never = () => assert.fail("it isn't to be called");
  const b = await Bench.start(t, (w) =>
    w.handle("images", "inspect", never).handle("images", "later", never, { answerWithinMs: -1 }),
  );
  const deadline = new Date(Date.now() - 1000).toISOString();
  assert.deepEqual((await b.deliver({}, { deadline })).body, {
    outcome: "retry",
    error: "its deadline had passed when it came",
  });
  assert.equal((await b.deliver({}, { deadline, stage: "later" })).status, 202);
  await b.worker.close();
  assert.equal(b.count("fail"), 0); // it is tried again anyway
});

test("a clock that is wrong", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handle("images", "inspect", (task) => task.signal.aborted),
  );
  const behind = Date.now() - 200_000; // by asyncflow's clock
  const envelope = b.envelope({}, { deadline: new Date(behind + 60_000).toISOString() });
  assert.deepEqual((await b.post(signed(envelope, { at: Math.floor(behind / 1000) }))).body, {
    output: false,
  });
});

test("a time limit", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handle(
      "images",
      "inspect",
      async (task) => {
        await aborted(task.signal);
        throw new Error("gave up");
      },
      { timeLimitMs: 10 },
    ),
  );
  assert.deepEqual((await b.deliver()).body, {
    outcome: "retry",
    error: "gave up (the handler's time limit is over)",
  });
});

test("close waits, and then cuts short", async (t) => {
  const begun = deferred();
  const b = await Bench.start(t, (w) => w.handle("images", "inspect", async (task) => {
    begun.resolve();
    throw await aborted(task.signal);
  }, { answerWithinMs: -1 }));
  await b.deliver();
  await begun.promise;
  await assert.rejects(b.worker.close(10), /1 deliveries were cut short/);
  assert.deepEqual((await b.report("fail")).body, {
    error: "the worker is stopping",
    retryable: true,
  });
  assert.equal(b.worker.inFlight, 0);
});

test("a reporter's errors", async (t) => {
  const b = await Bench.start(t, () => {});
  const callback = { url: b.callbackURL, token: "x" };
  const reporter = new Reporter({ retryMs: 1 });
  b.answers["complete"] = () => ({ status: 409, body: { code: "conflict" } });
  await assert.rejects(
    reporter.complete(callback, 1),
    (err) => err instanceof AbortedError && err.why === "lost" && err.cause instanceof ProblemError,
  );
  b.answers["complete"] = () => ({ status: 400, body: { code: "invalid_argument" } });
  await assert.rejects(
    reporter.complete(callback, 1),
    (err) => err instanceof ProblemError && err.code === "invalid_argument",
  );
  await assert.rejects(reporter.complete(callback, 1n), /output/);
  const enough = new AbortController();
  let tries = 0;
  b.answers["complete"] = () => {
    if (++tries === 3) enough.abort();
    return { status: 500 };
  };
  await assert.rejects(reporter.complete(callback, 1, enough.signal));
  assert.equal(tries, 3);
});

test("while asyncflow is away the report is sent until a minute after the deadline", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"], now: Date.now() });
  const tries: number[] = [];
  const away: typeof fetch = async (url) => {
    if (String(url).endsWith("/complete")) tries.push(Date.now());
    throw new TypeError("connection refused");
  };
  const worker = new Worker({
    keys: [secret],
    log: () => {},
    maxInFlight: 1,
    reporter: new Reporter({ fetch: away }),
  });
  worker.handle("images", "inspect", () => 1, { answerWithinMs: -1 });
  const deadline = Date.now() + 600_000;
  const deliver = () =>
    worker.fetch(
      new Request(
        "http://worker/",
        signed({
          task_id: "images.1.42",
          type: "images",
          stage: "inspect",
          attempt: 1,
          max_attempts: 20,
          seq: 1,
          context: {},
          deadline: new Date(deadline).toISOString(),
          callback: { url: "http://tasks.example.com/v1/callbacks/images.1.42", token: "a-token" },
        }),
      ),
    );
  assert.equal((await deliver()).status, 202);
  assert.equal((await deliver()).status, 503);
  const until = async (time: number) => {
    while (Date.now() < time) {
      await new Promise((resolve) => setImmediate(resolve)); // let the due timers run
      t.mock.timers.tick(250);
    }
  };
  await until(deadline + 59_000);
  assert.equal(worker.inFlight, 1);
  await until(deadline + 61_000);
  assert.equal(worker.inFlight, 0); // it gave up, and has capacity again
  assert.ok(tries.length > 20, String(tries.length));
  const pauses = tries.slice(1).map((at, i) => at - (tries[i] ?? NaN));
  for (const [i, pause] of pauses.entries()) {
    const most = Math.min(500 * 2 ** i, 30_000);
    // 500: the clock has steps
    assert.ok(pause >= most / 2 && pause <= most + 500, `pause ${i} is ${pause} ms`);
  }
  assert.ok(deadline + 60_000 - (tries.at(-1) ?? 0) <= 30_500);
  const seen = tries.length;
  await until(deadline + 200_000);
  assert.equal(tries.length, seen);
});

test("a worker names itself in its answers and reports, but not to strangers", async (t) => {
  for (const [name, want] of [
    ["worker-7", "worker-7"],
    [false, undefined],
  ] as const) {
    const b = await Bench.start(t, (w) => w.handle("images", "inspect", () => 1), {
      answerWithinMs: -1,
      name,
    });
    const answer = await fetch(b.workerURL, signed(b.envelope()));
    assert.equal(answer.headers.get("Asyncflow-Worker") ?? undefined, want);
    assert.equal((await b.report("complete")).worker, want);
    const unsigned = await fetch(b.workerURL, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: "{}",
    });
    assert.equal(unsigned.status, 401);
    assert.equal(unsigned.headers.get("Asyncflow-Worker"), null);
  }
  assert.ok(new Worker({ keys: [] }).name, "by default it is the host's");
  for (const name of ["two words", "w".repeat(65), "größe", ""])
    assert.throws(() => new Worker({ keys: [], name }), /name is/, name);
});
