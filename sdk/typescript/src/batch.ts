import { AsyncflowError, invalid, messageOf, ProblemError } from "./errors.js";
import type { NewSignal, NewTask, SubmittedBatch, SubmittedTask } from "./types.js";

/** The result for one task of submitMany. error is set if the task was refused. */
export type SubmitResult =
  { task: SubmittedTask; error?: undefined } | { task?: undefined; error: AsyncflowError };

const maxTasks = 1000;
// Half of what a server accepts by default.
const maxBytes = 8 << 20;

/** The body of one call, and the results of its tasks. */
interface Batch {
  /** "" if no task of it can be sent. */
  body: string;
  sent: number;
  repeatable: boolean;
  /**
   * Returns the results of all tasks in order: those of the server, and those of tasks that weren't
   * sent.
   */
  merge(results: SubmitResult[]): SubmitResult[];
}

/**
 * Returns a task as it is sent. Refuses a task that can't be written as JSON: it would make the
 * whole body unreadable.
 */
export function encodeTask(task: NewTask): string {
  let text: string;
  try {
    text = JSON.stringify(task);
  } catch (err) {
    throw invalid("context", `can't be written as JSON: ${messageOf(err)}`);
  }
  if (JSON.stringify(task.context) === undefined) throw invalid("context", "is required");
  return text;
}

/** Reports whether a task that was submitted is found again by its key, if the answer was lost. */
export function isRepeatable(task: NewTask): boolean {
  return Boolean(task.key) && (task.on_conflict ?? "return") === "return" &&
    task.key_window !== "until_final";
}

/** Returns a signal as it is sent. Refuses data that can't be written as JSON. */
export function encodeSignal(signal: NewSignal): string {
  try {
    return JSON.stringify(signal);
  } catch (err) {
    throw invalid("data", `can't be written as JSON: ${messageOf(err)}`);
  }
}

/** Splits tasks into batches of one call each. */
export function* taskBatches(tasks: readonly NewTask[]): Generator<Batch> {
  const utf8 = new TextEncoder();
  for (let i = 0; i < tasks.length; ) {
    const docs: string[] = [];
    const refused: (AsyncflowError | undefined)[] = [];
    let repeatable = true;
    for (let bytes = 0; i < tasks.length && refused.length < maxTasks; i++) {
      const task = tasks[i] as NewTask;
      try {
        const doc = encodeTask(task);
        const size = utf8.encode(doc).length + 1;
        if (docs.length > 0 && bytes + size > maxBytes) break;
        bytes += size;
        docs.push(doc);
        refused.push(undefined);
        repeatable &&= isRepeatable(task);
      } catch (err) {
        if (!(err instanceof AsyncflowError)) throw err;
        refused.push(err);
      }
    }
    yield {
      body: docs.length > 0 ? `{"tasks":[${docs.join(",")}]}` : "", sent: docs.length, repeatable,
      merge: (results) => {
        const next = results.values();
        return refused.map((error) => (error ? { error } : (next.next().value as SubmitResult)));
      },
    };
  }
}

/** Returns a result of the server. Fields are named without the task's position in the batch. */
export function resultOf(r: SubmittedBatch["tasks"][number]): SubmitResult {
  if (r.task) return { task: r.task };
  const p = r.error ?? {
    type: "about:blank",
    title: "",
    status: 500,
    code: "internal",
    detail: "the server's answer says nothing about this task",
  };
  const withoutPlace = (text: string) => text.replace(/^tasks\[\d+\]\./, "");
  const problem = { ...p };
  if (p.detail) problem.detail = withoutPlace(p.detail);
  if (p.errors) problem.errors = p.errors.map((f) => ({ ...f, field: withoutPlace(f.field) }));
  return { error: new ProblemError(p.status, problem) };
}
