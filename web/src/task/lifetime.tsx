import type { Signal } from "@preact/signals";
import type { Schemas } from "../api.ts";
import { Field } from "../parts/field.tsx";
import { typedMembers } from "../parts/members.ts";
import { Time } from "../parts/time.tsx";

/** By when a task must begin and end, and when it expired. */
export function Lifetime({ task: t }: { task: Schemas["Task"] }) {
  const { start_by: start, end_by: end } = t.lifetime ?? {};
  return (
    <>
      {start && <div><dt>Must begin by</dt><dd><Time at={start} /></dd></div>}
      {end && <div><dt>Must end by</dt><dd><Time at={end} /></dd></div>}
      {t.error_code === "expired" && (
        <div><dt>Expired</dt><dd><Time at={t.finished_at} /></dd></div>
      )}
    </>
  );
}

/** What is typed for a lifetime. */
export interface Deadlines {
  start: Signal<string>;
  end: Signal<string>;
}

/** Asks for a lifetime. */
export function LifetimeFields({ start, end }: Deadlines) {
  const placeholder = "30m, or 2026-12-24T18:00:00Z, or none";
  return (
    <>
      <Field label="Must begin by" name="start_by" maxLength={40} placeholder={placeholder}
        value={start} />
      <Field label="Must end by" name="end_by" maxLength={40} placeholder={placeholder}
        value={end} />
    </>
  );
}

/** Returns the members of a body that say the lifetime, as JSON. */
export const lifetimeMembers = ({ start, end }: Deadlines): string[] =>
  typedMembers({ start_by: start.value, end_by: end.value });
