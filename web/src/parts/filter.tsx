import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";
import { useQuery } from "./pager.tsx";

/** Returns what changes the filter in the URL. The list begins again; "" removes a filter. */
export function useFilter(): (changes: Record<string, string>) => void {
  const { route } = useLocation();
  const [, link] = useQuery();
  return (changes) => route(link({ cursor: "", ...changes }));
}

interface FilterFormProps {
  /** Called with what stands in the Search fields, by their names. */
  search: (typed: Record<string, string>) => void;
  children: ComponentChildren;
}

/** The form of a filter. Its Search fields count once it is sent. */
export function FilterForm({ search, children }: FilterFormProps) {
  const send = (e: SubmitEvent) => {
    e.preventDefault();
    const fields = [...new FormData(e.currentTarget as HTMLFormElement)];
    search(Object.fromEntries(fields.map(([name, text]) => [name, String(text).trim()])));
  };
  return (
    <form class="filters" role="search" onSubmit={send}>
      {children}
      <button type="submit">Search</button>
    </form>
  );
}

interface SearchProps {
  label: string;
  name: string;
  value: string | undefined;
  most: number; // characters
  first?: boolean; // the key / goes there
}

/** A text to search for. */
export function Search({ label, name, value, most, first = false }: SearchProps) {
  return (
    <label class="wide">
      {label}
      <input type="search" name={name} data-search={first ? "" : undefined} maxLength={most}
        key={value} defaultValue={value} />
    </label>
  );
}
