// Calls a node by openapi-fetch with the types that openapi-typescript makes by default: they demand
// no field that has a default.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./types.js";

const type = "openapi-fetch";
const client = createClient<paths>({
  baseUrl: process.env.ASYNCFLOW_URL,
  headers: { Authorization: `Bearer ${process.env.ASYNCFLOW_TOKEN}` },
});

const put = await client.PUT("/v1/task-types/{type}", {
  params: { path: { type } },
  body: { stages: [{ name: "inspect", retry: { interval: [5, 30] } }] },
});
assert.equal(put.data?.stages[0].name, "inspect", JSON.stringify(put.error));
const submitted = await client.POST("/v1/tasks", {
  body: { type, context: { image: "harbour.jpg" } },
});
assert.ok(submitted.data, JSON.stringify(submitted.error));
const id = submitted.data.id;
const task = await client.GET("/v1/tasks/{id}", { params: { path: { id } } });
assert.deepEqual(task.data?.context, { image: "harbour.jpg" }, JSON.stringify(task.error));
const list = await client.GET("/v1/tasks", { params: { query: { type } } });
assert.deepEqual(list.data?.data.map((t) => t.id), [id], JSON.stringify(list.error));
const refused = await client.POST("/v1/tasks", { body: { type: "missing", context: 1 } });
assert.equal(refused.error?.code, "not_found");
