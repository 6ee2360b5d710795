import { answer, api, type Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { duration, tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { Outcomes } from "./outcomes.tsx";
import { nameOf, Progress } from "./progress.tsx";
import { Stop } from "./stop.tsx";

const second = 1000;

type Operation = Schemas["Operation"];

/** The operations, newest first; the one that the URL names is shown above them. */
export function Operations() {
  const [{ id, cursor }] = useQuery();
  const list = useLoad((signal) => answer(api.GET("/v1/operations",
    { signal, params: { query: { cursor, limit: 50 } } })), [cursor], 2 * second);
  const { data, next_cursor: next } = list.data ?? {};
  return (
    <>
      <Title text="Operations" doc="operations.md#many-tasks-at-once" />
      {id && <Chosen key={id} id={id} />}
      <Problem error={list.error} retry={list.reload} />
      <Skeleton of={list} />
      {data?.length === 0 && (
        <Empty title="There are no operations">
          An operation cancels, redrives, runs again, changes or counts many tasks. Filter the{" "}
          <a href="/console/tasks">tasks</a>, and choose what to do with all that match. Ended
          operations are kept for 30 days.
        </Empty>
      )}
      {!!data?.length && (
        <Rows cards label="Operations"
          columns={["Operation", "Type", "State", "Progress", "Begun", "Ended"]}>
          {data.map((o) => (
            <Row key={o.id} href={`/console/operations?id=${o.id}`} name={nameOf(o)}>
              <td data-label="Type">{o.filter?.all_types ? "all types" : o.type}</td>
              <td data-label="State"><Status status={o.state} /></td>
              <td data-label="Progress"><Progress operation={o} /></td>
              <td data-label="Begun"><Time at={o.created_at} /></td>
              <td data-label="Ended"><Time at={o.finished_at} /></td>
            </Row>
          ))}
        </Rows>
      )}
      <Pager next={next} />
    </>
  );
}

const done = { cancel: "Cancelled", redrive: "Redriven", priority: "Changed", count: "Counted",
  delay: "Have the time", rerun: "Run again", erase: "Erased" };

/** All of one operation. */
function Chosen({ id }: { id: string }) {
  const one = useLoad((signal) => answer(api.GET("/v1/operations/{id}",
    { signal, params: { path: { id } } })), [id], second);
  const o = one.data;
  return (
    <section class="panel">
      <h2>{o ? nameOf(o) : "Operation"} {o && <Status status={o.state} />}</h2>
      <Problem error={one.error} retry={one.reload} />
      {o && (
        <>
          <p><Progress operation={o} /> {remaining(o)}</p>
          {o.error && <p class="problem">{o.error}</p>}
          <dl class="facts">
            <div>
              <dt>Type</dt>
              <dd>
                {o.filter?.all_types && o.state === "running" && "all, at "}
                {o.filter?.all_types && o.state !== "running"
                  ? "all" : <a href={`/console/types/${o.type}`}>{o.type}</a>}
              </dd>
            </div>
            <div>
              <dt>{done[o.kind]}</dt>
              <dd>{tasks(o.done)}</dd>
            </div>
            <div>
              <dt>{o.kind === "count" ? "Didn't match" : "Had changed before"}</dt>
              <dd>{tasks(o.skipped)}</dd>
              {o.skipped > 0 && whySkipped[o.kind] && (
                <dd class="quiet">{whySkipped[o.kind]}</dd>
              )}
            </div>
            {o.filter && <div><dt>Filter</dt><dd><FilterLink operation={o} /></dd></div>}
            {o.pace && <div><dt>Pace</dt><dd>at most {o.pace} tasks per second</dd></div>}
            {o.done > 0 && o.kind !== "count" && o.kind !== "erase" && <Outcomes operation={o} />}
            <div><dt>Begun</dt><dd><Time at={o.created_at} /></dd></div>
            {o.finished_at && <div><dt>Ended</dt><dd><Time at={o.finished_at} /></dd></div>}
            <div><dt>Id</dt><dd><code>{o.id}</code></dd></div>
          </dl>
          <p class="buttons">
            <Stop operation={o} stopped={one.reload} />
            <a class="button" href="/console/operations">Close</a>
          </p>
        </>
      )}
    </section>
  );
}

/** Why an operation skips tasks, by its kind. */
const whySkipped: Partial<Record<Operation["kind"], string>> = {
  cancel: "They had ended.",
  redrive: "They had been redriven, or can't be, as their contents are erased.",
  rerun: "They no longer had the status, or were erased.",
  delay: "They had begun, or wait for their children or a signal.",
  priority: "They had begun.",
  erase: "Something still needs their contents: erase them later.",
};

/** The filter of an operation, as a link to the tasks that match it now. */
function FilterLink({ operation: o }: { operation: Operation }) {
  const filter = Object.entries(o.filter ?? {}).map(([name, value]) => [name, String(value)]);
  const { all_types: all, ids, ...shown } = o.filter ?? {};
  if (ids) return <>{tasks(ids.length)} by their ids</>;
  const query = Object.entries({ children: "true", ...(all ? {} : { type: o.type }), ...shown })
    .map(([name, value]) => [name, String(value)]); // the list leaves out children by default
  return (
    <a href={`/console/tasks?${new URLSearchParams(query)}`}>
      {filter.map(([name, value]) => `${name} ${value}`).join(", ")}
    </a>
  );
}

/** Says how long a running operation will take, at its speed so far. */
function remaining(o: Operation): string {
  const past = o.done + o.skipped;
  if (o.state !== "running" || past === 0 || past >= o.total) return "";
  const each = (now.value - Date.parse(o.created_at)) / past;
  return `About ${duration(each * (o.total - past))} to go.`;
}
