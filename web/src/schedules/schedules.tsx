import { useLocation } from "preact-iso";
import { answer, api } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/empty.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { SetSchedule } from "./form.tsx";
import { when } from "./when.ts";

/** The schedules of the tenant, by name. */
export function Schedules() {
  const [{ cursor }] = useQuery();
  const list = useLoad((signal) => answer(api.GET("/v1/schedules",
    { signal, params: { query: { cursor } } })), [cursor], 5000);
  const { data, next_cursor: next } = list.data ?? {};
  const { route } = useLocation();
  return (
    <>
      <Title text="Schedules" doc="schedules.md" />
      <p class="buttons">
        <SetSchedule saved={(name) => route(`/console/schedules/${name}`)} />
      </p>
      <Problem error={list.error} retry={list.reload} />
      <Skeleton of={list} />
      {data?.length === 0 && (
        <Empty title="There are no schedules yet">
          A schedule submits a task at certain times. Describe one in a file, and apply it:{" "}
          <code>asyncflow types apply -f asyncflow.yaml</code>
        </Empty>
      )}
      {!!data?.length && (
        <Rows cards label="Schedules"
          columns={["Schedule", "Type", "When", "Next run", "Last run", { n: "Skipped" }]}>
          {data.map((s) => (
            <Row key={s.name} href={`/console/schedules/${s.name}`} name={s.name}>
              <td data-label="Type">{s.type}</td>
              <td data-label="When">{when(s)}</td>
              <td data-label="Next run">
                {s.paused_at ? <Status status="paused" /> : <Time at={s.next_runs[0]} />}
                {s.last_error && <>{" "}<Status status="failing" /></>}
              </td>
              <td data-label="Last run"><Time at={s.last_run_at} /></td>
              <td class="n" data-label="Skipped">{count(s.skipped)}</td>
            </Row>
          ))}
        </Rows>
      )}
      <Pager next={next} />
    </>
  );
}
