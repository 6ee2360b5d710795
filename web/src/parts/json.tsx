import { useMemo, useState } from "preact/hooks";
import { bytes } from "../format.ts";
import { parse, type Value } from "../json.ts";
import { Copy } from "./copy.tsx";

/** The longest text that is shown as a tree, in characters: above, as it is. */
const longestTree = 200_000;

/** A tree with more nodes than this begins with its branches closed. */
const mostOpen = 2000;

/** A JSON text as it is stored, as a tree whose branches can be closed. */
export function Json({ label, text }: { label: string; text: string | undefined }) {
  const tree = useMemo(() => text !== undefined && <Tree text={text} />, [text]);
  if (text === undefined) return null;
  return (
    <details class="json" open>
      <summary>{label} <span class="quiet">{bytes(new Blob([text]).size)}</span></summary>
      <Copy text={text} of={label} />
      <div class="code" tabIndex={0} role="group" aria-label={label}>{tree}</div>
    </details>
  );
}

function Tree({ text }: { text: string }) {
  const tree = text.length <= longestTree ? parse(text) : undefined;
  if (!tree) return <pre>{text}</pre>;
  return <Branch node={tree} last top open={countTo(mostOpen, tree) < mostOpen} />;
}

/** Returns how many nodes a tree has, or a limit if it has more. */
function countTo(limit: number, node: Value): number {
  let n = 1;
  for (const child of node.children) {
    if (n >= limit) break;
    n += countTo(limit - n, child);
  }
  return n;
}

/** The most children of one branch that are shown. */
const mostChildren = 500;

interface BranchProps {
  node: Value;
  last: boolean; // no comma follows
  top?: boolean;
  open: boolean; // at first, as are its branches
}

function Branch({ node, last, top = false, open: first }: BranchProps) {
  const [open, setOpen] = useState(first || top);
  const name = node.name && <><span class="name">{node.name}</span>: </>;
  const comma = last ? "" : ",";
  if (node.text !== "{" && node.text !== "[") {
    return <div>{name}<span class={kind(node.text)}>{withLines(node.text)}</span>{comma}</div>;
  }
  const end = node.text === "{" ? "}" : "]";
  const n = node.children.length;
  if (n === 0) return <div>{name}{node.text}{end}{comma}</div>;
  return (
    <details open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
      <summary>{name}{node.text}<span class="quiet inner"> {n} {end}{comma}</span></summary>
      {open && (
        <>
          <div class="branch">
            {node.children.slice(0, mostChildren).map((c, i) => (
              <Branch key={i} node={c} last={i === n - 1} open={first} />
            ))}
            {n > mostChildren && (
              <div class="quiet">and {n - mostChildren} more: copy to see them</div>
            )}
          </div>
          <div>{end}{comma}</div>
        </>
      )}
    </details>
  );
}

/** Returns a string with line breaks, such as a stack trace, with a line for each of its lines. */
export function withLines(text: string): string {
  return text.replaceAll(/\\(r\\n|.)/g, (all, c: string) =>
    c === "n" || c === "r\\n" ? "\n" : c === "t" ? "\t" : all);
}

function kind(text: string): string {
  if (text.startsWith('"')) return "string";
  return /^[-0-9]/.test(text) ? "number" : "word";
}
