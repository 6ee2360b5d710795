import type { Schemas } from "../api.ts";

type Reason = NonNullable<Schemas["Task"]["waits_for"]>;

const texts: Record<Reason, string> = {
  delay: "waits for its time",
  retry: "waits for its next attempt",
  snooze: "was put off by its worker",
  endpoint: "waits for an endpoint for its stage",
  endpoint_limit: "waits for capacity at an endpoint, within its limits",
  endpoint_unhealthy: "waits for a healthy endpoint",
  flow_key: "waits for its turn among the tasks with its flow key",
  type_limit: "waits for capacity within the limits of its type",
  quota_concurrency: "waits for capacity within the tenant's quota of concurrency",
  quota_deliveries_per_second: "waits for the tenant's quota of deliveries per second",
  paused: "waits for its type to be resumed",
  capacity: "is due, and waits for a dispatcher",
  children: "waits for its children",
  parent_paused: "waits for its parent, or a task above that, to be resumed",
  dependencies: "waits for the tasks that it depends on",
  claimer: "waits for a worker that asks for it",
  signal: "waits for a signal",
};

/** Returns a reason to wait as the rest of a sentence. */
export function waitText(reason: string): string {
  return texts[reason as Reason] ?? `waits for ${reason}`;
}

/** Says in a sentence why a task waits; "" if it doesn't. */
export function why(t: Schemas["Task"]): string {
  if (t.paused) return `is paused${t.paused.reason ? `: ${t.paused.reason}` : ""}`;
  if (t.signal) {
    const until = new Date(t.signal.until).toLocaleString();
    const people = t.signal.decisions?.join(", ");
    return `waits for the signal ${t.signal.name}, until ${until}` +
      (people ? `; people decide by links: ${people}` : "");
  }
  return t.waits_for ? waitText(t.waits_for) : "";
}

/** Says why a task waits, with a link to the reason. */
export function Why({ task: t }: { task: Schemas["Task"] }) {
  const text = why(t);
  if (!text) return null;
  const because = t.waits_because?.replace(/\.$/, "");
  const joint = t.waits_for === "claimer" ? ": " : ". "; // the rules go on with the sentence
  return (
    <p>
      It <bdi>{text}</bdi>{because && <>{joint}<bdi>{because}</bdi></>}. <Holder task={t} />
    </p>
  );
}

function Holder({ task: t }: { task: Schemas["Task"] }) {
  switch (t.waits_for) {
    case "endpoint":
    case "endpoint_limit":
    case "endpoint_unhealthy":
      return <a href={`/console/endpoints?type=${t.type}&stage=${t.stage}`}>Its endpoints</a>;
    case "type_limit":
    case "paused":
    case "flow_key":
      return <a href={`/console/types/${t.type}`}>Its type</a>;
    case "parent_paused":
      return <a href={`/console/tasks/${t.child_of?.parent}`}>Its parent</a>;
    case "children":
      return <a href="#children">Its children</a>;
    case "dependencies":
      return <a href="#dependencies">Its dependencies</a>;
    case "quota_concurrency":
    case "quota_deliveries_per_second":
      return <a href="/console">The quotas</a>;
    default:
      return null;
  }
}
