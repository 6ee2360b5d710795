import { useSignal } from "@preact/signals";
import { answer, api, type Schemas } from "../api.ts";
import { now } from "../clock.ts";
import { bytes, count, span, tasks } from "../format.ts";
import { useLoad } from "../load.ts";
import { Problem } from "../parts/problem.tsx";
import { Table } from "../parts/rows.tsx";
import { Time } from "../parts/time.tsx";

type Roll = Schemas["Roll"];

/** The generations of tables of a type, under a fold: they are loaded once it is open. */
export function Rolls({ type }: { type: string }) {
  const open = useSignal(false);
  return (
    <details class="section" onToggle={(e) => (open.value = e.currentTarget.open)}>
      <summary>Rolls</summary>
      {open.value && <List type={type} />}
    </details>
  );
}

/** The generations of tables that may have tasks of a type, newest first. */
function List({ type }: { type: string }) {
  const load = useLoad((signal) => answer(api.GET("/v1/task-types/{type}/rolls",
    { signal, params: { path: { type } } })), [type], 20_000);
  const { data: rolls, older = 0 } = load.data ?? {};
  return (
    <section>
      <h2 class="hidden">Rolls</h2>
      <Problem error={load.error} retry={load.reload} />
      {rolls?.length === 0 && <p class="quiet">There is none yet.</p>}
      {rolls?.some((r) => !r.own) && (
        <p class="quiet">
          Types share the tables of a roll that is marked as shared. Its tasks and its size are
          those of all these types together.
        </p>
      )}
      {!!rolls?.length && (
        <Table label="Rolls" columns={[{ n: "Roll" }, { n: "Tasks, about" }, { n: "Size" },
          "Opened", "State", "Goes at the earliest"]}>
          {rolls.map((r) => (
            <tr key={r.position}>
              <td class="n">{r.position}</td>
              <td class="n">{count(r.tasks_estimate)}</td>
              <td class="n">{bytes(r.bytes)}</td>
              <td><Time at={r.opened_at} /></td>
              <td><State roll={r} />{!r.own && ", shared"}</td>
              <td><Goes roll={r} /></td>
            </tr>
          ))}
        </Table>
      )}
      {older > 0 && <p>{count(older)} older {older === 1 ? "one isn't" : "ones aren't"} listed.</p>}
    </section>
  );
}

function State({ roll: r }: { roll: Roll }) {
  if (r.next_tasks) return <>open</>;
  if (r.idle_since) return <>all tasks ended <Time at={r.idle_since} /></>;
  if (r.drained_at) return <>drained <Time at={r.drained_at} />; a task may be live</>;
  if (r.sealed_at) return <>sealed <Time at={r.sealed_at} />; has tasks in line</>;
  return <>about to be sealed</>;
}

/** When a roll is dropped or compacted or, of the open one, when the next one opens. */
function Goes({ roll: r }: { roll: Roll }) {
  if (r.compacts_at) return <><Soon at={r.compacts_at} />, but for live tasks</>;
  if (r.drops_at) return <Soon at={r.drops_at} />;
  if (r.idle_since) return <>after the older ones</>;
  if (!r.next_tasks) return <>{span(r.retention)} after its last task ends</>;
  return (
    <>
      next at {tasks(r.next_tasks)}
      {r.next_at && <>, or <Soon at={r.next_at} /></>}
    </>
  );
}

/** A time to come. What was due before then happens soon. */
function Soon({ at }: { at: string }) {
  return Date.parse(at) < now.value ? <>soon</> : <Time at={at} />;
}
