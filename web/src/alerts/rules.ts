import type { Schemas } from "../api.ts";
import { duration, percent, span } from "../format.ts";

type Episode = Schemas["AlertEpisode"];

const tasksText = (n: number): string => (n === 1 ? "1 task" : `${n} tasks`);

/** Returns a sentence for each rule that is set. */
export function ruleTexts(r: Schemas["AlertRules"]): string[] {
  const { failure_rate: type, endpoint_failure_rate: endpoint } = r;
  const failed = `failed for good within ${span(r.failed_within ?? "1h")}`;
  const within = `in 5 minutes fail, of at least ${r.failure_attempts ?? 20}`;
  return [
    r.backlog_age && `A task has been due for ${span(r.backlog_age)}.`,
    type && `${percent(type)} of a type's attempts ${within}.`,
    endpoint && `${percent(endpoint)} of the attempts at an endpoint ${within}.`,
    r.no_claimers && `Nobody has asked for a due task for ${span(r.no_claimers)}.`,
    r.dependency_late && `A task has waited for its dependencies for ${span(r.dependency_late)}.`,
    r.failed_for_good && `${tasksText(r.failed_for_good)} of a type ${failed}.`,
    r.failed_in_total && `${tasksText(r.failed_in_total)} of all types ${failed}.`,
    r.blocked_key && `A flow key has stood still for ${span(r.blocked_key)}.`,
    r.long_wait && `Of the tasks of a type that were started within ${
      span(r.long_wait_within ?? "5m")}, 1 % had been due for ${span(r.long_wait)}.`,
    r.will_expire && `${tasksText(r.will_expire)} of a type that are not running expire within ${
      span(r.will_expire_within ?? "5m")}.`,
  ].filter((text): text is string => typeof text === "string" && text !== "");
}

const texts: Record<Episode["alert"], string> = {
  backlog_age: "tasks have been due for long",
  failure_rate: "attempts fail",
  endpoint_failing: "an endpoint fails",
  endpoint_missing: "a stage has no endpoint",
  no_claimers: "nobody asks for tasks",
  dependency_late: "tasks wait long for others",
  schedule_failing: "a schedule can't submit its task",
  failed_for_good: "tasks failed for good",
  blocked_key: "a flow key stands still",
  long_wait: "tasks wait long to be started",
  will_expire: "tasks are about to expire",
  node_gone: "a node is gone",
  job_overdue: "a background job is overdue",
  roll_overdue: "a roll is overdue",
};

/** Says what an alert is about. */
export const alertText = (alert: Episode["alert"]): string => texts[alert] ?? alert;

/** Returns a value of an alert as text: a share of 1, a number of tasks, or seconds. */
export function valueText(alert: Episode["alert"], value: number): string {
  if (alert === "failed_for_good" || alert === "will_expire") return tasksText(value);
  const share = alert === "failure_rate" || alert === "endpoint_failing";
  return share ? percent(value) : duration(value * 1000);
}

/** Returns the page about the subject of an alert; "": there is none. */
export function subjectPage({ alert, subject }: Episode): string {
  const [type, stage, endpoint] = subject.split("/");
  if (subject === "*") return "/console/tasks?status=failed"; // all types
  switch (alert) {
    case "backlog_age":
    case "failure_rate":
    case "no_claimers":
    case "dependency_late":
    case "blocked_key":
    case "long_wait":
    case "will_expire":
      return `/console/types/${type}`;
    case "failed_for_good":
      return `/console/tasks?type=${type}&status=failed`;
    case "endpoint_missing":
      return `/console/endpoints?type=${type}&stage=${stage ?? ""}`;
    case "schedule_failing":
      return `/console/schedules/${subject}`;
    case "endpoint_failing":
      return endpoint ? `/console/endpoints/${endpoint}` : "";
    default:
      return "";
  }
}
