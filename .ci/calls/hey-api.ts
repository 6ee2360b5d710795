// Makes the calls of docs/generated-clients.md by the client that hey-api makes.
import assert from "node:assert/strict";
import {
  cancelTask,
  deleteTaskType,
  getTask,
  getTaskType,
  listTasks,
  putTaskType,
  submitTask,
  type Problem,
  type Stage,
} from "./hey-api/index.js";
import { client } from "./hey-api/client.gen.js";

const type = "hey-api";
client.setConfig({ baseUrl: process.env.ASYNCFLOW_URL, auth: process.env.ASYNCFLOW_TOKEN });
await putAndGetTaskType();
const [first, second] = await submitTasks();
await readTask(first);
await readPages();
await refusedCalls();
await deleteAll(first, second);

async function putAndGetTaskType() {
  const stages: Stage[] = [
    {
      name: "inspect",
      timeout: "90s",
      max_processing_time: "90m",
      retry: { max_attempts: 3, interval: [5, 30.5] },
    },
    {
      name: "pages",
      retry: { interval: -10 },
      fan_out: { items: "/pages", on_child_failure: { tolerate: { percent: 2.5 } } },
    },
    { name: "resize", retry: { interval: "poly" } },
  ];
  const call = { path: { type }, body: { stages, retention: "720h" } };
  const put = await putTaskType(call);
  assert.deepEqual([put.response?.status, put.data?.version], [201, 1]);
  const again = await putTaskType(call); // changes nothing
  assert.deepEqual([again.response?.status, again.data?.version], [200, 1]);

  const { data } = await getTaskType({ path: { type } });
  assert.ok(data);
  assert.equal(data.retention, "720h");
  assert.equal(data.stages[0].timeout, "90s");
  assert.equal(data.stages[0].max_processing_time, "90m");
  assert.deepEqual(data.stages[0].retry?.interval, [5, 30.5]);
  assert.equal(data.stages[1].retry?.interval, -10);
  assert.equal(data.stages[2].retry?.interval, "poly");
  assert.deepEqual(data.stages[1].fan_out?.on_child_failure, { tolerate: { percent: 2.5 } });
}

async function submitTasks() {
  const context = { image: "harbour.jpg", tags: [] };
  const delayed = await submitTask({
    body: { type, context, delay: "1h", priority: [60, 0, 0] },
  });
  assert.deepEqual([delayed.response?.status, delayed.data?.status], [201, "waiting"]);
  const run_at = inAnHour();
  const timed = await submitTask({ body: { type, context: 1, run_at } });
  assert.ok(delayed.data && timed.data?.order_time);
  assert.equal(Date.parse(timed.data.order_time), Date.parse(run_at));
  return [delayed.data.id, timed.data.id];
}

function inAnHour() {
  const hour = 3_600_000;
  return new Date(Math.trunc(Date.now() / 1000) * 1000 + hour).toISOString();
}

async function readTask(id: string) {
  const { data } = await getTask({ path: { id } });
  assert.ok(data);
  assert.equal(data.id, id);
  assert.deepEqual(data.context, { image: "harbour.jpg", tags: [] });
  assert.deepEqual(data.priority, [60, 0, 0]);
  assert.ok(Date.now() - Date.parse(data.created_at) < 3_600_000);
}

async function readPages() {
  const since = new Date(Date.now() - 3_600_000).toISOString();
  const query = { type, status: "waiting" as const, since, limit: 1 };
  const newest = await listTasks({ query });
  assert.deepEqual(newest.data?.data.map((task) => task.id), [second]);
  const cursor = newest.data?.next_cursor;
  const oldest = await listTasks({ query: { ...query, cursor } });
  assert.deepEqual(oldest.data?.data.map((task) => task.id), [first]);
  const none = await listTasks({ query: { type, status: "succeeded" } });
  assert.deepEqual(none.data?.data, []);
}

async function refusedCalls() {
  const twice = await submitTask({ body: { type, context: 1, run_at: inAnHour(), delay: "1h" } });
  problem(twice.error, 400, "invalid_argument", "delay");
  const missing = await submitTask({ body: { type: "missing", context: 1 } });
  problem(missing.error, 404, "not_found", "type");
  const page = await listTasks({ query: { type, cursor: "none" } });
  problem(page.error, 400, "invalid_argument", "cursor");
  const live = await deleteTaskType({ path: { type } });
  problem(live.error, 409, "conflict");
  const stranger = await getTaskType({ path: { type }, auth: "none" });
  problem(stranger.error, 401, "unauthenticated");
}

async function deleteAll(...ids: string[]) {
  for (const id of ids) {
    const { data } = await cancelTask({ path: { id }, body: { reason: "over" } });
    assert.equal(data?.status, "cancelled");
  }
  const deleted = await deleteTaskType({ path: { type } });
  assert.equal(deleted.response?.status, 204);
  const gone = await getTaskType({ path: { type } });
  problem(gone.error, 404, "not_found", "type");
}

function problem(got: Problem | undefined, status: number, code: Problem["code"], field?: string) {
  assert.deepEqual([got?.status, got?.code, got?.errors?.[0].field], [status, code, field]);
}
