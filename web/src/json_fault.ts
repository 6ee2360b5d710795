import { isJSON } from "./json.ts";

/** Says where a text stops being JSON; "": it is JSON. */
export function faultOf(text: string): string {
  if (isJSON(text)) return "";
  if (text.trim() === "") return "it is empty";
  const at = faultAt(text);
  if (at >= text.trimEnd().length) return "it ends too early";
  const lines = text.slice(0, at).split("\n");
  const char = String.fromCodePoint(text.codePointAt(at) ?? 0);
  const what = char === "\n" || char === "\r" ? "the end of the line" : char;
  return `line ${lines.length}, column ${(lines.pop() ?? "").length + 1}, at ${what}`;
}

const space = /[ \t\n\r]*/y;
const scalar = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null/y;
// A string without its last quote.
const string = /"[^"\\\0-\x1f]*(?:\\(?:["\\/bfnrt]|u[\da-fA-F]{4})[^"\\\0-\x1f]*)*/y;

/** What may come next; first and firstName: or the end of what has just begun. */
type Next = "value" | "first" | "name" | "firstName" | "colon" | "comma";

/** Returns the offset at which a text stops being JSON: the engines say it each in its own way. */
function faultAt(text: string): number {
  const ends: string[] = []; // of what is open
  let at = 0;
  let next = "value" as Next;
  const take = (pattern: RegExp): boolean => {
    pattern.lastIndex = at;
    if (!pattern.test(text)) return false;
    at = pattern.lastIndex;
    return true;
  };
  const takeString = () => take(string) && text[at] === '"' && ++at > 0;
  const takeValue = (char: string) => {
    next = "comma";
    if (char === '"') return takeString();
    if (char !== "{" && char !== "[") return take(scalar);
    ends.push(char === "{" ? "}" : "]");
    next = char === "{" ? "firstName" : "first";
    return ++at > 0;
  };
  for (;;) {
    take(space);
    const char = text[at], end = ends[ends.length - 1];
    if (char === undefined) return at;
    if (char === end && (next === "first" || next === "firstName" || next === "comma")) {
      ends.pop();
      next = "comma";
      at++;
    } else if (next === "value" || next === "first") {
      if (!takeValue(char)) return at;
    } else if (next === "name" || next === "firstName") {
      if (!takeString()) return at;
      next = "colon";
    } else if (char === (next === "colon" ? ":" : ",") && end !== undefined) {
      next = next === "colon" || end === "]" ? "value" : "name";
      at++;
    } else {
      return at;
    }
  }
}
