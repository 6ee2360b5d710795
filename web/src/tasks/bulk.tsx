import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useRef } from "preact/hooks";
import { answer, api, type CallError, type Schemas } from "../api.ts";
import { tasks } from "../format.ts";
import { Action } from "../parts/action.tsx";
import { Field } from "../parts/field.tsx";
import { Folded } from "../parts/filter.tsx";
import { Problem } from "../parts/problem.tsx";
import { type Filter, selectionOf } from "./filters.tsx";
import { inWords } from "./words.ts";

type BulkCancellation = Schemas["BulkCancellation"];
type Change = "cancel" | "redrive" | "rerun" | "delay" | "priority" | "erase";

interface AllThatMatchProps {
  filter: Filter;
  none: boolean; // no task matches: there are no buttons, but an open question stays
  unsent: boolean; // something is typed that doesn't count yet
}

/** Buttons for all tasks that match a filter. What they start is an operation. */
export function AllThatMatch({ filter, none, unsent }: AllThatMatchProps) {
  if (filter.text) return null; // bulk calls have no such filter
  const { status, ...selection } = selectionOf(filter);
  if (unsent) {
    return <p class="quiet">The list doesn't follow what you have typed: choose Search first.</p>;
  }
  return (
    <Folded title="Change all that match">
      <Buttons which="all that match" {...{ selection, status }} said={inWords(filter)}
        ended={!!(filter.ended_since || filter.ended_until)} hidden={none} />
    </Folded>
  );
}

interface TickedProps {
  ids: string[];
  clear: () => void;
}

/** Buttons for the tasks that are ticked. */
export function Ticked({ ids, clear }: TickedProps) {
  return (
    <section class="ticked" aria-label="Ticked tasks">
      <p class="buttons">
        <strong role="status">{tasks(ids.length)} ticked</strong>
        <button type="button" class="small" onClick={clear}>Untick all</button>
      </p>
      <Buttons which="the ticked" selection={{ ids }} status={undefined} ended={false}
        said="that are ticked" hidden={false} />
    </section>
  );
}

type Selection = Partial<Omit<ReturnType<typeof selectionOf>, "status">> & { ids?: string[] };

interface ButtonsProps {
  which: string; // tasks, in the labels
  selection: Selection;
  status: Schemas["Status"] | undefined;
  said: string; // which tasks, in the questions
  ended: boolean; // only final tasks
  hidden: boolean;
}

function Buttons({ which, selection, status, said, ended, hidden }: ButtonsProps) {
  const priority = useSignal("0");
  const delay = useSignal("1h");
  const patch = useSignal("");
  const final = status === "succeeded" || status === "failed" || status === "cancelled";
  const inLine = !ended && (status === undefined || status === "waiting" || status === "pending");
  const about = { said, hidden };
  /** Returns the call that makes a change, with further members of its body, and their text. */
  const change = (what: Change, members: object = {}, text = "") => (more: object) =>
    api.POST(`/v1/tasks/${what}` as "/v1/tasks/cancel", {
      body: { ...selection, status, ...members, ...more } as BulkCancellation,
      bodySerializer: (b) => `${JSON.stringify(b).slice(0, -1)}${text}}`,
    });
  return (
    <p class="buttons">
      {!selection.ids && <span class="lead quiet">All that match:</span>}
      {(status === undefined || status === "failed" || status === "cancelled") && (
        <Bulk label={`Redrive ${which}`} what={status ?? "failed"} {...about}
          call={change("redrive")} />
      )}
      {(final || selection.ids) && (
        <Bulk label={`Run ${which} again`} what={`${status ?? "final"}, without children`}
          {...about}
          call={change("rerun", { children: undefined },
            patch.value && `,"context_patch":${patch.value}`)}>
          <p>Each gets one new task, which begins at the first stage.</p>
          <Field label="JSON merge patch of each context" value={patch} />
        </Bulk>
      )}
      {inLine && (
        <>
          <Bulk label={`Run ${which} now`} what={status ?? "waiting or pending"} {...about}
            call={change("delay", { delay: "0s" })}>
            <p>A delay or the pause before a retry ends at once. Limits, pauses and dependencies
              stay. Tasks that wait for their children or a signal are skipped.</p>
          </Bulk>
          <Bulk label={`Delay ${which}`} what={status ?? "waiting or pending"} {...about}
            call={change("delay", { delay: delay.value })}>
            <Field label="Run no sooner than in" name="delay" required
              placeholder="such as 30m or 2h" value={delay} />
          </Bulk>
          <Bulk label={`Change priority of ${which}`} what={status ?? "waiting or pending"}
            {...about}
            call={change("priority", { priority: Number(priority.value) })}>
            <Field label="Head start in seconds" type="number" min="0" max="31536000" required
              value={priority} />
          </Bulk>
        </>
      )}
      {!ended && !final && (
        <Bulk label={`Cancel ${which}`} what={status ?? "not yet final"} {...about} danger
          call={change("cancel")} />
      )}
      {(status === undefined || final) && (
        <Bulk label={`Erase contents of ${which}`} what={status ?? "final"} {...about}
          danger scope="manage"
          call={change("erase")} />
      )}
    </p>
  );
}

interface BulkProps {
  label: string;
  scope?: "operate" | "manage";
  children?: ComponentChildren; // more fields of the question
  what: string; // the status of the tasks
  said: string; // the rest of the filter in words
  danger?: boolean;
  hidden: boolean;
  call: (more: { dry_run?: boolean; pace?: number }) => Promise<{
    data?: Schemas["Count"] | Schemas["Operation"]; error?: unknown; response: Response }>;
}

/** A button that counts the tasks of a bulk call, asks, and starts the operation. */
export function Bulk({
  label, what, said, danger = false, hidden, call, children, scope = "operate",
}: BulkProps) {
  const { route } = useLocation();
  const n = useSignal<number | undefined>(undefined);
  const error = useSignal<CallError | undefined>(undefined);
  const pace = useSignal("");
  const counts = useRef(0);
  const begin = async () => {
    const mine = ++counts.current;
    n.value = error.value = undefined;
    try {
      const { count } = await answer(call({ dry_run: true })) as Schemas["Count"];
      if (mine === counts.current) n.value = count;
    } catch (e) {
      if (mine === counts.current) error.value = e as CallError;
    }
  };
  const run = async () => {
    const more = pace.value ? { pace: Number(pace.value) } : {};
    const operation = (await answer(call(more))) as Schemas["Operation"];
    route(`/console/operations?id=${operation.id}`);
    return `${label}: started`;
  };
  const ask = (
    <>
      <p aria-live="polite">
        {n.value !== undefined && <><strong>{tasks(n.value)}</strong>, {what}: </>}
        {n.value === undefined && !error.value && <>Counting… {what}: </>}
        {said}. It runs in the background, and can be stopped.
      </p>
      <Problem error={error.value} retry={() => void begin()} />
      {children}
      <Field label="The most tasks per second; empty: no limit" type="number" min="0.01" step="any"
        value={pace} />
    </>
  );
  // Which tasks stands before all buttons, and is on each for screen readers only.
  const [, verb, which, rest] = /^(.+?)((?: of)? (?:all that|the) \w+)(.*)$/.exec(label) ?? [];
  const face = verb && <>{verb}<span class="hidden">{which}</span>{rest}</>;
  return <Action label={label} face={face} scope={scope} danger={danger} hidden={hidden} run={run}
    ask={ask} begin={() => void begin()} ready={n.value !== undefined} />;
}
