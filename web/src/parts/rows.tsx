import type { ComponentChildren } from "preact";
import { useLocation } from "preact-iso";

interface RowsProps {
  /** What the table lists, for screen readers. */
  label: string;
  /** The names of the columns; in an object, that of a column of numbers. */
  columns: (string | { n: string })[];
  /** In a narrow window each row is a card. Its cells have data-label. */
  cards?: boolean;
  children: ComponentChildren;
}

/** A table of Rows that are links. */
export function Rows({ label, columns, cards = false, children }: RowsProps) {
  return (
    <div class="scroll">
      <table class={cards ? "rows cards" : "rows"}>
        <Head label={label} columns={columns} />
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

/** A table without links, that the keyboard can scroll. */
export function Table({ label, columns, cards, children }: RowsProps) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table class={cards ? "cards" : ""}>
        <Head label={label} columns={columns} />
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function Head({ label, columns }: Omit<RowsProps, "children" | "cards">) {
  return (
    <>
      <caption class="hidden">{label}</caption>
      <thead>
        <tr>
          {columns.map((c) => typeof c === "string"
            ? <th key={c} scope="col">{c}</th>
            : <th key={c.n} scope="col" class="n">{c.n}</th>)}
        </tr>
      </thead>
    </>
  );
}

interface RowProps {
  href: string;
  name: string;
  /** A cell before the link, such as one with a box to tick. */
  before?: ComponentChildren;
  children: ComponentChildren;
}

/** A row that leads to a page. */
export function Row({ href, name, before, children }: RowProps) {
  const { route } = useLocation();
  return (
    <tr onClick={(e) => {
      if (!(e.target as HTMLElement).closest("a, button, dialog, label")) route(href);
    }}>
      {before}
      <th scope="row"><a data-row href={href}>{name}</a></th>
      {children}
    </tr>
  );
}
