import { useSignal } from "@preact/signals";
import { answer, api, CallError, type Schemas } from "../api.ts";
import { Problem } from "../parts/problem.tsx";
import { toast } from "../parts/toast.tsx";
import { may } from "../session.ts";
import { diff, type Line } from "./diff.ts";
import { documentOf } from "./document.ts";

const versionOf = (type: string) => (JSON.parse(type) as Schemas["TaskType"]).version;

/** Returns a type as it is stored. */
async function read(type: string): Promise<string> {
  return await answer(api.GET("/v1/task-types/{type}",
    { params: { path: { type } }, parseAs: "text" })) as string;
}

/** Sends a document as it was typed; with dryRun, it is only checked. */
async function put(type: string, text: string, dryRun: boolean): Promise<string> {
  return await answer(api.PUT("/v1/task-types/{type}", {
    params: { path: { type }, query: dryRun ? { dry_run: true } : {} },
    body: { stages: [] },
    bodySerializer: () => text,
    parseAs: "text",
  })) as string;
}

/** A check of a text: what would change. */
interface Check {
  text: string;
  version: number; // of the type that it was compared with
  lines: Line[];
}

interface EditorProps {
  type: string;
  changed: () => void;
}

/** The document of a type. It is saved after its changes were shown. */
export function Editor({ type, changed }: EditorProps) {
  const text = useSignal<string | undefined>(undefined);
  const check = useSignal<Check | undefined>(undefined);
  const error = useSignal<CallError | undefined>(undefined);
  const busy = useSignal(false);
  if (!may("manage")) return null;
  const close = () => {
    text.value = check.value = error.value = undefined;
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
    text.value = documentOf(await read(type));
  });
  const compare = caught(async () => {
    check.value = undefined;
    const typed = text.value ?? "";
    const now = await read(type);
    const then = await put(type, typed, true);
    check.value = { text: typed, version: versionOf(now),
      lines: diff(documentOf(now), documentOf(then)) };
  });
  const save = caught(async () => {
    if (versionOf(await read(type)) !== check.value?.version) {
      check.value = undefined;
      throw new CallError(0, { detail: "The type has been changed meanwhile: show the changes again." });
    }
    const saved = await put(type, check.value?.text ?? "", false);
    close();
    changed();
    toast(`Version ${versionOf(saved)} of ${type} is saved`);
  });
  if (text.value === undefined) {
    return (
      <>
        <Problem error={error.value} />
        <p class="buttons">
          <button type="button" disabled={busy.value} onClick={() => void begin()}>Edit</button>
        </p>
      </>
    );
  }
  const differs = check.value?.lines.some((l) => l.sign !== " ");
  return (
    <section>
      <h2>Edit</h2>
      <form onSubmit={(e) => { e.preventDefault(); void compare(); }}>
        <label>
          The type as JSON
          <textarea rows={24} spellcheck={false} value={text.value} onInput={(e) => {
            text.value = e.currentTarget.value;
            check.value = undefined;
          }} />
        </label>
        <Problem error={error.value} />
        <p class="buttons">
          <button type="button" onClick={close}>Discard</button>
          <button type="submit" class={differs ? "" : "primary"} disabled={busy.value}>
            Show changes
          </button>
          {differs && (
            <button type="button" class="primary" disabled={busy.value}
              onClick={() => void save()}>Save as a new version</button>
          )}
        </p>
      </form>
      <div aria-live="polite">
        {check.value && (differs
          ? <Changes lines={check.value.lines} />
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
