// Calls a node by the client that hey-api makes.
import assert from "node:assert/strict";
import { getTask, listTasks, putTaskType, submitTask } from "./hey-api/index.js";
import { client } from "./hey-api/client.gen.js";

const type = "hey-api";
client.setConfig({ baseUrl: process.env.ASYNCFLOW_URL, auth: process.env.ASYNCFLOW_TOKEN });

const put = await putTaskType({
  path: { type },
  body: { stages: [{ name: "inspect", retry: { interval: [5, 30] } }] },
});
assert.equal(put.data?.stages[0].name, "inspect", JSON.stringify(put.error));
const submitted = await submitTask({ body: { type, context: { image: "harbour.jpg" } } });
assert.ok(submitted.data, JSON.stringify(submitted.error));
const id = submitted.data.id;
const task = await getTask({ path: { id } });
assert.deepEqual(task.data?.context, { image: "harbour.jpg" }, JSON.stringify(task.error));
const list = await listTasks({ query: { type } });
assert.deepEqual(list.data?.data.map((t) => t.id), [id], JSON.stringify(list.error));
const refused = await submitTask({ body: { type: "missing", context: 1 } });
assert.equal(refused.error?.code, "not_found");
