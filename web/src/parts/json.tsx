import { bytes } from "../format.ts";
import { type Node, parse } from "../json.ts";
import { Copy } from "./copy.tsx";

/** The longest text that is shown as a tree, in characters: above, as it is. */
const longestTree = 200_000;

/** A JSON text as it is stored, as a tree whose branches can be closed. */
export function Json({ label, text }: { label: string; text: string | undefined }) {
  if (text === undefined) return null;
  const tree = text.length <= longestTree ? parse(text) : undefined;
  return (
    <details class="json" open>
      <summary>{label} <span class="quiet">{bytes(new Blob([text]).size)}</span></summary>
      <Copy text={text} />
      <div class="code" tabIndex={0} role="group" aria-label={label}>
        {tree ? <Branch node={tree} last /> : <pre>{text}</pre>}
      </div>
    </details>
  );
}

/** The most children of one branch that are shown. */
const mostChildren = 500;

function Branch({ node, last }: { node: Node; last: boolean }) {
  const name = node.name && <><span class="name">{node.name}</span>: </>;
  const comma = last ? "" : ",";
  if (node.text !== "{" && node.text !== "[") {
    return <div>{name}<span class={kind(node.text)}>{node.text}</span>{comma}</div>;
  }
  const end = node.text === "{" ? "}" : "]";
  const n = node.children.length;
  if (n === 0) return <div>{name}{node.text}{end}{comma}</div>;
  return (
    <details open={n <= 100}>
      <summary>{name}{node.text}<span class="quiet inner"> {n} {end}{comma}</span></summary>
      <div class="branch">
        {node.children.slice(0, mostChildren).map((c, i) => (
          <Branch key={i} node={c} last={i === n - 1} />
        ))}
        {n > mostChildren && <div class="quiet">and {n - mostChildren} more: copy to see them</div>}
      </div>
      <div>{end}{comma}</div>
    </details>
  );
}

function kind(text: string): string {
  if (text.startsWith('"')) return "string";
  return /^[-0-9]/.test(text) ? "number" : "word";
}
