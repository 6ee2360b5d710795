import assert from "node:assert/strict";
import { test } from "node:test";

import { claim, Client, ProblemError, Reporter, Worker, type Joined } from "asyncflow";

import { deferred, serve, textOf } from "./setup.js";

// These tests need a real server, whose URL and token are in the environment.
const [url, token] = [process.env["ASYNCFLOW_URL"] ?? "", process.env["ASYNCFLOW_TOKEN"] ?? ""];
const options = { skip: url === "" ? "ASYNCFLOW_URL and ASYNCFLOW_TOKEN are not set" : false };
const client = url === "" ? undefined : new Client(url, token);
const c = client as Client;
const stage = "look";

let names = 0;

/** Makes a task type whose only stage is claimed. */
async function type(): Promise<string> {
  const name = `claim${process.pid}-${++names}`;
  await c.putTaskType(name, {
    stages: [{ name: stage, mode: "claim", retry: { max_attempts: 2, interval: -0.1 } }],
  });
  return name;
}

const worker = () => new Worker({ keys: [], log: () => {} });

test(
  "a claimer gets the tasks whose rules its labels meet, and none whose time is over",
  options,
  async () => {
    const name = await type();
    const german = await c.submit(
      { type: name, context: 1, claim: { labels: { lang: "de" } }, end_by: "1h" });
    const late = await c.submit({ type: name, context: 2, end_by: "2020-01-01T00:00:00Z" });
    const ask = { type: name, stage, claimer: "anna", labels: { lang: ["en"] } };
    assert.deepEqual(await c.claim(ask), []);
    const w = worker().handle<number, number>(name, stage, (task) => task.context + 1);
    const stop = new AbortController();
    const labels = { lang: ["de", "en"] };
    const ended = claim(w, { client: c, type: name, stage, labels, signal: stop.signal });
    assert.equal((await c.wait(german.id)).result, 2);
    const task = await c.wait(late.id);
    assert.deepEqual([task.status, task.error_code], ["failed", "expired"]);
    stop.abort();
    await ended;
  },
);

test(
  "the handlers work on claims: with retries, and no more at once than asked for",
  options,
  async () => {
    const name = await type();
    let [now, most] = [0, 0];
    const w = worker().handle<number, number>(name, stage, async (task) => {
      most = Math.max(most, ++now);
      await new Promise(setImmediate);
      now--;
      if (task.context % 5 === 0 && task.attempt === 1) throw new Error("not yet");
      return 2 * task.context;
    });
    const stop = new AbortController();
    const ended = claim(w, { client: c, type: name, stage, concurrency: 3, signal: stop.signal });
    const results = await c.submitMany(
      Array.from({ length: 20 }, (_, i) => ({ type: name, context: i })),
    );
    for (const [i, r] of results.entries())
      assert.equal((await c.wait(r.task?.id ?? assert.fail())).result, 2 * i);
    assert.ok(most <= 3, String(most));
    stop.abort();
    await ended;
    await w.close();
  },
);

test("after a stop nothing begins, and what has begun is finished", options, async () => {
  const name = await type();
  const [begun, go, stop] = [deferred(), deferred(), new AbortController()];
  const w = worker().handle(name, stage, async () => {
    begun.resolve();
    await go.promise;
    return "done";
  });
  const first = await c.submit({ type: name, context: 1 });
  const ended = claim(w, { client: c, type: name, stage, concurrency: 1, signal: stop.signal });
  await begun.promise;
  const second = await c.submit({ type: name, context: 2 });
  stop.abort();
  await ended;
  go.resolve();
  await w.close();
  assert.equal((await c.get(first.id)).result, "done");
  assert.equal((await c.get(second.id)).status, "waiting");
});

test(
  "an answer that is lost is asked for again; a task is given back by a worker that closes",
  options,
  async (t) => {
    const name = await type();
    let broken = 1;
    const proxy = await serve(
      t,
      (req, res) =>
        void (async () => {
          const body = await textOf(req);
          const headers = {
            Authorization: req.headers.authorization ?? "",
            "Content-Type": "application/json",
          };
          const upstream = await fetch(url + req.url, { method: req.method ?? "", body, headers });
          const answer = await upstream.text(); // it was done
          if (broken-- > 0) res.destroy();
          else res.writeHead(upstream.status, { "Content-Type": "application/json" }).end(answer);
        })(),
    );
    const { id } = await c.submit({ type: name, context: 1 });
    const [delivery] = await new Client(proxy, token).claim({ type: name, stage, claimer: "anna" });
    assert.deepEqual([delivery?.task_id, delivery?.seq], [id, 1]);
    const w = worker();
    await w.reporter.release(delivery?.callback ?? assert.fail());

    const stop = new AbortController();
    const released = deferred();
    const release = w.reporter.release.bind(w.reporter);
    w.reporter.release = async (callback, signal) => {
      await release(callback, signal);
      stop.abort();
      released.resolve();
    };
    w.handle(name, stage, () => assert.fail());
    await w.close();
    await claim(w, { client: c, type: name, stage, signal: stop.signal });
    await released.promise;
    assert.deepEqual(
      (await c.attempts(id)).map((a) => [a.outcome, a.attempt]),
      [
        ["released", 1],
        ["released", 1],
      ],
    );
  },
);

