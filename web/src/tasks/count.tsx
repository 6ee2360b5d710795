import { useSignal } from "@preact/signals";
import { answer, api, type Schemas } from "../api.ts";
import { count, tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { Progress } from "../operations/progress.tsx";
import { Stop } from "../operations/stop.tsx";
import { Action } from "../parts/action.tsx";
import { Problem } from "../parts/problem.tsx";
import { Time } from "../parts/time.tsx";
import { type Filter, queryOf, selectionOf, selects } from "./filters.tsx";

const pause = 20_000; // between two counts, in ms
const second = 1000;

/** How many tasks match a filter, as far as that is cheap, and on request all of them. */
export function Matches({ filter }: { filter: Filter }) {
  if (filter.text) {
    return <p class="quiet">Tasks with a text in contexts or outputs can't be counted.</p>;
  }
  const rest = selects(filter);
  return <Counted key={JSON.stringify(rest)} filter={rest} />;
}

function Counted({ filter }: { filter: Filter }) {
  const operation = useSignal("");
  const n = useLoad((signal) => answer(api.GET("/v1/tasks/count",
    { signal, params: { query: queryOf(filter) } })), [], operation.value ? 0 : pause);
  const begin = async () => {
    const { id } = await answer(api.POST("/v1/tasks/count", { body: selectionOf(filter) }));
    operation.value = id;
    return "All are counted in the background";
  };
  return (
    <>
      <p class="buttons">
        {n.data && <strong>{text(n.data)}</strong>}
        {n.data && !n.data.exact && !operation.value && (
          <Action label="Count all" scope="operate" run={begin} />
        )}
      </p>
      <Problem error={n.error} retry={n.reload} />
      {operation.value && <CountedAll id={operation.value} again={() => (operation.value = "")} />}
    </>
  );
}

/** Says how many match: the exact number, or what is known of it. */
function text({ count: n, exact, estimate }: Schemas["TaskCount"]): string {
  if (estimate) return `About ${tasks(estimate)} match`;
  if (exact) return `${tasks(n)} match${n === 1 ? "es" : ""}`;
  return n ? `${count(n)}+ tasks match` : "None of the newest tasks matches";
}

/** The count of all tasks by an operation, and its progress. */
function CountedAll({ id, again }: { id: string; again: () => void }) {
  const ended = useSignal(false);
  const one = useLoad(async (signal) => {
    const got = await answer(api.GET("/v1/operations/{id}", { signal, params: { path: { id } } }));
    ended.value = got.state !== "running";
    return got;
  }, [id], ended.value ? 0 : second);
  const o = one.data;
  return (
    <div class="buttons" role="status">
      {o?.state === "running" && (
        <span>
          Counting: <strong>{tasks(o.done)}</strong> so far. <Progress operation={o} />
        </span>
      )}
      {o && <Stop operation={o} stopped={one.reload} />}
      {o?.state === "done" && (
        <span><strong>{tasks(o.done)}</strong> counted <Time at={o.finished_at} /></span>
      )}
      {o?.state === "stopped" && <span>Stopped at {tasks(o.done)}.</span>}
      {o?.state === "failed" && <span class="bad">The count has failed: {o.error}</span>}
      <a href={`/console/operations?id=${id}`}>Operation</a>
      {ended.value && <button type="button" onClick={again}>Close</button>}
      <Problem error={one.error} retry={one.reload} />
    </div>
  );
}
