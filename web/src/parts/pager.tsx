import { useLocation } from "preact-iso";

/** Returns the URL of this page with some parameters changed; "" removes one. */
export function useQuery(): [Record<string, string>, (changes: Record<string, string>) => string] {
  const { path, query } = useLocation();
  const link = (changes: Record<string, string>) => {
    const all = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) {
      if (value) all.set(name, value);
      else all.delete(name);
    }
    return all.size ? `${path}?${all}` : path;
  };
  return [query, link];
}

/** Links to the first and the next page of a list, whose cursor is in the URL. */
export function Pager({ next }: { next: string | undefined }) {
  const [query, link] = useQuery();
  if (!next && !query.cursor) return null;
  return (
    <nav class="pager" aria-label="Pages of the list">
      {query.cursor && <a href={link({ cursor: "" })}>First page</a>}
      {next && <a href={link({ cursor: next })} rel="next">Next page</a>}
    </nav>
  );
}
