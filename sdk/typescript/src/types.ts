import type { components } from "./api.gen.js";

// The documents of the API that this package's methods take and return, by the names that
// openapi.yaml gives them. Durations are strings such as "30s", times are RFC 3339.
type Schemas = components["schemas"];

export type Alerts = Schemas["Alerts"];
/** A version of a task type that is kept, and when it was applied. */
export type AppliedVersion = Schemas["AppliedVersion"];
export type Attempt = Schemas["Attempt"];
// The methods say whether a call only counts.
export type BulkCancellation = Omit<Schemas["BulkCancellation"], "dry_run">;
export type BulkCount = Schemas["BulkCount"];
export type BulkDelay = Omit<Schemas["BulkDelay"], "dry_run">;
export type BulkErasure = Omit<Schemas["BulkErasure"], "dry_run">;
export type BulkPriority = Omit<Schemas["BulkPriority"], "dry_run">;
export type BulkRedrive = Omit<Schemas["BulkRedrive"], "dry_run">;
export type BulkRerun = Omit<Schemas["BulkRerun"], "dry_run">;
export type ChildResult = Schemas["ChildResult"];
export type ChildResults = Schemas["ChildResults"];
export type Endpoint = Schemas["Endpoint"];
export type FieldError = Schemas["FieldError"];
export type FiringAlerts = Schemas["FiringAlerts"];
export type NewAlerts = Schemas["NewAlerts"];
export type NewEndpoint = Schemas["NewEndpoint"];
export type NewTask = Schemas["NewTask"];
export type Operation = Schemas["Operation"];
export type Problem = Schemas["Problem"];
export type Redrive = Schemas["Redrive"];
export type Rerun = Schemas["Rerun"];
export type Schedule = Schemas["Schedule"];
export type ScheduleSpec = Schemas["ScheduleSpec"];
export type SpawnedTask = Schemas["SpawnedTask"];
/** How a task waits for the tasks that it starts. By default as a fan-out does. */
export type JoinOptions = Exclude<Schemas["Join"], boolean>;
export type Stats = Schemas["Stats"];
export type Status = Schemas["Status"];
export type NewSignal = Schemas["NewSignal"];
export type SentSignal = Schemas["SentSignal"];
export type SubmittedTask = Schemas["SubmittedTask"];
/** The event of the end of a task, as on_final sends it. */
export type FinalEvent = Schemas["FinalEvent"];
/** A task at its end. */
export type FinalTask = Schemas["FinalTask"];
export type Task = Schemas["Task"];
export type TaskCount = Schemas["TaskCount"];
export type TaskList = Schemas["TaskList"];
export type TaskPatch = Schemas["TaskPatch"];
export type TaskType = Schemas["TaskType"];
export type TaskTypeSpec = Schemas["TaskTypeSpec"];
export type TaskTypeVersion = Schemas["TaskTypeVersion"];
export type TaskCheckpoint = Schemas["TaskCheckpoint"];
export type VoteList = Schemas["VoteList"];

export type AttemptList = Schemas["AttemptList"];
export type EndpointList = Schemas["EndpointList"];
export type HeartbeatResult = Schemas["HeartbeatResult"];
export type OperationList = Schemas["OperationList"];
export type ScheduleList = Schemas["ScheduleList"];
export type SubmittedBatch = Schemas["SubmittedBatch"];

export type { components, operations, paths } from "./api.gen.js";

/** Reports whether a status is final: no attempt follows, unless the task is redriven. */
export function isFinal(status: Status): boolean {
  return status === "succeeded" || status === "failed" || status === "cancelled";
}
