import {
  encodeSignal, encodeTask, isRepeatable, resultOf, taskBatches, type SubmitResult,
} from "./batch.js";
import {
  Caller, conditions, pathPart, type CallOptions, type ChangeOptions, type ClientOptions,
} from "./call.js";
import type { Delivery } from "./delivery.js";
import { AsyncflowError, ConnectionError, ProblemError, SubmitManyError } from "./errors.js";
import { workerHeader } from "./name.js";
import { SettingCalls } from "./settings.js";
import { formatDuration, pause } from "./time.js";
import {
  isFinal,
  type Attempt,
  type AttemptList,
  type ChildResults,
  type NewSignal,
  type NewTask,
  type Redrive,
  type Rerun,
  type SentSignal,
  type Status,
  type SubmittedBatch,
  type SubmittedTask,
  type Task,
  type TaskCount,
  type TaskList,
  type TaskPatch,
  type TaskCheckpoint,
  type VoteList,
} from "./types.js";
import { watchTask, type TaskEvent } from "./watch.js";

/** Options of a signal, and of a rerun. */
export interface SignalOptions extends CallOptions {
  /** What has the same key is done once. */
  idempotencyKey?: string | undefined;
}

/** Selects the tasks that count counts. */
export interface CountParams {
  /** The task type. Default: all types. */
  type?: string;
  status?: Status;
  /** Only tasks that are, or ended, in this stage. */
  stage?: string;
  /** Only tasks whose last error contains this text, in any case. */
  error?: string;
  /** Only the task for which this idempotency key stands, as long as the key is kept. */
  key?: string;
  /** Only tasks submitted at or after this time. */
  since?: Date;
  /** Only tasks submitted before this time. */
  until?: Date;
  /** Only final tasks that ended at or after this time. */
  endedSince?: Date;
  /** Only final tasks that ended before this time. */
  endedUntil?: Date;
  /** Only tasks whose stage is, or ended, in this attempt or a later one. */
  attempts?: number;
  /** Only tasks whose last error has this code, such as 503, 5xx, timeout or lost. */
  code?: string;
  /** Only tasks with this flow key. */
  flowKey?: string;
  /** Only tasks whose last error is of this kind: the fingerprint of a group of failures. */
  fingerprint?: string;
  /** Only tasks that this worker runs, or of which it ran an attempt. */
  worker?: string;
  /** Only tasks for this user. */
  user?: string;
  /** Only tasks with all of these tags, separated by commas. */
  tags?: string;
  /** Only tasks with at least one of these tags, separated by commas. */
  anyTags?: string;
  /** Only tasks with this entry of their metadata, as name=value. */
  metadata?: string;
  /** Only the children of this task, of all its fan-outs, and the tasks that it started. */
  parent?: string;
  /** Leaves out children of earlier fan-outs of parent, and tasks that it doesn't wait for. */
  latest?: boolean;
  /** false leaves out the children of fan-outs. It excludes parent. */
  children?: boolean;
}

/** Selects the tasks that list and all return. */
export interface ListParams extends CountParams {
  /** Only tasks whose context, or an output, contains this text as it was written. */
  text?: string;
  /** "ended": final tasks of all types together, the latest end first. */
  order?: "submitted" | "ended";
  /** From the other end of the list: the oldest task, or the earliest end, first. */
  reverse?: boolean;
  /** The most tasks of a page, 1 to 500. */
  limit?: number;
  /** The next_cursor of the page before. */
  cursor?: string;
}

/** Asks for tasks of a stage with mode claim. */
export interface ClaimRequest {
  type: string;
  stage: string;
  /** Who asks: ASCII characters without spaces. */
  claimer: string;
  /** The most tasks. Default 1. */
  max?: number;
  /** How long to wait for the first one, in milliseconds. Default 0. */
  waitMs?: number;
  /** The ids of the tasks that the claimer is working on. */
  held?: string[];
  /** What the claimer is or can do, for tasks with rules: the values of each label. */
  labels?: Record<string, string[]>;
}

/** Options of claim. */
export interface ClaimOptions extends CallOptions {
  /** The name of the worker, such as its host, which is shown with the tasks that it gets. */
  worker?: string | undefined;
}

const maxWaitMs = 60_000; // the longest wait of the server
const leastRoundMs = 250; // between two requests of wait, in case the server answers early

