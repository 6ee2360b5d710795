import { type Signal, useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { answer, api, type Schemas } from "../api.ts";
import { tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty, NoTypes } from "../parts/empty.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { why } from "../task/why.tsx";
import { AllThatMatch } from "./bulk.tsx";
import { Matches } from "./count.tsx";
import { type Filter, filterOf, Filters, queryOf } from "./filters.tsx";

/** The tasks that match the filter in the URL, newest first; of all types, type by type. */
export function Tasks() {
  const [query] = useQuery();
  const types = useLoad(
    async (signal) => (await answer(api.GET("/v1/task-types", { signal }))).data, []);
  const filter: Filter = filterOf(query);
  const unsent = useSignal(false);
  const type = types.data?.find((t) => t.name === filter.type);
  return (
    <>
      <Title text="Tasks" />
      <Problem error={types.error} retry={types.reload} />
      {types.data?.length === 0 && <NoTypes />}
      {!!types.data?.length && (
        <>
          <Filters filter={filter} types={types.data.map((t) => t.name)}
            stages={type?.stages.map((s) => s.name) ?? []} unsent={unsent} />
          <List filter={filter} unsent={unsent} />
        </>
      )}
    </>
  );
}

function List({ filter, unsent }: { filter: Filter; unsent: Signal<boolean> }) {
  const [, link] = useQuery();
  const list = useLoad(
    (signal) => answer(api.GET("/v1/tasks", { signal, params: { query: queryOf(filter) } })),
    [JSON.stringify(filter)], filter.cursor || filter.text ? 0 : 3000);
  const { data, next_cursor: next, searched } = list.data ?? {};
  const shown = useRef(false); // the first list comes before its count
  shown.current ||= list.data !== undefined;
  const none = data?.length === 0 && !next;
  const { type, ...filters } = filter;
  const unused = none && Object.keys(filters).length === 0;
  return (
    <>
      {shown.current && !unused && <Matches filter={filter} />}
      {list.data && !list.error && (
        <AllThatMatch filter={filter} none={none} unsent={unsent.value} />
      )}
      <Problem error={list.error} retry={list.reload} />
      {data && data.length > 0 && <TaskTable tasks={data} />}
      {data?.length === 0 && next && (
        <Empty title={`None of ${tasks(searched?.tasks ?? 0)} matches`}>
          They were submitted between <Time at={searched?.from} /> and{" "}
          <Time at={searched?.until} />.{" "}
          <a href={link({ cursor: next })}>
            {searched?.next_type
              ? <>Search on, from the type {searched.next_type}</> : "Search older ones"}
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
      <Pager next={next} />
    </>
  );
}

/** Tasks as a table. Each row is a link to its task. */
function TaskTable({ tasks: all }: { tasks: Schemas["Task"][] }) {
  return (
    <Rows label="Tasks" columns={["Task", "Status", "Stage", { n: "Attempt" }, "Submitted", "Why"]}>
      {all.map((t) => (
        <Row key={t.id} href={`/console/tasks/${encodeURIComponent(t.id)}`} name={t.id}>
          <td><Status status={t.status} /></td>
          <td>{t.stage}</td>
          <td class="n">{t.attempt}{t.max_attempts ? ` of ${t.max_attempts}` : ""}</td>
          <td><Time at={t.created_at} /></td>
          <td class="cut">{why(t) || t.error}</td>
        </Row>
      ))}
    </Rows>
  );
}
