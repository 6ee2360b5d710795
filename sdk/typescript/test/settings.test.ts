import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, etagOf } from "asyncflow";

// These tests need a real server, whose URL and token are in the environment.
const [url, token] = [process.env["ASYNCFLOW_URL"] ?? "", process.env["ASYNCFLOW_TOKEN"] ?? ""];
const options = { skip: url === "" ? "ASYNCFLOW_URL and ASYNCFLOW_TOKEN are not set" : false };
const client = url === "" ? undefined : new Client(url, token);
const c = client as Client;

let names = 0;

/** Makes a task type without an endpoint, so that its tasks stay where they are. */
async function type(): Promise<string> {
  const name = `set${process.pid}-${++names}`;
  await c.putTaskType(name, { stages: [{ name: "only" }] });
  return name;
}

test("versions of a task type: listed, read, tried, and gone back to", options, async () => {
  const name = await type();
  await c.putTaskType(name, { stages: [{ name: "only", timeout: "20s" }, { name: "more" }] });
  const versions = await c.taskTypeVersions(name);
  assert.deepEqual(versions.map((v) => [v.version, v.current]), [[2, true], [1, undefined]]);
  const first = await c.taskTypeVersion(name, 1);
  assert.deepEqual([first.name, first.version, first.spec.stages.map((s) => s.name)],
    [name, 1, ["only"]]);
  const would = await c.checkTaskType(name, first.spec);
  assert.deepEqual([would.version, would.stages.length], [3, 1]);
  assert.equal((await c.taskType(name)).version, 2); // nothing was changed
  const back = await c.putTaskType(name, first.spec);
  assert.deepEqual([back.version, back.stages], [3, would.stages]);
  await assert.rejects(c.checkTaskType(name, { stages: [] }), { status: 400 });
  await assert.rejects(c.taskTypeVersion(name, 9), { status: 404 });
});

test("a schedule is tried, set, changed, paused, triggered and deleted", options, async () => {
  const name = await type();
  const spec = { type: name, context: { n: 1 }, cron: "@daily", user: "ada", tags: ["eu"] };
  const would = await c.checkSchedule(name, spec);
  assert.deepEqual([would.name, would.user, would.tags], [name, "ada", ["eu"]]);
  await assert.rejects(c.schedule(name), { status: 404 }); // nothing was made
  await c.putSchedule(name, spec, { ifNew: true });
  const read = await c.schedule(name);
  assert.deepEqual([read.context, read.cron], [{ n: 1 }, "@daily"]);
  await c.putSchedule(name, { ...spec, tags: ["us"] }, { ifMatch: etagOf(read) });
  await assert.rejects(c.putSchedule(name, spec, { ifMatch: etagOf(read) }), { status: 412 });
  assert.deepEqual((await c.schedules()).filter((s) => s.name === name).map((s) => s.tags),
    [["us"]]);
  assert.ok((await c.pauseSchedule(name)).paused_at);
  const { id } = await c.triggerSchedule(name);
  const task = await c.get(id);
  assert.deepEqual([task.user, task.tags, task.context], ["ada", ["us"], { n: 1 }]);
  assert.equal((await c.resumeSchedule(name)).paused_at, undefined);
  await assert.rejects(c.putSchedule(name, { ...spec, cron: "never" }), { status: 400 });
  await c.deleteSchedule(name);
  await assert.rejects(c.schedule(name), { status: 404 });
});

test("alerts are set, read and ended", options, async () => {
  await c.deleteAlerts().catch(() => {}); // of another run
  assert.deepEqual(await c.firingAlerts(), { enabled: false, data: [] });
  const set = await c.putAlerts({ url: "http://127.0.0.1:9/alerts",
    rules: { failed_for_good: 3, failed_within: "2h", blocked_key: "1d", long_wait: "30s" } });
  assert.ok(set.secret);
  const { rules, episodes, secret } = await c.alerts();
  assert.deepEqual([rules.failed_for_good, rules.failed_within, rules.blocked_key, rules.long_wait],
    [3, "2h", "1d", "30s"]);
  assert.deepEqual([episodes, secret], [[], undefined]);
  assert.deepEqual(await c.firingAlerts(), { enabled: true, data: [] });
  await assert.rejects(c.putAlerts({ url: "http://127.0.0.1:9/alerts", rules: {} }),
    { status: 400 });
  await c.deleteAlerts();
  await assert.rejects(c.alerts(), { status: 404 });
});
