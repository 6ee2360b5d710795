import type { Schemas } from "../api.ts";
import { Table } from "../parts/rows.tsx";
import { Time } from "../parts/time.tsx";

export type Mark = Schemas["HistoryMark"];

const kinds: Record<Mark["kind"], [letter: string, name: string]> = {
  deploy: ["D", "deploy"],
  pause: ["P", "pause"],
  alert: ["A", "alert"],
  breaker: ["B", "circuit breaker"],
};

/** Returns the letter that stands for a kind of mark in a chart. */
export const letterOf = (kind: Mark["kind"]): string => kinds[kind]?.[0] ?? "?";

interface MarksProps {
  marks: Mark[];
  cut: boolean | undefined;
  /** Whether each is of. */
  named: boolean;
}

/** What the letters on a chart mean, newest first. */
export function Marks({ marks, cut, named }: MarksProps) {
  if (marks.length === 0) return null;
  const counts = Object.entries(kinds).map(([kind, [letter, name]]) =>
    ({ letter, name, n: marks.filter((m) => m.kind === kind).length }));
  return (
    <details class="marks">
      <summary>
        Marks on the charts:{" "}
        {counts.filter((c) => c.n).map((c) => `${c.letter} ${c.name} (${c.n})`).join(", ")}
      </summary>
      {cut && <p class="quiet">There are more marks: older ones.</p>}
      <Table label="Marks" columns={["Mark", "What", "From", "Until"]}>
        {marks.toReversed().map((m) => (
          <tr key={m.at + m.kind + m.type + m.text}>
            <td>{letterOf(m.kind)} {kinds[m.kind]?.[1]}</td>
            <td>
              {named && m.type && <><a href={`/console/types/${m.type}`}>{m.type}</a>: </>}
              {m.text}
            </td>
            <td><Time at={m.at} /></td>
            <td>{m.kind === "deploy" ? "" : m.until ? <Time at={m.until} /> : "still so"}</td>
          </tr>
        ))}
      </Table>
    </details>
  );
}
