import { conditions, pathPart, type CallOptions, type ChangeOptions } from "./call.js";
import { OperationCalls } from "./operations.js";
import type {
  Alerts,
  AppliedVersion,
  Endpoint,
  EndpointList,
  FiringAlerts,
  NewAlerts,
  NewEndpoint,
  Schedule,
  ScheduleList,
  ScheduleSpec,
  Stats,
  SubmittedTask,
  TaskType,
  TaskTypeSpec,
  TaskTypeVersion,
} from "./types.js";

type DeleteOptions = Omit<ChangeOptions, "ifNew">;

/** The calls for what a tenant sets: task types, endpoints, schedules, alerts; and its stats. */
export class SettingCalls extends OperationCalls {
  /** Creates a task type, or changes it to spec. */
  async putTaskType(
    name: string,
    spec: TaskTypeSpec,
    options: ChangeOptions = {},
  ): Promise<TaskType> {
    return this.put(typePath(name), spec, options, {});
  }

  /** Is a dry run of putTaskType: it returns the same task type or error, and changes nothing. */
  async checkTaskType(
    name: string,
    spec: TaskTypeSpec,
    options: ChangeOptions = {},
  ): Promise<TaskType> {
    return this.put(typePath(name), spec, options, { dry_run: "true" });
  }

  /** Returns a task type. See etagOf. */
  async taskType(name: string, options: CallOptions = {}): Promise<TaskType> {
    return this.caller.call("GET", typePath(name), options);
  }

  /**
   * Returns the versions of a task type that are kept, newest first: the present one, and up to 100
   * before it.
   */
  async taskTypeVersions(name: string, options: CallOptions = {}): Promise<AppliedVersion[]> {
    const path = `${typePath(name)}/versions`;
    return (await this.caller.call<{ data: AppliedVersion[] }>("GET", path, options)).data;
  }

  /** Returns a version of a task type. To go back to it, put its spec. */
  async taskTypeVersion(
    name: string,
    version: number,
    options: CallOptions = {},
  ): Promise<TaskTypeVersion> {
    return this.caller.call("GET", `${typePath(name)}/versions/${version}`, options);
  }

  /**
   * Returns the counts of the tasks by status, their rates, and how long they waited and took: of
   * one type or, without a name, of all types.
   */
  async stats(type?: string, options: CallOptions = {}): Promise<Stats[]> {
    const query = { type };
    return (await this.caller.call<{ data: Stats[] }>("GET", "/v1/stats", { ...options, query }))
      .data;
  }

  /** Returns the endpoints of a task type, without their secrets. */
  async endpoints(type: string, options: CallOptions = {}): Promise<Endpoint[]> {
    return this.caller.pages<Endpoint, EndpointList>("/v1/endpoints", { type }, options);
  }

  /**
   * Registers an endpoint for a stage. Only this answer contains its secret. If another endpoint of
   * the stage has the same URL, the error is a "conflict", unless endpoint.allow_duplicate is true.
   */
  async createEndpoint(endpoint: NewEndpoint, options: CallOptions = {}): Promise<Endpoint> {
    return this.caller.call("POST", "/v1/endpoints", {
      ...options,
      body: JSON.stringify(endpoint),
    });
  }

  /** Challenges an endpoint. If it failed, the reason is in verification_error of the result. */
  async verifyEndpoint(id: string, options: CallOptions = {}): Promise<Endpoint> {
    return this.caller.call("POST", `/v1/endpoints/${pathPart("id", id)}/verify`, {
      ...options,
      extraMs: 10_000,
    });
  }

  /** Deletes an endpoint. Its deliveries in flight are finished. */
  async deleteEndpoint(id: string, options: DeleteOptions = {}): Promise<void> {
    return this.caller.call("DELETE", `/v1/endpoints/${pathPart("id", id)}`,
      { ...options, headers: conditions(options) });
  }

  /** Creates a schedule, or changes it to spec. */
  async putSchedule(
    name: string,
    spec: ScheduleSpec,
    options: ChangeOptions = {},
  ): Promise<Schedule> {
    return this.put(schedulePath(name), spec, options, {});
  }

  /** Is a dry run of putSchedule: it returns the same schedule or error, and changes nothing. */
  async checkSchedule(
    name: string,
    spec: ScheduleSpec,
    options: ChangeOptions = {},
  ): Promise<Schedule> {
    return this.put(schedulePath(name), spec, options, { dry_run: "true" });
  }

  /** Returns all schedules by name, without their contexts. */
  async schedules(options: CallOptions = {}): Promise<Schedule[]> {
    return this.caller.pages<Schedule, ScheduleList>("/v1/schedules", {}, options);
  }

  /** Returns a schedule. See etagOf. */
  async schedule(name: string, options: CallOptions = {}): Promise<Schedule> {
    return this.caller.call("GET", schedulePath(name), options);
  }

  /** Pauses a schedule: its runs submit no tasks. */
  async pauseSchedule(name: string, options: CallOptions = {}): Promise<Schedule> {
    return this.caller.call("POST", `${schedulePath(name)}/pause`, options);
  }

  /** Resumes a schedule with its next run. */
  async resumeSchedule(name: string, options: CallOptions = {}): Promise<Schedule> {
    return this.caller.call("POST", `${schedulePath(name)}/resume`, options);
  }

  /** Submits the task of a schedule now, and returns it. The runs of the schedule stay. */
  async triggerSchedule(name: string, options: CallOptions = {}): Promise<SubmittedTask> {
    return this.caller.call("POST", `${schedulePath(name)}/trigger`, options);
  }

  /** Deletes a schedule. Its tasks stay. */
  async deleteSchedule(name: string, options: DeleteOptions = {}): Promise<void> {
    return this.caller.call("DELETE", schedulePath(name),
      { ...options, headers: conditions(options) });
  }

  /**
   * Sets where alerts are sent, and by which rules. Only the answer that makes a secret contains
   * it.
   */
  async putAlerts(alerts: NewAlerts, options: ChangeOptions = {}): Promise<Alerts> {
    return this.put("/v1/alerts", alerts, options, {});
  }

  /** Returns the rules, and the alerts that go on or ended within 30 days. */
  async alerts(options: CallOptions = {}): Promise<Alerts> {
    return this.caller.call("GET", "/v1/alerts", options);
  }

  /** Returns the alerts that go on. */
  async firingAlerts(options: CallOptions = {}): Promise<FiringAlerts> {
    return this.caller.call("GET", "/v1/alerts/firing", options);
  }

  /** Ends the alerts, with their rules. */
  async deleteAlerts(options: DeleteOptions = {}): Promise<void> {
    return this.caller.call("DELETE", "/v1/alerts", { ...options, headers: conditions(options) });
  }

  private put<T>(
    path: string,
    doc: object,
    options: ChangeOptions,
    query: Record<string, string>,
  ): Promise<T> {
    return this.caller.call("PUT", path,
      { ...options, query, headers: conditions(options), body: JSON.stringify(doc) });
  }
}

const typePath = (name: string) => `/v1/task-types/${pathPart("name", name)}`;
const schedulePath = (name: string) => `/v1/schedules/${pathPart("name", name)}`;
