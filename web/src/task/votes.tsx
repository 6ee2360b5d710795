import { answer, api, type Schemas } from "../api.ts";
import { claimerOf } from "../format.ts";
import { members, rowsOf } from "../json.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { Time } from "../parts/time.tsx";

/** The votes on a task, if its type has a stage with a quorum. */
export function Votes({ task, stages }: { task: Schemas["Task"]; stages: Schemas["Stage"][] }) {
  if (!task.children || !stages.some((s) => s.quorum)) return null;
  return <Cast task={task} />;
}

function Cast({ task }: { task: Schemas["Task"] }) {
  const votes = useLoad(async (signal) => {
    const text = await answer(api.GET("/v1/tasks/{id}/votes",
      { signal, params: { path: { id: task.id } }, parseAs: "text" })) as string;
    const list = JSON.parse(text) as Schemas["VoteList"];
    const texts = rowsOf(text);
    return { decided: list.decided, outcome: members(text).outcome,
      cast: list.data.map((v, i) => ({ ...v, outcome: texts[i]?.outcome })) };
  }, [task.id, JSON.stringify(task.children)]);
  if (votes.error?.status === 409) return null;
  return (
    <section>
      <h2>Votes</h2>
      <Problem error={votes.error} />
      {votes.data?.decided && <p>Decided: <code>{votes.data.outcome}</code></p>}
      <ul>
        {votes.data?.cast.map((v, i) => (
          <li key={i}>
            {v.claimer ? claimerOf(v) : "a worker"}: <code>{v.outcome ?? "no outcome"}</code>
            {" "}<Status status={v.status} /> <Time at={v.at} />
            {v.late && <span class="quiet"> too late to count</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}
