// Makes the calls of docs/generated-clients.md by openapi-fetch with the types that
// openapi-typescript makes by default: they demand no field that has a default.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./types.js";

type Problem = components["schemas"]["Problem"];
type Stage = components["schemas"]["Stage"];

const type = "openapi-fetch";
const client = connect(process.env.ASYNCFLOW_TOKEN);
await putTaskType();
const [first, second] = await submitTasks();
await readTask(first);
await listTasks();
await refusedCalls();
await deleteAll(first, second);

function connect(token?: string) {
  return createClient<paths>({
    baseUrl: process.env.ASYNCFLOW_URL,
    headers: { Authorization: `Bearer ${token}` },
  });
}

async function putTaskType() {
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
  const call = { params: { path: { type } }, body: { stages, retention: "720h" } };
  const put = await client.PUT("/v1/task-types/{type}", call);
  assert.deepEqual([put.response.status, put.data?.version], [201, 1]);
  const again = await client.PUT("/v1/task-types/{type}", call); // changes nothing
  assert.deepEqual([again.response.status, again.data?.version], [200, 1]);

  const { data } = await client.GET("/v1/task-types/{type}", { params: { path: { type } } });
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
  const delayed = await client.POST("/v1/tasks", {
    body: { type, context, delay: "1h", priority: [60, 0, 0] },
  });
  assert.deepEqual([delayed.response.status, delayed.data?.status], [201, "waiting"]);
  const run_at = inAnHour();
  const timed = await client.POST("/v1/tasks", { body: { type, context: 1, run_at } });
  assert.ok(delayed.data && timed.data?.order_time);
  assert.equal(Date.parse(timed.data.order_time), Date.parse(run_at));
  return [delayed.data.id, timed.data.id];
}

function inAnHour() {
  const hour = 3_600_000;
  return new Date(Math.trunc(Date.now() / 1000) * 1000 + hour).toISOString();
}

async function readTask(id: string) {
  const { data } = await client.GET("/v1/tasks/{id}", { params: { path: { id } } });
  assert.ok(data);
  assert.equal(data.id, id);
  assert.deepEqual(data.context, { image: "harbour.jpg", tags: [] });
  assert.deepEqual(data.priority, [60, 0, 0]);
  assert.ok(Date.now() - Date.parse(data.created_at) < 3_600_000);
}

async function listTasks() {
  const since = new Date(Date.now() - 3_600_000).toISOString();
  const query = { type, status: "waiting" as const, since, limit: 1 };
  const newest = await client.GET("/v1/tasks", { params: { query } });
  assert.deepEqual(newest.data?.data.map((task) => task.id), [second]);
  const cursor = newest.data?.next_cursor;
  const oldest = await client.GET("/v1/tasks", { params: { query: { ...query, cursor } } });
  assert.deepEqual(oldest.data?.data.map((task) => task.id), [first]);
  const none = await client.GET("/v1/tasks", { params: { query: { type, status: "succeeded" } } });
  assert.deepEqual(none.data?.data, []);
}

async function refusedCalls() {
  const twice = await client.POST("/v1/tasks", {
    body: { type, context: 1, run_at: inAnHour(), delay: "1h" },
  });
  problem(twice.error, 400, "invalid_argument", "delay");
  const missing = await client.POST("/v1/tasks", { body: { type: "missing", context: 1 } });
  problem(missing.error, 404, "not_found", "type");
  const page = await client.GET("/v1/tasks", { params: { query: { type, cursor: "none" } } });
  problem(page.error, 400, "invalid_argument", "cursor");
  const path = { type };
  const live = await client.DELETE("/v1/task-types/{type}", { params: { path } });
  problem(live.error, 409, "conflict");
  const stranger = await connect("none").GET("/v1/task-types/{type}", { params: { path } });
  problem(stranger.error, 401, "unauthenticated");
}

async function deleteAll(...ids: string[]) {
  for (const id of ids) {
    const { data } = await client.POST("/v1/tasks/{id}/cancel", {
      params: { path: { id } },
      body: { reason: "over" },
    });
    assert.equal(data?.status, "cancelled");
  }
  const path = { type };
  const deleted = await client.DELETE("/v1/task-types/{type}", { params: { path } });
  assert.equal(deleted.response.status, 204);
  const gone = await client.GET("/v1/task-types/{type}", { params: { path } });
  problem(gone.error, 404, "not_found", "type");
}

function problem(got: Problem | undefined, status: number, code: Problem["code"], field?: string) {
  assert.deepEqual([got?.status, got?.code, got?.errors?.[0].field], [status, code, field]);
}
