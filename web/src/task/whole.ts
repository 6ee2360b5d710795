import type { Schemas } from "../api.ts";

/** A task, with the texts of its context and result as they are stored. */
export interface WholeTask {
  task: Schemas["Task"];
  context: string | undefined;
  result: string | undefined;
  /** Changes with each change of the task, and when it goes on; undefined: an older server. */
  etag: string | undefined;
}
