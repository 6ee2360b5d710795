import { answer, api, type Schemas } from "../api.ts";
import { count, tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Spans, spanOf } from "../parts/spans.tsx";
import { Title } from "../parts/title.tsx";
import { Group } from "./group.tsx";

const pause = 20_000; // between two loads, in ms

type Report = Schemas["FailureReport"];

/** The tasks that failed lately, by the kinds of their errors. */
export function Failures() {
  const [{ last = "1h", order, type }, link] = useQuery();
  const span = spanOf(last, "1h");
  const newest = order === "newest";
  const load = useLoad((signal) => answer(api.GET("/v1/failures", {
    signal,
    params: { query: { type, order: newest ? "newest" : "count",
      since: new Date(Date.now() - span.ms).toISOString() } },
  })), [span.ms, newest, type], pause);
  return (
    <>
      <Title text="Failures" doc="failures.md" />
      <Spans span={span}>
        <a href={link({ order: newest ? "" : "newest" })}>
          {newest ? "Show the most frequent first" : "Show the newest first"}
        </a>
      </Spans>
      {type && <p>Only of the type {type}. <a href={link({ type: "" })}>Show all types</a></p>}
      <Problem error={load.error} retry={load.reload} />
      <Skeleton of={load} />
      {load.data && <Groups report={load.data} type={type} span={span.name} />}
    </>
  );
}

function Groups({ report, type, span }: { report: Report; type?: string; span: string }) {
  const { groups, searched } = report;
  return (
    <>
      {groups.length === 0 && searched.complete && (
        <Empty title={`Nothing failed in the last ${span}`}>
          A task fails when an attempt fails that has no further one. Tasks that were redriven are
          not shown. <a href="/console/tasks?status=failed&children=true">All failed tasks</a>
        </Empty>
      )}
      {groups.length > 0 && (
        <p role="status">
          <strong>{tasks(report.failures)}</strong> failed, with {count(report.count)}{" "}
          {report.count === 1 ? "kind" : "kinds"} of errors
          {report.count > groups.length && `; ${count(groups.length)} are shown`}.
        </p>
      )}
      {!searched.complete && (
        <p class="bad">
          There are more failures than one look reads. The newest were read; older ones may be
          missing of {searched.types_left?.join(", ")}. Choose a shorter time.
        </p>
      )}
      {groups.map((g) => <Group key={g.fingerprint} group={g} {...{ report, type }} />)}
    </>
  );
}