/** Calls one server on behalf of one tenant. */
export class Client extends SettingCalls {
  /**
   * url is the server's, such as https://tasks.example.com. The token is sent with each call.
   * @throws AsyncflowError that names url or token
   */
  constructor(url: string, token: string, options: ClientOptions = {}) {
    super(new Caller(url, token, options));
  }

  /** The server's URL, without a slash at its end. */
  get url(): string {
    return this.caller.url;
  }

  /**
   * Submits a task and returns once it is durable. A task with a key is submitted again when there
   * is no answer: within the key's window it is the same task. Without a key, see
   * AsyncflowError.uncertain.
   */
  async submit(task: NewTask, options: CallOptions = {}): Promise<SubmittedTask> {
    return this.caller.call("POST", "/v1/tasks", {
      ...options,
      body: encodeTask(task),
      repeatable: isRepeatable(task),
    });
  }

  /**
   * Submits a task and returns it once it is final, or after timeoutMs with its present status: see
   * isFinal. Without timeoutMs there is no limit. With a key that stands for an earlier task, it
   * waits for that one, and the result has existing. If the tenant's share of waiting calls is in
   * use, it submits first and waits then.
   */
  async submitAndWait(
    task: NewTask,
    options: CallOptions & { timeoutMs?: number } = {},
  ): Promise<Task> {
    const { timeoutMs, signal } = options;
    const end = Date.now() + (timeoutMs ?? Infinity);
    const waitMs = Math.min(maxWaitMs, Math.max(1, timeoutMs ?? Infinity));
    let got: SubmittedTask | Task;
    try {
      got = await this.caller.call<Task>("POST", "/v1/tasks", {
        signal,
        query: { wait: formatDuration(waitMs) },
        extraMs: waitMs,
        body: encodeTask(task),
        repeatable: isRepeatable(task),
      });
      if (isFinal(got.status)) return got;
    } catch (err) {
      if (!(err instanceof ProblemError) || err.status !== 429) throw err;
      got = await this.submit(task, { signal });
    }
    const left = end === Infinity ? {} : { timeoutMs: Math.max(0, end - Date.now()) };
    const last = await this.wait(got.id, { signal, ...left });
    const { existing, replaced } = got;
    return { ...last, ...(existing && { existing }), ...(replaced && { replaced }) };
  }

  /**
   * Sends a signal to a task and returns once it is durable. With an idempotency key it is sent
   * again when there is no answer, and counts once. Without one, see AsyncflowError.uncertain.
   */
  async sendSignal(signal: NewSignal, options: SignalOptions = {}): Promise<SentSignal> {
    const { idempotencyKey, ...rest } = options;
    return this.caller.call("POST", "/v1/signals", {
      ...rest,
      body: encodeSignal(signal),
      repeatable: Boolean(idempotencyKey),
      ...(idempotencyKey ? { headers: { "Idempotency-Key": idempotencyKey } } : {}),
    });
  }

  /**
   * Submits tasks in batches of up to 1,000, one batch after the other, and returns the results in
   * the order of the tasks. A bad task doesn't keep the others from being accepted. If all tasks of
   * a batch have keys, it is submitted again like a single task (see submit).
   * @throws SubmitManyError when a batch failed as a whole; it has the results of earlier batches
   */
  async submitMany(tasks: readonly NewTask[], options: CallOptions = {}): Promise<SubmitResult[]> {
    const results: SubmitResult[] = [];
    for (const batch of taskBatches(tasks)) {
      try {
        results.push(...batch.merge(batch.body ? await this.submitBatch(batch, options) : []));
      } catch (err) {
        throw err instanceof AsyncflowError ? new SubmitManyError(results, err) : err;
      }
    }
    return results;
  }

  private async submitBatch(
    batch: { body: string; sent: number; repeatable: boolean },
    options: CallOptions,
  ): Promise<SubmitResult[]> {
    const answer = await this.caller.call<SubmittedBatch>("POST", "/v1/tasks/batch", {
      ...options,
      body: batch.body,
      repeatable: batch.repeatable,
    });
    if (answer.tasks.length !== batch.sent) {
      throw new ConnectionError(
        this.url,
        new Error("its answer has another number of tasks than the batch"),
      );
    }
    return answer.tasks.map(resultOf);
  }

