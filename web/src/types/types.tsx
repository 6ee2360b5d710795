import { useLocation } from "preact-iso";
import { answer, api } from "../api.ts";
import { useLoad } from "../load.ts";
import { NoTypes } from "../parts/empty.tsx";
import { Pager, useQuery } from "../parts/pager.tsx";
import { Problem } from "../parts/problem.tsx";
import { Row, Rows } from "../parts/rows.tsx";
import { Skeleton } from "../parts/skeleton.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";
import { Title } from "../parts/title.tsx";
import { Editor } from "./editor.tsx";
import { flowLimits, limits } from "./limits.ts";

/** The task types of the tenant, by name. */
export function Types() {
  const [{ cursor }] = useQuery();
  const list = useLoad((signal) => answer(api.GET("/v1/task-types",
    { signal, params: { query: { cursor } } })), [cursor], 5000);
  const { data, next_cursor: next } = list.data ?? {};
  const { route } = useLocation();
  return (
    <>
      <Title text="Task types" doc="stages.md" />
      <Editor saved={(name) => route(`/console/types/${name}`)} />
      <Problem error={list.error} retry={list.reload} />
      <Skeleton of={list} />
      {data?.length === 0 && <NoTypes />}
      {!!data?.length && (
        <Rows cards label="Task types"
          columns={["Type", { n: "Version" }, "Stages", "Limits", "Changed", "Paused"]}>
          {data.map((t) => (
            <Row key={t.name} href={`/console/types/${t.name}`} name={t.name}>
              <td class="n" data-label="Version">{t.version}</td>
              <td data-label="Stages">{t.stages.map((s) => s.name).join(" → ")}</td>
              <td data-label="Limits">
                <div>
                  {limits(t) || "–"}
                  {t.flow && <div class="quiet">each flow key: {flowLimits(t.flow)}</div>}
                </div>
              </td>
              <td data-label="Changed"><Time at={t.updated_at} /></td>
              <td>
                {t.paused_at && <><Status status="paused" /> {t.pause_reason}</>}
              </td>
            </Row>
          ))}
        </Rows>
      )}
      <Pager next={next} />
    </>
  );
}
