import { useSignal } from "@preact/signals";
import { answer, api, CallError, makes, refused, type Schemas } from "../api.ts";
import { Area, Field, Refused } from "../parts/field.tsx";
import { Problem } from "../parts/problem.tsx";
import { toast } from "../parts/toast.tsx";
import { may } from "../session.ts";
import { diff, type Line } from "./diff.ts";
import { documentOf } from "./document.ts";

const versionOf = (type: string) => (JSON.parse(type) as Schemas["TaskType"]).version;

/** Returns a type as it is stored. */
async function stored(type: string): Promise<string> {
  return await answer(api.GET("/v1/task-types/{type}",
    { params: { path: { type } }, parseAs: "text" })) as string;
}

/** Sends a document as it was typed; with dryRun, it is only checked. */
function put(type: string, text: string, dryRun: boolean) {
  return api.PUT("/v1/task-types/{type}", {
    params: { path: { type }, query: dryRun ? { dry_run: true } : {} },
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
  version: number; // of the type that it was compared with; 0: it is new
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
  const error = useSignal<CallError | undefined>(undefined);
  const busy = useSignal(false);
  if (!may("manage")) return null;
  const close = () => {
    open.value = false;
    check.value = error.value = undefined;
  };
  const caught = (work: () => Promise<void>) => async () => {
    busy.value = true;
    error.value = undefined;
    try {
      await work();
    } catch (e) {
      error.value = e instanceof CallError ? e : new CallError(0, { detail: String(e) });
    }
    busy.value = false;
  };
  const begin = caught(async () => {
    if (type) text.value = documentOf(await stored(type));
    open.value = true;
  });
  /** Returns the stored type; undefined if the type is new. */
  const read = async (called: string, typed: string) => {
    if (type) return stored(type);
    if (!await makes(put(called, typed, true))) throw refused("type", "is the name of another type");
    return undefined;
  };
  const compare = caught(async () => {
    check.value = undefined;
    const called = type ?? name.value, typed = text.value;
    const now = await read(called, typed);
    const then = documentOf(await answer(put(called, typed, true)) as string);
    check.value = {
      name: called, text: typed, version: now ? versionOf(now) : 0,
      lines: now ? diff(documentOf(now), then) : then.split("\n").map((l) => ({ sign: "+", text: l })),
    };
  });
  const save = caught(async () => {
    if (!checked) return;
    const now = await read(checked.name, checked.text);
    if ((now ? versionOf(now) : 0) !== checked.version) {
      check.value = undefined;
      throw new CallError(0, { detail: "The type has been changed meanwhile: show the changes again." });
    }
    const then = await answer(put(checked.name, checked.text, false)) as string;
    close();
    saved(checked.name);
    toast(`Version ${versionOf(then)} of ${checked.name} is saved`);
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
          {!type && <Field label="Name" name="type" required maxLength={40} value={name} />}
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
