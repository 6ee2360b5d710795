import assert from "node:assert/strict";
import { test } from "node:test";

import { Fail, later, Retry, spawn, type BatchResult } from "asyncflow";

import { aborted, Bench, deferred, signed } from "./setup.js";

const batch = (b: Bench, contexts: unknown[]) => signed({ deliveries: contexts.map((c, i) => {
  const callback = { url: `${b.callbackURL}/v1/callbacks/images.1.${i}`, token: "a-token" };
  return b.envelope(c, { task_id: `images.1.${i}`, callback });
}) });

test("a batch for a handler of single tasks", async (t) => {
  const go = deferred();
  const b = await Bench.start(t, (w) =>
    w.handle<string>(
      "images",
      "inspect",
      async (task) => {
        switch (task.context) {
          case "fail":
            throw new Fail("no");
          case "retry":
            throw new Retry("busy", 1000);
          case "later":
            return later;
          case "join":
            return spawn([{ type: "part", context: 1 }]).join({ max_parallel: 2 });
          case "slow":
            await go.promise;
        }
        return task.context;
      },
      { answerWithinMs: 200 },
    ),
  );
  assert.deepEqual(await b.post(batch(b, ["a", "fail", "retry", "later", "slow"])), {
    status: 200,
    body: {
      results: [
        { task_id: "images.1.0", output: "a" },
        { task_id: "images.1.1", outcome: "fail", error: "no" },
        { task_id: "images.1.2", outcome: "retry", error: "busy", retry_after: "1000ms" },
        { task_id: "images.1.3", outcome: "accepted" },
        { task_id: "images.1.4", outcome: "accepted" },
      ],
    },
  });
  go.resolve();
  assert.deepEqual((await b.report("complete")).body, { output: "slow" });
  assert.deepEqual((await b.post(batch(b, ["one", "join"]))).body, {
    results: [
      { task_id: "images.1.0", output: "one" },
      {
        task_id: "images.1.1",
        spawn: [{ type: "part", context: 1 }],
        join: { max_parallel: 2 },
      },
    ],
  });
  assert.equal((await b.post(batch(b, ["later", "later"]))).status, 202);
});

test("a handler of batches", async (t) => {
  const calls: number[] = [];
  const parse = (context: unknown) => {
    if (typeof context !== "number") throw new Error("it is no number");
    return context;
  };
  const b = await Bench.start(t, (w) =>
    w.handleBatch<number, number>(
      "images",
      "inspect",
      (tasks) => {
        calls.push(tasks.length);
        if (tasks.some((task) => task.context === 13)) throw new Fail("unlucky");
        return tasks
          .slice(0, 3)
          .map((task): BatchResult<number> =>
            task.context === 0
              ? { error: new Retry("zero", 0) }
              : task.context < 0
                ? later
                : { output: task.context * 2 },
          );
      },
      { parse },
    ),
  );
  assert.deepEqual((await b.post(batch(b, [1, 0, "x", -1, 5]))).body, {
    results: [
      { task_id: "images.1.0", output: 2 },
      { task_id: "images.1.1", outcome: "retry", error: "zero" },
      {
        task_id: "images.1.2",
        outcome: "fail",
        error: "the context can't be read: it is no number",
      },
      { task_id: "images.1.3", outcome: "accepted" },
      {
        task_id: "images.1.4",
        outcome: "retry",
        error: "the handler returned no result for this task",
      },
    ],
  });
  assert.deepEqual((await b.post(batch(b, [13, 1]))).body, {
    results: [
      { task_id: "images.1.0", outcome: "fail", error: "unlucky" },
      { task_id: "images.1.1", outcome: "fail", error: "unlucky" },
    ],
  });
  assert.deepEqual((await b.deliver(4)).body, { output: 8 }); // of an endpoint without batches
  assert.deepEqual(calls, [4, 2, 1]);
});

test("a task of a batch that has undefined for a result has failed, and no other", async (t) => {
  const b = await Bench.start(t, (w) =>
    w.handleBatch<number, number>("images", "inspect", (tasks) => {
      return tasks.map((task) =>
        task.context === 0 ? undefined : { output: task.context },
      ) as BatchResult<number>[];
    }),
  );
  assert.deepEqual((await b.post(batch(b, [1, 0, 2]))).body, {
    results: [
      { task_id: "images.1.0", output: 1 },
      {
        task_id: "images.1.1",
        outcome: "retry",
        error: "the handler returned no result for this task",
      },
      { task_id: "images.1.2", output: 2 },
    ],
  });
});

test("a batch is aborted when no task of it counts", async (t) => {
  const reason = deferred<unknown>();
  const first = deferred<boolean>();
  const b = await Bench.start(
    t,
    (w) =>
      w.handleBatch("images", "inspect", async (tasks, all) => {
        await aborted(tasks[0]?.signal ?? assert.fail());
        first.resolve(all.aborted);
        reason.resolve(await aborted(all));
        return [];
      }),
    { answerWithinMs: -1, heartbeatMs: 20 },
  );
  b.answers["heartbeat"] = (path) => ({
    status: 200,
    body: {
      status: path.includes("images.1.0/") ? "cancelled" : "running",
      deadline: new Date(Date.now() + 60_000).toISOString(),
    },
  });
  assert.equal((await b.post(batch(b, [1, 2]))).status, 202);
  assert.equal(await first.promise, false);
  b.answers["heartbeat"] = () => ({ status: 200, body: { status: "cancelled" } });
  assert.match(String(await reason.promise), /the task was cancelled/);
});
