import { type Signal, useSignal } from "@preact/signals";
import { type ComponentChildren, createContext } from "preact";
import { useContext, useLayoutEffect } from "preact/hooks";
import type { Schemas } from "../api.ts";

/** What was refused of the form around the fields. Each shows what concerns it. */
export const Refused = createContext<Schemas["FieldError"][]>([]);

/** Returns why the field of this name was refused; undefined: it wasn't. */
function useRefusal(name: string | undefined): string | undefined {
  const all = useContext(Refused);
  if (name === undefined) return undefined;
  return all.find(({ field }) => field === name || field.startsWith(`${name}.`))?.message;
}

interface LabelProps {
  label: string;
  why: string | undefined;
  children: ComponentChildren;
}

/** Why something without an input of its own was refused, such as a whole list. */
export function Refusal({ name }: { name: string }) {
  const why = useContext(Refused).find(({ field }) => field === name)?.message;
  return why === undefined ? null : <p class="bad">{why}</p>;
}

/** A field with its label, and why it was refused. */
function Label({ label, why, children }: LabelProps) {
  return <label>{label}{children}{why && <span class="bad">{why}</span>}</label>;
}

interface FieldProps {
  label: string;
  value: Signal<string>;
  /** The field of the API's document, to show at the input why it was refused. */
  name?: string;
  /** secret: its text is hidden, and no browser fills it in. */
  type?: "text" | "number" | "url" | "secret";
  required?: boolean;
  min?: string;
  max?: string;
  step?: string;
  maxLength?: number;
  pattern?: string;
  placeholder?: string;
}

/** An input with its label. */
export function Field({ label, value, name, type, ...rest }: FieldProps) {
  const why = useRefusal(name);
  const kind = type === "secret"
    ? { type: "password", autocomplete: "new-password" }
    : { type, autocomplete: "off" };
  return (
    <Label label={label} why={why}>
      <input {...({ ...rest, ...kind } as object)} value={value.value}
        aria-invalid={why !== undefined}
        onInput={(e) => (value.value = e.currentTarget.value)} />
    </Label>
  );
}

interface CheckProps {
  label: string;
  value: Signal<boolean>;
  name?: string;
}

/** A box to tick, with its label. */
export function Check({ label, value, name }: CheckProps) {
  const why = useRefusal(name);
  return (
    <label class="check">
      <input type="checkbox" checked={value.value} aria-invalid={why !== undefined}
        onChange={(e) => (value.value = e.currentTarget.checked)} />
      {label}{why && <span class="bad">{why}</span>}
    </label>
  );
}

interface AreaProps {
  label: string;
  value: Signal<string>;
  rows: number;
  name?: string;
  placeholder?: string;
}

/** Several lines of text, such as JSON, with their label. */
export function Area({ label, value, rows, name, placeholder }: AreaProps) {
  const why = useRefusal(name);
  return (
    <Label label={label} why={why}>
      <textarea rows={rows} spellcheck={false} value={value.value} placeholder={placeholder}
        aria-invalid={why !== undefined}
        onInput={(e) => (value.value = e.currentTarget.value)} />
    </Label>
  );
}

interface SelectProps {
  label: string;
  name?: string;
  value: string | undefined;
  options: readonly string[];
  /** There is also an option for no value. */
  any?: boolean;
  required?: boolean;
  change: (value: string) => void;
}

/** A choice with its label. A value that isn't among the options is one of them, too. */
export function Select(props: SelectProps) {
  const { label, name, value = "", options, any = false, required, change } = props;
  const why = useRefusal(name);
  const all = value && !options.includes(value) ? [value, ...options] : options;
  return (
    <Label label={label} why={why}>
      <select value={value} required={required} aria-invalid={why !== undefined}
        onChange={(e) => change(e.currentTarget.value)}>
        {any && <option value="">any</option>}
        {required && <option value="">choose</option>}
        {all.map((o) => <option key={o} value={o}>{o}</option>)}
      </select>
    </Label>
  );
}

interface InstantProps {
  label: string;
  name?: string;
  /** In the form of the API, or none. */
  value: string | undefined;
  /** A change is all that is to be done: Enter doesn't send the form, too. */
  applies?: boolean;
  change: (value: string) => void;
}

/** A time, in the time zone of the viewer. */
export function Instant({ label, name, value, applies = false, change }: InstantProps) {
  const why = useRefusal(name);
  const typed = useSignal<string | undefined>(undefined); // what isn't taken yet
  useLayoutEffect(() => { typed.value = undefined; }, [value]);
  /** Takes what stands in the field. Reports whether it is another time. */
  const take = (text: string): boolean => {
    if (text === local(value)) return false;
    change(text && new Date(text).toISOString());
    return true;
  };
  return (
    <Label label={label} why={why}>
      <input type="datetime-local" value={typed.value ?? local(value)}
        aria-invalid={why !== undefined}
        onInput={(e) => (typed.value = e.currentTarget.value)}
        onBlur={(e) => take(e.currentTarget.value)}
        onKeyDown={(e) => { // Enter sends a form while the field still has the focus
          if (e.key === "Enter" && take(e.currentTarget.value) && applies) e.preventDefault();
        }} />
    </Label>
  );
}

/** Returns a time as a field for local times has it; "" for none. */
function local(at: string | undefined): string {
  if (!at || Number.isNaN(Date.parse(at))) return "";
  const t = new Date(at);
  return new Date(t.getTime() - t.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** Asks for the name of what can't be brought back. The form isn't sent with another text. */
export function TypedName({ name }: { name: string }) {
  return (
    <label>
      <span>Type <strong>{name}</strong> to confirm</span>
      <input required pattern={name} title={name} autocomplete="off" spellcheck={false} />
    </label>
  );
}
