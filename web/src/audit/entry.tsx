import type { Schemas } from "../api.ts";
import { count } from "../format.ts";
import { plain } from "../json.ts";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { useQuery } from "../parts/pager.tsx";

/** An entry, with the texts of its details as they are stored. */
export type AuditEntry = Schemas["AuditEntry"] & { details: Record<string, string> };

/** One entry: a line, which opens to all of it. */
export function Entry({ entry: e }: { entry: AuditEntry }) {
  const [, link] = useQuery();
  const page = pageOf(e);
  return (
    <li>
      <details>
        <summary data-row>
          <Time at={e.at} />{" "}
          <strong>{e.subject ?? e.claimed?.subject ?? "somebody"}</strong>{" "}
          <code>{e.action}</code> <span class="long">{e.object}</span>{" "}
          <Status status={e.outcome} />
          {e.calls > 1 && <span class="quiet"> {count(e.calls)} calls</span>}
          <span class="quiet"> {extract(e)}</span>
        </summary>
        <dl class="facts">
          {factsOf(e).map(([name, value]) => (
            <div key={name}><dt>{name}</dt><dd class="long">{value}</dd></div>
          ))}
          {e.last_at && <div><dt>Last of these calls</dt><dd><Time at={e.last_at} /></dd></div>}
        </dl>
        <p>
          <a href={link({ action: e.action, cursor: "" })}>All {e.action}</a>
          {e.subject && (
            <> · <a href={link({ subject: e.subject, cursor: "" })}>All by {e.subject}</a></>
          )}
          {page && <> · <a href={page}>Its {(e.object_type ?? "").replace("_", " ")}</a></>}
        </p>
      </details>
    </li>
  );
}

/** Returns the details in a line. */
function extract(e: AuditEntry): string {
  return Object.entries(e.details).map(([name, text]) => `${name} ${plain(text)}`).join(", ");
}

/** Returns what is known of an entry, by name. */
function factsOf(e: AuditEntry): [string, string][] {
  const all: [string, string | undefined][] = [
    ["Time", new Date(e.at).toLocaleString(undefined, { dateStyle: "full", timeStyle: "long" })],
    ["Subject", e.subject],
    ["Tenant", e.tenant],
    ["Scopes", e.scopes],
    ["By", origins[e.origin]],
    ["Object", e.object && `${e.object_type ?? ""} ${e.object}`],
    ["Answer", [e.status, e.code].filter(Boolean).join(" ")],
    ["Address", e.proxy ? `${e.address} by ${e.proxy}` : e.address],
    ["User agent", e.user_agent],
    ["Request", e.request_id],
    ["Token", e.token_id],
    ["Issuer", e.issuer],
    ...Object.entries(e.details).map(([name, text]): [string, string] =>
      [`Detail ${name}`, plain(text)]),
    ...Object.entries(e.claimed ?? {}).map(([name, value]): [string, string] =>
      [`Claimed ${name.replace("_", " ")}`, String(value)]),
    ["Entry", e.id],
  ];
  return all.filter((fact): fact is [string, string] => !!fact[1]);
}

const origins = {
  api: "the API",
  cli: "the command line, in the database",
  node: "a background job of this node",
};

const pages: Record<string, string> = {
  task_type: "types", endpoint: "endpoints", schedule: "schedules", task: "tasks",
};

/** Returns the page of what an entry is about; undefined: there is none. */
function pageOf(e: AuditEntry): string | undefined {
  const page = pages[e.object_type ?? ""];
  if (e.object && e.object_type === "tenant") return `/console/tenants/${e.object}`;
  return page && e.object ? `/console/${page}/${encodeURIComponent(e.object)}` : undefined;
}
