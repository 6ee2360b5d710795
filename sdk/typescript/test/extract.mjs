// Writes the programs of docs/typescript.md to test/docs, to be compiled and run with the tests. A
// program is a block that begins with a comment of its file's name.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const here = new URL(".", import.meta.url);
const page = readFileSync(new URL("../../../docs/typescript.md", here), "utf8");
rmSync(new URL("docs", here), { recursive: true, force: true });
mkdirSync(new URL("docs", here));
for (const [, text, name] of page.matchAll(/```ts\n(\/\/ ([a-z-]+\.ts)\n.*?)```/gs)) writeFileSync(new URL(`docs/${name}`, here), text);
