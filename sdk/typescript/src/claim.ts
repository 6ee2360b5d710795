import type { Client } from "./client.js";
import type { Delivery } from "./delivery.js";
import { invalid, messageOf, ProblemError } from "./errors.js";
import { pause } from "./time.js";
import type { Worker } from "./worker.js";

/** How a Worker asks for tasks of a stage, instead of being sent them. */
export interface Claims {
  /** Needs a token with the scope work. */
  client: Client;
  type: string;
  stage: string;
  /** Who asks: it must differ from all who ask at the same time. Default: a random name. */
  claimer?: string;
  /** What the claimer is or can do, for tasks with rules: the values of each label. */
  labels?: Record<string, string[]>;
  /** The most tasks that are worked on at once. Default 10. */
  concurrency?: number;
  /** How long one call waits for a task, in milliseconds. Default 30,000. */
  waitMs?: number;
  /** Ends the loop. */
  signal: AbortSignal;
}

const mostHeld = 1000; // that a call can name
const leastPauseMs = 500;
const longestPauseMs = 30_000;

/**
 * Claims tasks of a stage and passes them to the stage's handler, until the signal is aborted. Then
 * it asks for no more, gives back what hasn't begun, and resolves; worker.close waits for the tasks
 * in flight. It retries with growing pauses while asyncflow can't be reached or has no capacity.
 * @throws ProblemError for other refusals: a token without the scope work, or a stage whose mode
 * isn't claim
 */
export async function claim(worker: Worker, c: Claims): Promise<void> {
  const {
    type,
    stage,
    concurrency = 10,
    waitMs = 30_000,
    claimer = `js-${crypto.randomUUID()}`,
  } = c;
  if (!(concurrency >= 1 && concurrency <= 1000))
    throw invalid("concurrency", `is ${concurrency}; it must be 1 to 1000`);
  if (!worker.handles(type, stage)) throw invalid("stage", `${type}/${stage} has no handler`);
  // Tasks that go on elsewhere, the latest last: their claims are still open.
  const later = new Set<string>();
  // The seqs of the tasks that are worked on, and of those in later.
  const held = new Map<string, number>();
  const busy = () => held.size - later.size;
  const forget = (id: string) => later.delete(id) && held.delete(id);
  let changed = () => {}; // a task has ended, or the signal is aborted
  const onAbort = () => changed();
  c.signal.addEventListener("abort", onAbort);
  try {
    for (let wait = leastPauseMs; !c.signal.aborted; ) {
      if (busy() >= concurrency) {
        await new Promise<void>((resolve) => (changed = resolve));
        continue;
      }
      for (const id of later) if (held.size > mostHeld) forget(id);
      let all: Delivery[];
      try {
        all = await c.client.claim(
          {
            type,
            stage,
            claimer,
            max: concurrency - busy(),
            held: [...held.keys()],
            waitMs,
            ...(c.labels && { labels: c.labels }),
          },
          { signal: c.signal, worker: worker.name },
        );
        wait = leastPauseMs;
      } catch (err) {
        if (c.signal.aborted) return;
        if (
          err instanceof ProblemError &&
          err.status >= 400 &&
          err.status < 500 &&
          err.status !== 429
        )
          throw err;
        worker.log({
          level: "warn",
          message: "no claim, trying again",
          type,
          stage,
          error: messageOf(err),
        });
        await pause(wait * (1 - Math.random() / 2), c.signal);
        wait = Math.min(2 * wait, longestPauseMs);
        continue;
      }
      for (const d of all) {
        if (held.get(d.task_id) !== d.seq) forget(d.task_id); // another attempt
        if (held.has(d.task_id)) continue;
        held.set(d.task_id, d.seq);
        const over = (goesOn: boolean) => {
          if (goesOn) later.add(d.task_id);
          else held.delete(d.task_id);
          changed();
        };
        if (!c.signal.aborted && worker.beginClaim(d, over)) continue;
        held.delete(d.task_id);
        await giveBack(worker, d);
      }
    }
  } finally {
    c.signal.removeEventListener("abort", onAbort);
  }
}

// giveBack gives back a task that hasn't begun. If that fails, the claim runs out soon.
async function giveBack(worker: Worker, d: Delivery): Promise<void> {
  try {
    await worker.reporter.release(d.callback);
  } catch (err) {
    worker.log({
      level: "warn",
      message: "a claim was not given back",
      task: d.task_id,
      error: messageOf(err),
    });
  }
}
