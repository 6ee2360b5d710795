import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import {
  answer, api, CallError, named, type Schemas, type Tagged, tagged, unchanged,
} from "../api.ts";
import { useCall } from "../parts/call.ts";
import { Area, Field, Refused } from "../parts/field.tsx";
import { Problem } from "../parts/problem.tsx";
import { toast } from "../parts/toast.tsx";
import { may } from "../session.ts";
import { diff, type Line } from "./diff.ts";
import { documentOf } from "./document.ts";
import { versionOf, Versions } from "./versions.tsx";

const numberOf = (type: string) => (JSON.parse(type) as Schemas["TaskType"]).version;

/** Returns a type as it is stored. */
async function stored(type: string): Promise<Tagged<string>> {
  const { value, etag } = await tagged(api.GET("/v1/task-types/{type}",
    { params: { path: { type } }, parseAs: "text" }));
  return { value: value as string, etag };
}

/** Sends a document as it was typed; with dryRun, it is only checked. */
function put(type: string, text: string, read: Tagged<string> | undefined, dryRun: boolean) {
  return api.PUT("/v1/task-types/{type}", {
    params: {
      path: { type }, header: unchanged(read), query: dryRun ? { dry_run: true } : {},
    },
    body: { stages: [] },
    bodySerializer: () => text,
    parseAs: "text",
  });
}

/** What the document of a new type begins with. */
const sample = JSON.stringify({
  stages: [
    { name: "first", timeout: "30s", retry: { max_attempts: 5, interval: 60 } },
    { name: "second" },
  ],
}, null, 2);

/** A check of a text: what would change. */
interface Check {
  name: string;
  text: string;
  lines: Line[];
}

interface EditorProps {
  /** Its name; undefined: a new one. */
  type?: string;
  saved: (name: string) => void;
}

/** The document of a type. It is saved after its changes were shown. */
export function Editor({ type, saved }: EditorProps) {
  const open = useSignal(false);
  const name = useSignal("");
  const text = useSignal(sample);
  const check = useSignal<Check | undefined>(undefined);
  const { busy, error, send: sendOnce } = useCall();
  const opened = useRef<Tagged<string> | undefined>(undefined); // what the changes are against
  if (!may("manage")) return null;
  const close = () => {
    open.value = false;
    check.value = error.value = undefined;
  };
  const begin = () => sendOnce(async () => {
    if (type) {
      opened.current = await stored(type);
      text.value = documentOf(opened.current.value);
    }
    open.value = true;
  });
  const goBack = (version: number) => sendOnce(async () => {
    if (type) text.value = await versionOf(type, version);
  });
  /** Sends what was typed. If somebody else was first, the next changes to show are theirs, too. */
  const send = async (dryRun: boolean): Promise<string> => {
    const call = answer(put(type ?? name.value, text.value, opened.current, dryRun));
    if (!type) return await named("type", "is the name of another type", call) as string;
    try {
      return await call as string;
    } catch (e) {
      check.value = undefined;
      if (e instanceof CallError && e.status === 412) opened.current = await stored(type);
      throw e;
    }
  };
  const compare = () => sendOnce(async () => {
    check.value = undefined;
    const called = type ?? name.value, typed = text.value, before = opened.current;
    const then = documentOf(await send(true));
    check.value = {
      name: called, text: typed,
      lines: before
        ? diff(documentOf(before.value), then)
        : then.split("\n").map((l) => ({ sign: "+", text: l })),
    };
  });
  const save = () => sendOnce(async () => {
    if (!checked) return;
    const then = await send(false);
    close();
    saved(checked.name);
    toast(`Version ${numberOf(then)} of ${checked.name} is saved`);
  });
  const label = type ? "Edit" : "New type";
  if (!open.value) {
    return (
      <>
        <Problem error={error.value} />
        <p class="buttons">
          <button type="button" disabled={busy.value} onClick={() => void begin()}>{label}</button>
        </p>
      </>
    );
  }
  const current = check.value?.text === text.value && check.value.name === (type ?? name.value);
  const checked = current ? check.value : undefined;
  const differs = checked?.lines.some((l) => l.sign !== " ");
  return (
    <section>
      <h2>{label}</h2>
      <form onSubmit={(e) => { e.preventDefault(); void compare(); }}>
        <Refused.Provider value={error.value?.problem.errors ?? []}>
          {type
            ? <Versions type={type} busy={busy.value} chosen={(n) => void goBack(n)} />
            : <Field label="Name" name="type" required maxLength={40} value={name} />}
          <Area label="The type as JSON" rows={type ? 24 : 14} value={text} />
        </Refused.Provider>
        <Problem error={error.value} />
        <p class="buttons">
          <button type="button" onClick={close}>Discard</button>
          <button type="submit" class={differs ? "" : "primary"} disabled={busy.value}>
            Show changes
          </button>
          {differs && (
            <button type="button" class="primary" disabled={busy.value}
              onClick={() => void save()}>{type ? "Save as a new version" : "Create"}</button>
          )}
        </p>
      </form>
      <div aria-live="polite">
        {checked && (differs
          ? <Changes lines={checked.lines} />
          : <p>Nothing would change.</p>)}
      </div>
    </section>
  );
}

/** Lines that are shown before and after a change. */
const around = 3;

const signs = { " ": "", "-": "removed", "+": "added" };

function Changes({ lines }: { lines: Line[] }) {
  const near = (i: number, by: number) =>
    lines.slice(Math.max(0, i - by), i + by + 1).some((l) => l.sign !== " ");
  return (
    <div class="code diff" tabIndex={0} role="region" aria-label="Changes">
      {lines.map((l, i) => near(i, around)
        ? <Change key={i} line={l} />
        : near(i, around + 1) && <div key={i} class="quiet">…</div>)}
    </div>
  );
}

function Change({ line: { sign, text } }: { line: Line }) {
  return (
    <div class={signs[sign]}>
      <span aria-hidden="true">{sign} </span>
      {sign !== " " && <span class="hidden">{signs[sign]}: </span>}
      {text}
    </div>
  );
}
