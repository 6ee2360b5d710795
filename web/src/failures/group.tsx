import { api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { Bars } from "../parts/sparkline.tsx";
import { Time } from "../parts/time.tsx";
import { Bulk } from "../tasks/bulk.tsx";

type FailureGroup = Schemas["FailureGroup"];

interface GroupProps {
  group: FailureGroup;
  report: Schemas["FailureReport"];
  type?: string; // the only one that is shown
}

/** The failures with errors of one kind, and what to do about them. */
export function Group({ group: g, report, type }: GroupProps) {
  const { fingerprint } = g;
  const ended_since = report.since;
  const list = new URLSearchParams({ fingerprint, status: "failed", ended_since,
    children: "true", order: "ended", ...type && { type } });
  const which = type ? { type, fingerprint } : { all_types: true, fingerprint };
  const said = type ? `of the type ${type}` : "of all types";
  return (
    <section class="panel failure">
      <h2>
        {g.error_code && !g.pattern?.startsWith(g.error_code) && <code>{g.error_code}</code>}{" "}
        {g.pattern || "The errors were erased, or have no text"}
      </h2>
      <p>
        <strong class="bad">{count(g.count)}</strong> <Bars values={g.steps} bad />{" "}
        <span>
          {g.count > 1 && <>first <Time at={g.first_at} />, </>}last <Time at={g.last_at} />
        </span>, <Places group={g} />{" "}
        {g.new_since_version && (
          <span class="status new" title="The version before had no such failure in this time.">
            new since the last deploy
          </span>
        )}
      </p>
      <p>
        Last: <a href={`/console/tasks/${encodeURIComponent(g.example.id)}`}>{g.example.id}</a>{" "}
        <span class="quiet">{g.example.error}</span>
      </p>
      <p class="buttons">
        <a href={`/console/tasks?${list}`}>List</a>
        <Bulk label="Redrive" what="failed with this error" said={said} hidden={false}
          call={(more) => api.POST("/v1/tasks/redrive",
            { body: { ...which, ended_since, ...more } })} />
        <Bulk label="Cancel" what="not yet final, whose last attempt had this error" danger
          said={said} hidden={false}
          call={(more) => api.POST("/v1/tasks/cancel",
            { body: { ...which, ...more } })} />
      </p>
    </section>
  );
}

/** Where the tasks of a group failed. */
function Places({ group: g }: { group: FailureGroup }) {
  const more = g.place_count - g.places.length;
  return (
    <>
      {g.places.map((p, i) => (
        <span key={`${p.type} ${p.stage}`}>
          {i > 0 && ", "}
          <a href={`/console/types/${encodeURIComponent(p.type)}`}>{p.type}</a> in {p.stage}
          {g.place_count > 1 && ` (${count(p.count)})`}
        </span>
      ))}
      {more > 0 && ` and ${count(more)} more stages`}
    </>
  );
}
