import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { queryOf } from "../tasks/filters.tsx";

type Operation = Schemas["Operation"];

const pause = 10_000; // between two counts, in ms
const counted = 3_600_000; // how long after its end the tasks of an operation are counted, in ms
const ends = ["succeeded", "failed", "cancelled"] as const;

/** What of a filter a task keeps, whatever becomes of it. */
const lasting = ["since", "until", "flow_key", "key", "parent", "user", "tags", "any_tags",
  "metadata"] as const;

/** How the tasks of an operation have ended since it began, as counts with links to lists. */
export function Outcomes({ operation: o }: { operation: Operation }) {
  const ids = o.filter?.ids;
  if (ids?.length === 1) {
    return (
      <div>
        <dt>What came of it</dt>
        <dd><a href={`/console/tasks/${encodeURIComponent(ids[0] ?? "")}`}>{ids[0]}</a></dd>
      </div>
    );
  }
  return (
    <div>
      <dt>
        {ids || o.kind === "rerun" ? "All tasks of the type that have ended since" :
          "How they have ended since"}
      </dt>
      <dd>{ends.map((status) => <End key={status} operation={o} status={status} />)}</dd>
    </div>
  );
}

const isOver = ({ finished_at: at }: Operation): boolean =>
  at !== undefined && Date.now() - Date.parse(at) > counted;

/** How many tasks have ended in a status since an operation began. */
function End({ operation: o, status }: { operation: Operation; status: typeof ends[number] }) {
  const filter: Record<string, string> = { status, ended_since: o.created_at, children: "true" };
  if (!o.filter?.all_types) filter.type = o.type;
  if (o.kind !== "rerun") { // a new task has its own times and key
    for (const name of lasting) {
      const value = o.filter?.[name];
      if (value) filter[name] = value;
    }
  }
  if (o.filter?.children === false) delete filter.children;
  const n = useLoad((signal) => answer(api.GET("/v1/tasks/count",
    { signal, params: { query: queryOf(filter) } })), [o.id], isOver(o) ? 0 : pause);
  if (n.error) return <Problem error={n.error} />;
  if (!n.data) return null;
  const more = n.data.exact ? "" : "+";
  return (
    <div>
      <a href={`/console/tasks?${new URLSearchParams(filter)}`}>
        {count(n.data.count)}{more} {status}
      </a>
    </div>
  );
}
