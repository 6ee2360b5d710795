import type { Signal } from "@preact/signals";

interface FieldProps {
  label: string;
  value: Signal<string>;
  type?: "text" | "number" | "url";
  required?: boolean;
  min?: string;
  max?: string;
  step?: string;
  maxLength?: number;
  pattern?: string;
  placeholder?: string;
}

/** An input with its label. */
export function Field({ label, value, ...rest }: FieldProps) {
  return (
    <label>
      {label}
      <input {...(rest as object)} value={value.value}
        onInput={(e) => (value.value = e.currentTarget.value)} />
    </label>
  );
}

interface SelectProps {
  label: string;
  value: string | undefined;
  options: readonly string[];
  /** There is also an option for no value. */
  any?: boolean;
  change: (value: string) => void;
}

/** A choice with its label. A value that isn't among the options is one of them, too. */
export function Select({ label, value = "", options, any = false, change }: SelectProps) {
  const all = value && !options.includes(value) ? [value, ...options] : options;
  return (
    <label>
      {label}
      <select value={value} onChange={(e) => change(e.currentTarget.value)}>
        {any && <option value="">any</option>}
        {all.map((o) => <option key={o} value={o}>{o}</option>)}
      </select>
    </label>
  );
}

interface InstantProps {
  label: string;
  /** In the form of the API, or none. */
  value: string | undefined;
  change: (value: string) => void;
}

/** A time, in the time zone of the viewer. */
export function Instant({ label, value, change }: InstantProps) {
  return (
    <label>
      {label}
      <input type="datetime-local" value={local(value)} onBlur={(e) => {
        const text = e.currentTarget.value;
        if (text !== local(value)) change(text && new Date(text).toISOString());
      }} />
    </label>
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
