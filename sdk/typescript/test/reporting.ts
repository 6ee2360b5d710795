// A worker that answers 202 and reports, for the tests in Go. It prints its URL.
import { setTimeout as sleep } from "node:timers/promises";

import { Worker } from "asyncflow";
import { listen } from "asyncflow/node";

const worker = new Worker({ keys: [process.env["WORKER_SECRET"] ?? ""], log: () => {}, answerWithinMs: -1, heartbeatMs: 50 });
worker.handle("pipe", "first", async (task) => {
  await sleep(200, undefined, { signal: task.signal });
  return task.context;
});
console.log((await listen(worker, { port: 0 })).url);
process.stdin.resume().once("end", () => process.exit()); // it ends with whoever has started it
