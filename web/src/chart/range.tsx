import { useLocation } from "preact-iso";
import { useQuery } from "../parts/pager.tsx";
import { exactTime } from "./time.ts";
import { type Span, zoomed } from "./series.ts";

const hour = 3600;

/** The times before now that charts may show, in seconds. */
const ranges: Record<string, { name: string; seconds: number }> = {
  "1h": { name: "1 h", seconds: hour },
  "24h": { name: "24 h", seconds: 24 * hour },
  "7d": { name: "7 d", seconds: 7 * 24 * hour },
  "30d": { name: "30 d", seconds: 30 * 24 * hour },
};

/** The time that the charts of a page show, which is in its URL. */
export interface Range {
  key: string; // changes with the range
  last: string; // its name; "": it was zoomed into
  /** Returns its beginning and end now. */
  span: () => Span;
  zoom: (span: Span) => void;
  reset: () => void;
}

const iso = (at: number): string => new Date(at * 1000).toISOString();

/** Returns the time that the charts show: that of the URL, or else a range by its name. */
export function useRange(first: string): Range {
  const { route } = useLocation();
  const [{ last = first, from, until }, link] = useQuery();
  const known = Object.hasOwn(ranges, last) ? last : first;
  const { seconds } = ranges[known]!;
  const fixed: Span = [Date.parse(from ?? "") / 1000, Date.parse(until ?? "") / 1000];
  const now = () => Date.now() / 1000;
  const zoom = (s: Span) => {
    const [a, b] = zoomed(s, now());
    route(link({ from: iso(a), until: iso(b) }));
  };
  const reset = () => {
    if (from) route(link({ from: "", until: "" }));
  };
  return fixed[0] < fixed[1]
    ? { key: `${from} ${until}`, last: "", span: () => fixed, zoom, reset }
    : { key: known, last: known, span: () => [now() - seconds, now()], zoom, reset };
}

/** Links to the times that can be shown. */
export function Ranges({ range }: { range: Range }) {
  const [, link] = useQuery();
  const [from, until] = range.span();
  return (
    <nav class="choices" aria-label="Time of the charts">
      {Object.entries(ranges).map(([key, { name }]) => (
        <a key={key} href={link({ last: key, from: "", until: "" })}
          aria-current={key === range.last ? "true" : undefined}>{name}</a>
      ))}
      {!range.last && (
        <>
          <span>{exactTime(from)} to {exactTime(until)}</span>
          <button type="button" class="small" onClick={range.reset}>Reset</button>
        </>
      )}
    </nav>
  );
}
