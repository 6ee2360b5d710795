// JSON as it is written. JSON.parse would change large numbers, and lose doubled names.

/** A value in a JSON text: a scalar as it is written, or what is between brackets. */
export interface Node {
  /** The name of the member, as it is written with its quotes; "" in arrays and at the top. */
  name: string;
  /** The text of a scalar; "{" or "[" otherwise. */
  text: string;
  children: Node[];
}

const token = /\s*("[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]:,]|[^\s{}[\]:,"]+)/gy;

/** Reports whether a text is JSON. */
export function isJSON(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Returns the tree of a JSON text; undefined if it isn't one. */
export function parse(text: string): Node | undefined {
  if (!isJSON(text)) return undefined;
  const top: Node = { name: "", text: "[", children: [] };
  const open: Node[] = [top];
  let name = "", scalar = "";
  token.lastIndex = 0;
  for (let m = token.exec(text); m; m = token.exec(text)) {
    const word = m[1] as string;
    const into = open[open.length - 1];
    if (!into) return undefined;
    if (word === ":") {
      name = scalar;
      scalar = "";
      continue;
    }
    if (scalar) {
      into.children.push({ name, text: scalar, children: [] });
      name = scalar = "";
    }
    if (word === "{" || word === "[") {
      const node: Node = { name, text: word, children: [] };
      name = "";
      into.children.push(node);
      open.push(node);
    } else if (word === "}" || word === "]") {
      open.pop();
    } else if (word !== ",") {
      scalar = word;
    }
  }
  if (scalar) top.children.push({ name, text: scalar, children: [] });
  return open.length === 1 && top.children.length === 1 ? top.children[0] : undefined;
}

/** Returns the text of each member of an object, as it is written; {} if it isn't an object. */
export function members(text: string): Record<string, string> {
  const out: Record<string, string> = Object.create(null) as Record<string, string>;
  let depth = 0, begin = 0, before = "";
  let key: string | undefined;
  token.lastIndex = 0;
  for (let m = token.exec(text); m; m = token.exec(text)) {
    const word = m[1] as string;
    if (depth === 1 && word === ":") {
      key = JSON.parse(before) as string;
      begin = token.lastIndex;
    } else if (depth === 1 && (word === "," || word === "}") && key !== undefined) {
      out[key] = text.slice(begin, token.lastIndex - 1).trim();
      key = undefined;
    }
    if (word === "{" || word === "[") depth++;
    if (word === "}" || word === "]") depth--;
    before = word;
  }
  return out;
}

/** Returns the texts of the elements of an array, as they are written. */
export function elements(text: string): string[] {
  const out: string[] = [];
  let depth = 0, begin = 0;
  token.lastIndex = 0;
  for (let m = token.exec(text); m; m = token.exec(text)) {
    const word = m[1] as string;
    const end = token.lastIndex - 1;
    if (depth === 1 && (word === "," || word === "]")) {
      const one = text.slice(begin, end).trim();
      if (one) out.push(one);
      begin = token.lastIndex;
    }
    if (word === "{" || word === "[") {
      depth++;
      if (depth === 1) begin = token.lastIndex;
    }
    if (word === "}" || word === "]") depth--;
  }
  return out;
}
