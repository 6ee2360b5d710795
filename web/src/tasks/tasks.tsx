import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty, NoTypes } from "../parts/empty.tsx";
import { useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { may } from "../session.ts";
import { Title } from "../parts/title.tsx";
import { Submit } from "../submit/submit.tsx";
import { why } from "../task/why.tsx";
import { AllThatMatch, Ticked } from "./bulk.tsx";
import { Columns, columns, shownColumns } from "./columns.tsx";
import { Matches } from "./count.tsx";
import { Export } from "./export.tsx";
import { type Filter, filterOf, Filters, queryOf, selects } from "./filters.tsx";
import { came, pageBefore } from "./kept.ts";
import { Views } from "./views.tsx";

const mostTicked = 1000; // ids that a bulk call takes

/**
 * The tasks that match the filter in the URL, newest first; of all types, type by type. Final tasks
 * also by their ends, of all types together.
 */
export function Tasks() {
  const [query] = useQuery();
  const types = useLoad( // beside the list: neither waits for the other
    async (signal) => (await answer(api.GET("/v1/task-types", { signal }))).data, []);
  const filter: Filter = filterOf(query);
  const unsent = useSignal(false);
  const type = types.data?.find((t) => t.name === filter.type);
  return (
    <>
      <div class="head">
        <Title text="Tasks" doc="console.md#lists" />
        {types.data?.length !== 0 && (
          <Submit type={filter.type} types={types.data?.map((t) => t.name)} />
        )}
      </div>
      <Problem error={types.error} retry={types.reload} />
      <Skeleton of={types} />
      {types.data?.length === 0 && <NoTypes />}
      {!!types.data?.length && (
        <Filters filter={filter} types={types.data.map((t) => t.name)}
          stages={type?.stages.map((s) => s.name) ?? []} unsent={unsent} />
      )}
      {types.data?.length !== 0 && !types.error && ( // it is shown with its filter
        <div hidden={!types.data}><List filter={filter} unsent={unsent} /></div>
      )}
    </>
  );
}

function List({ filter, unsent }: { filter: Filter; unsent: Signal<boolean> }) {
  const [, link] = useQuery();
  const list = useLoad(
    (signal) => answer(api.GET("/v1/tasks", { signal, params: { query: queryOf(filter) } })),
    [JSON.stringify(filter)], filter.cursor || filter.text || filter.order ? 0 : 3000);
  const { data, next_cursor: next, searched } = list.data ?? {};
  const shown = useRef(false); // the first list comes before its count
  shown.current ||= list.data !== undefined;
  const none = data?.length === 0 && !next;
  const { type, ...filters } = filter;
  const rest = selects(filter);
  const ticked = useSignal(new Set<string>());
  useEffect(() => {
    ticked.value = new Set(); // they may not match any more
  }, [JSON.stringify(rest)]);
  const unused = none && Object.keys(filters).length === 0;
  return (
    <>
      {!unused && (
        <div class="bar">
          {shown.current && <Matches filter={filter} />}
          <div class="buttons">
            <Columns /><Views />
            {!none && <Export key={JSON.stringify(rest)} filter={filter} hidden={unsent.value} />}
          </div>
        </div>
      )}
      {list.data && !list.error && (
        <AllThatMatch filter={filter} none={none || ticked.value.size > 0} unsent={unsent.value} />
      )}
      {ticked.value.size > 0 && (
        <Ticked ids={[...ticked.value]} clear={() => (ticked.value = new Set())} />
      )}
      <Problem error={list.error} retry={list.reload} />
      {list.error && filter.order && (
        <p>
          <a href={link({ order: "", reverse: "", cursor: "" })}>
            List them by the time of their submit</a>
        </p>
      )}
      <Skeleton of={list} />
      {data && data.length > 0 && (
        <TaskTable tasks={filter.reverse ? data.toReversed() : data} ticked={ticked} />
      )}
      {data?.length === 0 && next && (
        <Empty title={`None of ${tasks(searched?.tasks ?? 0)} matches`}>
          They were submitted between <Time at={searched?.from} /> and{" "}
          <Time at={searched?.until} />.{" "}
          <a href={link({ cursor: next })}>
            {searched?.next_type
              ? <>Search on, from the type {searched.next_type}</>
              : `Search ${filter.reverse ? "newer" : "older"} ones`}
          </a>
        </Empty>
      )}
      {none && (
        <Empty title={unused ? `${type ?? "Any type"} has no tasks yet` : "No task matches"}>
          {unused
            ? "Submit one: "
            : <><a href={`/console/tasks${type ? `?type=${type}` : ""}`}>Remove the filters</a>, or
              submit one: </>}
          <code>{`asyncflow tasks submit ${type ?? "TYPE"} '{}'`}</code>
        </Empty>
      )}
      <Pages next={next} />
    </>
  );
}

interface TaskTableProps {
  tasks: Schemas["Task"][];
  ticked: Signal<Set<string>>;
}

/** Tasks as a table, in a narrow window as cards. Each row is a link to its task. */
function TaskTable({ tasks: all, ticked }: TaskTableProps) {
  const shown = shownColumns();
  const tick = (ids: string[], on: boolean) => {
    const next = new Set(ticked.value);
    for (const id of ids) {
      if (!on) next.delete(id);
      else if (next.size < mostTicked) next.add(id);
    }
    ticked.value = next;
  };
  const ids = all.map((t) => t.id);
  const mayTick = may("operate");
  return (
    <>
      {mayTick && (
        <label class="check">
          <input type="checkbox" checked={ids.every((id) => ticked.value.has(id))}
            onChange={(e) => tick(ids, e.currentTarget.checked)} />
          Tick all of this page
        </label>
      )}
      <Rows cards label="Tasks" columns={[...(mayTick ? ["Tick"] : []), "Task", "Status", "Stage",
        { n: "Attempt" }, "Submitted", ...shown, "Why"]}>
        {all.map((t) => (
          <Row key={t.id} href={`/console/tasks/${encodeURIComponent(t.id)}`} name={t.id}
            before={mayTick && (
              <td>
                <label class="tick">
                  <input type="checkbox" aria-label={`Tick ${t.id}`}
                    checked={ticked.value.has(t.id)}
                    onChange={(e) => tick([t.id], e.currentTarget.checked)} />
                </label>
              </td>
            )}>
            <td data-label="Status"><Status status={t.status} /></td>
            <td data-label="Stage">{t.stage}</td>
            <td class="n" data-label="Attempt">
              {t.attempt}{t.max_attempts ? ` of ${t.max_attempts}` : ""}
            </td>
            <td data-label="Submitted"><Time at={t.created_at} /></td>
            {shown.map((title) => (
              <td key={title} class="cut chosen" data-label={title}>{columns[title]?.(t)}</td>
            ))}
            <td class="cut" data-label="Why">{why(t) || t.error}</td>
          </Row>
        ))}
      </Rows>
    </>
  );
}

/** Links to newer and older tasks. A page from the end of the list leads on to newer ones. */
function Pages({ next }: { next: string | undefined }) {
  const [query, link] = useQuery();
  const { cursor = "", reverse } = query;
  const before = pageBefore(cursor);
  if (!next && !cursor && !reverse) return null;
  const on = next && { href: link({ cursor: next }), onClick: () => came(next, cursor) };
  const back = before && { href: link({ cursor: before }) };
  const [newer, older] = reverse ? [on, back] : [back, on];
  return (
    <nav class="pager" aria-label="Pages of the list">
      {(cursor || reverse) && <a href={link({ reverse: "", cursor: "" })}>Newest</a>}
      {newer && <a rel="prev" {...newer}>Newer</a>}
      {older && <a rel="next" {...older}>Older</a>}
      {(reverse ? cursor : next) && <a href={link({ reverse: "true", cursor: "" })}>Oldest</a>}
    </nav>
  );
}