  /** Returns a task with its present status. */
  async get(id: string, options: CallOptions = {}): Promise<Task> {
    return this.caller.call("GET", `/v1/tasks/${pathPart("id", id)}`, options);
  }

  /**
   * Returns a task once it is final, or after timeoutMs with its present status: see isFinal.
   * Without timeoutMs there is no limit.
   */
  async wait(id: string, options: CallOptions & { timeoutMs?: number } = {}): Promise<Task> {
    const path = `/v1/tasks/${pathPart("id", id)}`;
    const end = Date.now() + (options.timeoutMs ?? Infinity);
    for (;;) {
      const asked = Date.now();
      const waitMs = Math.min(maxWaitMs, Math.max(0, end - asked));
      const query = { wait: waitMs > 0 ? formatDuration(waitMs) : undefined };
      let task: Task;
      try {
        task = await this.caller.call<Task>("GET", path, {
          signal: options.signal,
          query,
          extraMs: waitMs,
        });
      } catch (err) {
        if (!(err instanceof ProblemError) || err.status !== 429 || waitMs === 0) throw err;
        // the tenant's share of waiting calls is in use
        await pause(Math.min(waitMs, Math.max(err.retryAfterMs, leastRoundMs)), options.signal);
        continue;
      }
      if (isFinal(task.status) || waitMs === 0) return task;
      await pause(Math.min(waitMs, leastRoundMs) - (Date.now() - asked), options.signal);
    }
  }

  /**
   * Follows a task: its journal so far and its present state, then each change, up to the event of
   * the final task. When the connection breaks, it connects again and continues after the last
   * event. The first connection must succeed.
   */
  watch(id: string, options: CallOptions = {}): AsyncGenerator<TaskEvent, void, undefined> {
    return watchTask(this.caller, `/v1/tasks/${pathPart("id", id)}/events?outputs=true`, options);
  }

  /** Returns the journal of a task, oldest first, with all outputs. */
  async attempts(id: string, options: CallOptions = {}): Promise<Attempt[]> {
    return this.caller.pages<Attempt, AttemptList>(
      `/v1/tasks/${pathPart("id", id)}/attempts`,
      { outputs: "true" },
      options,
    );
  }

  /**
   * Returns a page of how the children of a task's latest fan-out ended, from an index on. next is
   * the index at which the next page begins; it is absent on the last one.
   */
  async results(id: string, from = 0, options: CallOptions = {}): Promise<ChildResults> {
    return this.caller.call("GET", `/v1/tasks/${pathPart("id", id)}/results?from=${from}`, options);
  }

  /**
   * Returns what the latest attempt of a task has left for the next one of its stage. If there is
   * nothing, it is a ProblemError with not_found.
   */
  async checkpoint(id: string, options: CallOptions = {}): Promise<TaskCheckpoint> {
    return this.caller.call("GET", `/v1/tasks/${pathPart("id", id)}/checkpoint`, options);
  }

  /**
   * Returns the votes on a task that came to a stage with a quorum; any other is a ProblemError
   * with conflict.
   */
  async votes(id: string, options: CallOptions = {}): Promise<VoteList> {
    return this.caller.call("GET", `/v1/tasks/${pathPart("id", id)}/votes`, options);
  }

  /**
   * Returns a page of tasks, newest first, without contexts and results. Without a type, it is of
   * all types, by the names of the types. next_cursor is absent on the last page. A page may have
   * few tasks, or none, without being the last one.
   */
  async list(params: ListParams, options: CallOptions = {}): Promise<TaskList> {
    const { limit, reverse, ...rest } = params;
    const query = { ...filterQuery(rest), limit: limit?.toString(),
      reverse: reverse?.toString() };
    return this.caller.call("GET", "/v1/tasks", { ...options, query });
  }

  /** Iterates over all tasks that list would return, page by page. */
  async *all(params: ListParams, options: CallOptions = {}): AsyncGenerator<Task, void, undefined> {
    for (let cursor = params.cursor; ; ) {
      const page = await this.list(cursor ? { ...params, cursor } : params, options);
      yield* page.data;
      cursor = page.next_cursor;
      if (!cursor) return;
    }
  }

  /**
   * Counts the tasks that all would return, as far as that is cheap: 10,000 at most. If exact is
   * false, there may be more.
   */
  async count(params: CountParams, options: CallOptions = {}): Promise<TaskCount> {
    return this.caller.call("GET", "/v1/tasks/count", { ...options, query: filterQuery(params) });
  }

