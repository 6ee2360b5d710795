// JSON as it is written. JSON.parse would change large numbers, and lose doubled names.

/** A value in a JSON text: a scalar as it is written, or what is between brackets. */
export interface Value {
  /** The name of the member, as it is written with its quotes; "" in arrays and at the top. */
  name: string;
  /** The text of a scalar; "{" or "[" otherwise. */
  text: string;
  children: Value[];
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
export function parse(text: string): Value | undefined {
  if (!isJSON(text)) return undefined;
  const top: Value = { name: "", text: "[", children: [] };
  const open: Value[] = [top];
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
      const node: Value = { name, text: word, children: [] };
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

/** Returns the members of each row of a list of the API, as they are written. */
export function rowsOf(list: string): Record<string, string>[] {
  return elements(members(list).data ?? "[]").map(members);
}

/** Returns a JSON text for people: a string without its quotes, all else as it is written. */
export function plain(text: string): string {
  return text.startsWith('"') ? JSON.parse(text) as string : text;
}

/** Returns a JSON text as it is typed: a string without its quotes, unless that is JSON, too. */
export function typedOf(text: string): string {
  const bare = plain(text);
  return isJSON(bare) ? text : bare;
}

/** Returns the JSON of what was typed: of a text that isn't JSON, a string. */
export function jsonOf(typed: string): string {
  return isJSON(typed) ? typed : JSON.stringify(typed);
}

/** Returns how many brackets are open at most in a JSON text. */
export function depthOf(text: string): number {
  let depth = 0, most = 0;
  token.lastIndex = 0;
  for (let m = token.exec(text); m; m = token.exec(text)) {
    if (m[1] === "{" || m[1] === "[") most = Math.max(most, ++depth);
    if (m[1] === "}" || m[1] === "]") depth--;
  }
  return most;
}

/** Returns a JSON text with a line for each value; a text that isn't JSON as it is. */
export function indented(text: string): string {
  const top = parse(text);
  return top ? lines(top, "").join("\n") : text;
}

function lines({ name, text, children }: Value, indent: string): string[] {
  const begin = `${indent}${name && `${name}: `}${text}`;
  if (text !== "{" && text !== "[") return [begin];
  const end = text === "{" ? "}" : "]";
  if (children.length === 0) return [begin + end];
  const last = children.length - 1;
  const inner = children.flatMap((c, i) => {
    const of = lines(c, `${indent}  `);
    return i < last ? [...of.slice(0, -1), `${of[of.length - 1]},`] : of;
  });
  return [begin, ...inner, indent + end];
}
