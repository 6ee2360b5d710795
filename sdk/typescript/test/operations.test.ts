import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { Client, type BulkCancellation, type Operation, type Task } from "asyncflow";

// These tests need a real server, whose URL and token are in the environment.
const [url, token] = [process.env["ASYNCFLOW_URL"] ?? "", process.env["ASYNCFLOW_TOKEN"] ?? ""];
const options = { skip: url === "" ? "ASYNCFLOW_URL and ASYNCFLOW_TOKEN are not set" : false };
const client = url === "" ? undefined : new Client(url, token);
const c = client as Client;

let names = 0;

/** Makes a task type without an endpoint, so that its tasks stay where they are. */
async function type(): Promise<string> {
  const name = `many${process.pid}-${++names}`;
  await c.putTaskType(name, { stages: [{ name: "only" }] });
  return name;
}

/** Submits delayed tasks of three orders: two are of ada, and one of bob. */
async function orders(type: string): Promise<string[]> {
  const results = await c.submitMany(["ada", "ada", "bob"].map((user, i) => ({
    type, context: i, delay: "1h", user, tags: ["all", user], metadata: { order: String(i) },
  })));
  return results.map((r) => r.task?.id ?? assert.fail(String(r.error)));
}

/** Returns an operation once it has ended. */
async function ended({ id }: Operation): Promise<Operation> {
  for (;;) {
    const now = await c.operation(id);
    if (now.state !== "running") return now;
    await pause(50);
  }
}

const tasks = (ids: string[]): Promise<Task[]> => Promise.all(ids.map((id) => c.get(id)));
const statuses = async (ids: string[]) => (await tasks(ids)).map((task) => task.status);

test("all tasks that a filter finds are changed, counted first", options, async () => {
  const name = await type();
  const ids = await orders(name);
  const ada = { type: name, user: "ada" };

  assert.equal(await c.countDelay({ ...ada, delay: "3h" }), 2);
  const before = (await tasks(ids)).map((task) => Date.parse(task.order_time ?? ""));
  const delayed = await c.delayAll({ ...ada, delay: "3h" });
  assert.deepEqual([delayed.kind, delayed.filter], ["delay", { user: "ada" }]);
  assert.deepEqual([(await ended(delayed)).done, (await ended(delayed)).state], [2, "done"]);
  const after = (await tasks(ids)).map((task) => Date.parse(task.order_time ?? ""));
  assert.deepEqual(after.map((at, i) => at - (before[i] ?? 0) > 3_600_000), [true, true, false]);

  const bob = { type: name, tags: "all,bob" };
  assert.equal(await c.countPrioritize({ ...bob, priority: 60 }), 1);
  assert.equal((await ended(await c.prioritizeAll({ ...bob, priority: 60 }))).done, 1);
  assert.deepEqual((await tasks(ids)).map((task) => task.priority), [undefined, undefined, 60]);

  assert.equal(await c.countCancel({ type: name, metadata: "order=0" }), 1);
  const forced = { type: name, any_tags: "ada,x", dry_run: true } as BulkCancellation;
  assert.equal((await ended(await c.cancelAll(forced))).done, 2); // it is no dry run
  assert.deepEqual(await statuses(ids), ["cancelled", "cancelled", "waiting"]);

  const final = { type: name, status: "cancelled" } as const;
  assert.equal(await c.countRerun({ ...final, user: "ada" }), 2);
  assert.equal((await ended(await c.rerunAll({ ...final, metadata: "order=1" }))).done, 1);
  const again = (await c.list({ type: name, user: "ada" })).data;
  assert.deepEqual(again.map((task) => task.rerun_of), [ids[1], undefined, undefined]);

  assert.equal(await c.countRedrive(final), 2);
  const redriven = await c.redriveAll({ ids: ids.slice(0, 1), status: "cancelled" });
  assert.equal((await ended(redriven)).done, 1);
  assert.deepEqual((await statuses(ids)).map((status) => status === "cancelled"),
    [false, true, false]);

  assert.equal(await c.countErase({ type: name }), 1);
  assert.equal((await ended(await c.eraseAll({ type: name, pace: 50 }))).done, 1);
  assert.ok((await c.get(ids[1] ?? "")).erased?.at);

  const counted = await ended(await c.countAll({ type: name, user: "ada" }));
  assert.deepEqual([counted.kind, counted.done, counted.skipped], ["count", 2, 2]);
  const all = (await c.operations()).filter((o) => o.type === name).map((o) => o.kind);
  assert.deepEqual(all,
    ["count", "erase", "redrive", "rerun", "cancel", "priority", "delay"]);
  const [stats] = await c.stats(name);
  assert.deepEqual([stats?.type, stats?.cancelled], [name, 1]);
  assert.ok((await c.stats()).some((one) => one.type === name));
  await assert.rejects(c.countCancel({}), { status: 400, code: "invalid_argument" });
});

test("an operation is stopped", options, async () => {
  const name = await type();
  const ids = await orders(name);
  const slow = await c.cancelAll({ type: name, pace: 0.01 });
  assert.deepEqual([slow.state, slow.total, slow.pace], ["running", 3, 0.01]);
  const stopped = await c.stopOperation(slow.id);
  assert.equal(stopped.state, "stopped");
  assert.deepEqual(await c.stopOperation(slow.id), await c.operation(slow.id));
  const left = (await statuses(ids)).filter((status) => status === "waiting");
  assert.ok(left.length >= 2, String(left.length)); // one in 100 s
  await assert.rejects(c.operation("nothing"), { status: 404 });
});

test("tasks are found by what they are about, from either end", options, async () => {
  const name = await type();
  const ids = await orders(name);
  const found = async (filter: Parameters<Client["list"]>[0]) =>
    (await c.list({ type: name, ...filter })).data.map((task) => ids.indexOf(task.id));
  assert.deepEqual(await found({ user: "ada" }), [1, 0]);
  assert.deepEqual(await found({ user: "ada", reverse: true }), [0, 1]);
  assert.deepEqual(await found({ tags: "bob,all" }), [2]);
  assert.deepEqual(await found({ anyTags: "bob,ada" }), [2, 1, 0]);
  assert.deepEqual(await found({ metadata: "order=1" }), [1]);
  assert.deepEqual(await c.count({ type: name, user: "ada" }), { count: 2, exact: true });
  for (const i of [2, 0, 1]) await c.cancel(ids[i] ?? "");
  assert.deepEqual(await found({ status: "cancelled", order: "ended" }), [1, 0, 2]);
});