  /**
   * Changes the priority, the time or the context of a task that is pending or waiting. With
   * ifMatch and the ETag of get, only as long as it hasn't changed or gone on.
   */
  async change(id: string, patch: TaskPatch, options: ChangeOptions = {}): Promise<Task> {
    return this.caller.call("PATCH", `/v1/tasks/${pathPart("id", id)}`, {
      ...options,
      headers: conditions(options),
      body: JSON.stringify(patch),
    });
  }

  /** Cancels a task that is not final. The reason may be empty; it is stored with the task. */
  async cancel(id: string, reason = "", options: CallOptions = {}): Promise<Task> {
    return this.caller.call("POST", `/v1/tasks/${pathPart("id", id)}/cancel`, {
      ...options,
      body: JSON.stringify(reason ? { reason } : {}),
    });
  }

  /** Keeps further children of a task from beginning. The reason may be empty. */
  async pause(id: string, reason = "", options: CallOptions = {}): Promise<Task> {
    return this.caller.call("POST", `/v1/tasks/${pathPart("id", id)}/pause`, {
      ...options,
      body: JSON.stringify(reason ? { reason } : {}),
    });
  }

  /** Lets the children of a paused task begin again. */
  async resume(id: string, options: CallOptions = {}): Promise<Task> {
    return this.caller.call("POST", `/v1/tasks/${pathPart("id", id)}/resume`, options);
  }

  /**
   * Runs a failed or cancelled task again. By default it starts in the stage where the task ended,
   * with the context that this stage had before.
   */
  async redrive(id: string, redrive: Redrive = {}, options: CallOptions = {}): Promise<Task> {
    return this.caller.call("POST", `/v1/tasks/${pathPart("id", id)}/redrive`, {
      ...options,
      body: JSON.stringify(redrive),
    });
  }

  /**
   * Runs a final task again, as a new task, and returns that one. With an idempotencyKey, which
   * becomes that of the new task, it is sent again when there is no answer, and makes one task.
   */
  async rerun(
    id: string,
    rerun: Rerun = {},
    options: SignalOptions = {},
  ): Promise<SubmittedTask> {
    const { idempotencyKey, ...rest } = options;
    return this.caller.call("POST", `/v1/tasks/${pathPart("id", id)}/rerun`, {
      ...rest,
      body: JSON.stringify(rerun),
      repeatable: Boolean(idempotencyKey),
      ...(idempotencyKey ? { headers: { "Idempotency-Key": idempotencyKey } } : {}),
    });
  }

  /**
   * Erases the contents of a final task, and returns what remains of it. Erasing it again changes
   * nothing. A ConflictError says that the task isn't final, or that others still need it.
   */
  async erase(id: string, options: CallOptions = {}): Promise<Task> {
    return this.caller.call("DELETE", `/v1/tasks/${pathPart("id", id)}`, {
      ...options,
      repeatable: true,
    });
  }

  /**
   * Asks for tasks, and waits for the first one. It may return none. If the answer is lost, it asks
   * again: the claimer gets its open claims first, apart from those in held. A claim ends after
   * 15 s unless there is a heartbeat, progress or a report by then; see claim for a loop around it.
   */
  async claim(request: ClaimRequest, options: ClaimOptions = {}): Promise<Delivery[]> {
    const { waitMs = 0, ...rest } = request;
    const body = JSON.stringify({ ...rest, wait: formatDuration(waitMs) });
    return (
      await this.caller.call<{ claims: Delivery[] }>("POST", "/v1/claims", {
        ...options,
        headers: options.worker === undefined ? {} : { [workerHeader]: options.worker },
        body,
        extraMs: waitMs,
        repeatable: true,
      })
    ).claims;
  }
}

/** Returns the parameters of a query that select tasks. */
function filterQuery(
  { since, until, endedSince, endedUntil, attempts, flowKey, anyTags, latest, children, ...rest }:
    Omit<ListParams, "limit" | "reverse">,
): Record<string, string | undefined> {
  return { ...rest, children: children?.toString(), latest: latest?.toString(),
    since: since?.toISOString(), until: until?.toISOString(),
    ended_since: endedSince?.toISOString(), ended_until: endedUntil?.toISOString(),
    attempts: attempts?.toString(), flow_key: flowKey, any_tags: anyTags };
}
