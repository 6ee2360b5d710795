import { pathPart, type CallOptions, type Caller } from "./call.js";
import type {
  BulkCancellation,
  BulkCount,
  BulkDelay,
  BulkErasure,
  BulkPriority,
  BulkRedrive,
  BulkRerun,
  Operation,
  OperationList,
} from "./types.js";

/**
 * The calls for many tasks at once. Each starts an operation, which runs in the background: see
 * operation for its progress.
 */
export class OperationCalls {
  constructor(protected readonly caller: Caller) {}

  /**
   * Starts an operation that cancels all tasks that bulk selects, and returns it. It leaves out
   * tasks that are submitted later.
   */
  async cancelAll(bulk: BulkCancellation, options: CallOptions = {}): Promise<Operation> {
    return this.begin("cancel", bulk, options);
  }

  /** Returns how many tasks cancelAll would cancel now. */
  async countCancel(bulk: BulkCancellation, options: CallOptions = {}): Promise<number> {
    return this.dryRun("cancel", bulk, options);
  }

  /**
   * Starts an operation that redrives all tasks that bulk selects, each once, and returns it. It
   * leaves out tasks that end later.
   */
  async redriveAll(bulk: BulkRedrive, options: CallOptions = {}): Promise<Operation> {
    return this.begin("redrive", bulk, options);
  }

  /** Returns how many tasks redriveAll would redrive now. */
  async countRedrive(bulk: BulkRedrive, options: CallOptions = {}): Promise<number> {
    return this.dryRun("redrive", bulk, options);
  }

  /**
   * Starts an operation that changes the priority of all pending and waiting tasks that bulk
   * selects, and returns it. It leaves out tasks that are submitted later.
   */
  async prioritizeAll(bulk: BulkPriority, options: CallOptions = {}): Promise<Operation> {
    return this.begin("priority", bulk, options);
  }

  /** Returns of how many tasks prioritizeAll would change the priority now. */
  async countPrioritize(bulk: BulkPriority, options: CallOptions = {}): Promise<number> {
    return this.dryRun("priority", bulk, options);
  }

  /**
   * Starts an operation that changes when all pending and waiting tasks that bulk selects run, and
   * returns it. It leaves out tasks that are submitted later. All of them get one time: a delay
   * counts from this call.
   */
  async delayAll(bulk: BulkDelay, options: CallOptions = {}): Promise<Operation> {
    return this.begin("delay", bulk, options);
  }

  /** Returns of how many tasks delayAll would change the time now. */
  async countDelay(bulk: BulkDelay, options: CallOptions = {}): Promise<number> {
    return this.dryRun("delay", bulk, options);
  }

  /**
   * Starts an operation that runs all final tasks that bulk selects again, each as one new task,
   * and returns it. It leaves out tasks that end later.
   */
  async rerunAll(bulk: BulkRerun, options: CallOptions = {}): Promise<Operation> {
    return this.begin("rerun", bulk, options);
  }

  /** Returns how many tasks rerunAll would run again now. */
  async countRerun(bulk: BulkRerun, options: CallOptions = {}): Promise<number> {
    return this.dryRun("rerun", bulk, options);
  }

  /**
   * Starts an operation that erases the contents of all final tasks that bulk selects, and returns
   * it. It leaves out tasks that end later.
   */
  async eraseAll(bulk: BulkErasure, options: CallOptions = {}): Promise<Operation> {
    return this.begin("erase", bulk, options);
  }

  /** Returns how many tasks eraseAll would erase now. */
  async countErase(bulk: BulkErasure, options: CallOptions = {}): Promise<number> {
    return this.dryRun("erase", bulk, options);
  }

  /**
   * Starts an operation that counts all tasks that bulk selects, and returns it. When it is done,
   * its done is their number. It leaves out tasks that are submitted later. If too many counts run,
   * the error is a "conflict".
   */
  async countAll(bulk: BulkCount, options: CallOptions = {}): Promise<Operation> {
    return this.begin("count", bulk, options);
  }

  /** Returns the running operations and all of the last 30 days, newest first. */
  async operations(options: CallOptions = {}): Promise<Operation[]> {
    return this.caller.pages<Operation, OperationList>("/v1/operations", {}, options);
  }

  /** Returns an operation with its progress. */
  async operation(id: string, options: CallOptions = {}): Promise<Operation> {
    return this.caller.call("GET", `/v1/operations/${pathPart("id", id)}`, options);
  }

  /**
   * Stops an operation and returns it; from then on it changes no task. An operation that has ended
   * is returned unchanged.
   */
  async stopOperation(id: string, options: CallOptions = {}): Promise<Operation> {
    return this.caller.call("POST", `/v1/operations/${pathPart("id", id)}/stop`, options);
  }

  private begin(what: string, bulk: object, options: CallOptions): Promise<Operation> {
    return this.bulk(what, { ...bulk, dry_run: undefined }, options);
  }

  private async dryRun(what: string, bulk: object, options: CallOptions): Promise<number> {
    const counted = { ...bulk, dry_run: true };
    return (await this.bulk<{ count: number }>(what, counted, options)).count;
  }

  private bulk<T>(what: string, bulk: object, options: CallOptions): Promise<T> {
    return this.caller.call("POST", `/v1/tasks/${what}`,
      { ...options, body: JSON.stringify(bulk) });
  }
}
