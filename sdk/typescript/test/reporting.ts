// This worker answers 202 and reports. The tests in Go start it; it prints its URL.
import { setTimeout as sleep } from "node:timers/promises";

import { Worker } from "asyncflow";
import { listen } from "asyncflow/node";

const worker = new Worker({
  keys: [process.env["WORKER_SECRET"] ?? ""],
  log: () => {},
  answerWithinMs: -1,
  heartbeatMs: 50,
});
worker.handle("pipe", "first", async (task) => {
  // The checks of heartbeats send a delivery with a near deadline. Its work outlasts their
  // answers, however slow the machine is.
  const near = task.deadline.getTime() - Date.now() < 20_000;
  await sleep(near ? 30_000 : 200, undefined, { signal: task.signal });
  return task.context;
});
console.log((await listen(worker, { port: 0 })).url);
// It ends when the process that started it ends.
process.stdin.resume().once("end", () => process.exit());
