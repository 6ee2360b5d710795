import type { ComponentChildren } from "preact";
import { type Signal, useSignal } from "@preact/signals";
import { useLocation } from "preact-iso";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useQuery } from "./pager.tsx";

/** Returns what changes the filter in the URL. The list begins again; "" removes a filter. */
export function useFilter(): (changes: Record<string, string>) => void {
  const { route } = useLocation();
  const [, link] = useQuery();
  return (changes) => {
    const to = link({ cursor: "", reverse: "", ...changes });
    if (to !== link({})) route(to); // Enter in a field may set it, and then send the form
  };
}

interface FilterFormProps {
  /** Called with what stands in the Search fields, by their names. */
  search: (typed: Record<string, string>) => void | Promise<void>;
  /** Whether a Search field has another text than the one that counts. */
  unsent?: Signal<boolean>;
  /** Refers to the form, for typedIn. */
  form?: { current: HTMLFormElement | null };
  children: ComponentChildren;
  /** Further fields, below. */
  more?: ComponentChildren;
}

/** Returns the texts of a form's Search fields, by their names; nothing if one can't count. */
export function typedIn(form: HTMLFormElement | null): Record<string, string> {
  if (!form?.checkValidity()) return {};
  return Object.fromEntries([...form.querySelectorAll<HTMLInputElement>("input[type=search]")]
    .map((field) => [field.name, field.value.trim()]));
}

/** The form of a filter. Its Search fields count once it is sent. */
export function FilterForm({ search, unsent, form: given, children, more }: FilterFormProps) {
  const own = useRef<HTMLFormElement | null>(null);
  const form = given ?? own;
  const compare = () => {
    const fields = form.current?.querySelectorAll<HTMLInputElement>("input[type=search]") ?? [];
    if (unsent) unsent.value = [...fields].some((f) => f.value.trim() !== f.defaultValue);
  };
  useLayoutEffect(compare); // a field begins anew when the text that counts changes
  const send = (e: SubmitEvent) => {
    e.preventDefault();
    const fields = [...new FormData(e.currentTarget as HTMLFormElement)];
    void search(Object.fromEntries(fields.map(([name, text]) => [name, String(text).trim()])));
  };
  return (
    <form class="filters" role="search" ref={form} onInput={compare} onSubmit={send}>
      {children}
      <button type="submit">Search</button>
      {more}
    </form>
  );
}

interface FoldedProps {
  title?: string;
  /** What is set, by name. */
  filter?: object;
  children: ComponentChildren;
}

/** Filters, or something else with a title, that are folded in a narrow window. */
export function Folded({ title = "Filters", filter = {}, children }: FoldedProps) {
  const count = Object.entries(filter)
    .filter(([name, value]) => value && name !== "cursor" && name !== "reverse").length;
  return (
    <details class="folded" open={wide() || undefined}>
      <summary>{title}{count > 0 && ` (${count})`}</summary>
      {children}
    </details>
  );
}

/** Reports whether the window has room for the fields beside the list. */
const wide = () => matchMedia("(min-width: 40rem)").matches;

/** Further fields of a filter. They are folded as long as none of them is set. */
export function MoreFilters({ set, children }: { set: number; children: ComponentChildren }) {
  return (
    <details class="further" open={set > 0 || undefined}
      onInvalidCapture={(e) => (e.currentTarget.open = true)}>
      <summary>More filters{set > 0 && ` (${set})`}</summary>
      <div class="filters">{children}</div>
    </details>
  );
}

interface SearchProps {
  label: string;
  name: string;
  value: string | undefined;
  most: number; // characters
  first?: boolean; // the key / goes there
  pattern?: string; // of what may be typed
  hint?: string; // says what may be typed
  /** Returns texts to choose from. It is asked when somebody comes to the field. */
  suggest?: () => Promise<string[]>;
}

/** A text to search for. */
export function Search(
  { label, name, value, most, first = false, pattern, hint, suggest }: SearchProps,
) {
  const options = useSignal<string[]>([]);
  return (
    <label class="wide">
      {label}
      <input type="search" name={name} data-search={first ? "" : undefined} maxLength={most}
        key={value} defaultValue={value} pattern={pattern} title={hint} placeholder={hint}
        list={suggest && `known-${name}`}
        onFocus={suggest && (() => void suggest().then((all) => {
          options.value = [...new Set(all)].sort();
        }, () => {}))} />
      {suggest && (
        <datalist id={`known-${name}`}>
          {options.value.map((o) => <option key={o} value={o} />)}
        </datalist>
      )}
    </label>
  );
}