test("two claimers decide a task", options, async () => {
  const name = await type();
  await c.putTaskType(name, {
    stages: [
      { name: stage, mode: "claim", quorum: { votes: 2, max_votes: 2, agree_on: "/label" } },
    ],
  });
  const { id } = await c.submit({ type: name, context: 1 });
  const stop = new AbortController();
  const workers = ["anna", "bob"].map(() => worker().handle(name, stage, () => ({ label: "cat" })));
  const ended = workers.map((w) =>
    claim(w, { client: c, type: name, stage, concurrency: 1, signal: stop.signal }),
  );
  assert.equal(((await c.wait(id)).result as { outcome: string }).outcome, "cat");
  stop.abort();
  await Promise.all(ended);
  assert.deepEqual(
    (await c.results(id)).results.map((r) => r.output),
    [{ label: "cat" }, { label: "cat" }],
  );
  const votes = await c.votes(id);
  assert.deepEqual(
    [votes.decided, votes.outcome, votes.data.map((v) => v.outcome)],
    [true, "cat", ["cat", "cat"]],
  );
  assert.notEqual(votes.data[0]?.claimer, votes.data[1]?.claimer);
  await Promise.all(workers.map((w) => w.close()));
});

test("results of a fan-out, short and long", options, async () => {
  for (const [shards, length, long] of [
    [2, 5, false],
    [24, 200_000, true],
  ] as const) {
    const name = await type();
    await c.putTaskType(name, {
      stages: [
        { name: "map", mode: "claim", fan_out: { shards } },
        { name: "reduce", mode: "claim" },
      ],
    });
    const stop = new AbortController();
    const w = worker().handle(name, "map", () => "x".repeat(length));
    w.handle<Joined, unknown>(name, "reduce", async (task) => {
      const outputs: (string | null)[] = [];
      for await (const output of task.outputs<string>()) outputs.push(output);
      const statuses: string[] = [];
      if (long) for await (const result of task.settled()) statuses.push(result.status);
      return [
        task.context.results_url !== undefined,
        outputs.map((o) => o?.length),
        statuses.length,
      ];
    });
    const ended = ["map", "reduce"].map((stage) =>
      claim(w, { client: c, type: name, stage, signal: stop.signal }),
    );
    const { id } = await c.submit({ type: name, context: 1 });
    assert.deepEqual((await c.wait(id)).result, [
      long,
      Array<number>(shards).fill(length),
      long ? shards : 0,
    ]);
    stop.abort();
    await Promise.all(ended);
    await w.close();
  }
});

test("an address in a context never gets the token", async () => {
  const callback = { url: "http://127.0.0.1:1/v1/callbacks/a.1.1/1", token: "t" };
  const asked: string[] = [];
  const reporter = new Reporter({
    fetch: (async (url: string) => (
      asked.push(url),
      new Response(`{"count":0,"results":[]}`)
    )) as typeof fetch,
  });
  await reporter.results(callback, "https://evil.example/v1/tasks/a.1.1/results?fan_out=3", 7);
  assert.deepEqual(asked, ["http://127.0.0.1:1/v1/tasks/a.1.1/results?fan_out=3&from=7"]);
  for (const path of ["", "v1/tasks/../evil/results", "v1/tasks/..\\..\\evil/results"]) {
    await assert.rejects(
      reporter.results(callback, `https://evil.example/${path}`),
      /no address of results/,
    );
  }
});

test("what can't be claimed", options, async () => {
  const name = await type();
  const signal = new AbortController().signal;
  const w = worker()
    .handle(name, stage, () => 1)
    .handle(name, "other", () => 1);
  await assert.rejects(
    claim(w, { client: c, type: name, stage, concurrency: 0, signal }),
    /concurrency is 0; it must be 1 to 1000/,
  );
  await assert.rejects(
    claim(w, { client: c, type: name, stage: "none", signal }),
    /has no handler/,
  );
  await assert.rejects(
    claim(w, { client: c, type: name, stage: "other", signal }),
    (err) => err instanceof ProblemError && err.status === 400,
  );
  await c.putTaskType(name, { stages: [{ name: stage }] });
  await assert.rejects(
    claim(w, { client: c, type: name, stage, signal }),
    (err) => err instanceof ProblemError && err.status === 409,
  );
});

test("a handler reads the input and earlier outputs, also long ones", options, async () => {
  for (const most of [1000, 20]) {
    const name = await type();
    await c.putTaskType(name, {
      max_deliver_bytes: most,
      stages: [
        { name: stage, mode: "claim" },
        { name: "end", mode: "claim", deliver: { input: true, outputs: [stage, "end"] } },
      ],
    });
    const w = worker()
      .handle(name, stage, async (task) => {
        await assert.rejects(task.input(), /stage look doesn't ask for the input/);
        return { width: 640 };
      })
      .handle(name, "end", async (task) => {
        await assert.rejects(task.output("other"), /stage end doesn't ask for the other/);
        const { note } = await task.input<{ note: string }>();
        const looked = await task.output<{ width: number }>(stage);
        return [note, looked?.width, await task.output("end")];
      });
    const stop = new AbortController();
    const claims = [stage, "end"].map((stage) =>
      claim(w, { client: c, type: name, stage, signal: stop.signal }),
    );
    const task = await c.submit({ type: name, context: { note: "x".repeat(50) } });
    assert.deepEqual((await c.wait(task.id)).result, ["x".repeat(50), 640, null]);
    stop.abort();
    await Promise.all(claims);
    await w.close();
  }
});
