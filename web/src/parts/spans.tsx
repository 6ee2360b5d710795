import type { ComponentChildren } from "preact";
import { useQuery } from "./pager.tsx";

const minute = 60_000;

export interface Span { name: string; ms: number }

/** The times that may be looked at, before now. */
const spans: Record<string, Span> = {
  "15m": { name: "15 minutes", ms: 15 * minute },
  "1h": { name: "hour", ms: 60 * minute },
  "24h": { name: "24 hours", ms: 24 * 60 * minute },
  "7d": { name: "7 days", ms: 7 * 24 * 60 * minute },
};

/** Returns the span of a name in the URL, or else the one of another name. */
export const spanOf = (name: string, other: keyof typeof spans): Span =>
  spans[name] ?? spans[other]!;

interface SpansProps {
  span: Span;
  most?: keyof typeof spans;
  children?: ComponentChildren;
}

/** Links to the times that may be looked at, and others beside them. */
export function Spans({ span, most = "7d", children }: SpansProps) {
  const [, link] = useQuery();
  return (
    <nav class="choices" aria-label="Time">
      {Object.entries(spans).map(([key, s]) => s.ms <= spans[most]!.ms && (
        <a key={key} href={link({ last: key })} aria-current={s === span ? "true" : undefined}>
          Last {s.name}
        </a>
      ))}
      {children}
    </nav>
  );
}
