// Writes the programs of docs/typescript.md and of the package's README.md to test/docs, where the
// tests compile and run them. In docs/typescript.md a program is a block that begins with a comment
// of its file's name. README.md has one program.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";

const here = new URL(".", import.meta.url);
const page = readFileSync(new URL("../../../docs/typescript.md", here), "utf8");
rmSync(new URL("docs", here), { recursive: true, force: true });
mkdirSync(new URL("docs", here));
const program = (name, text) => writeFileSync(new URL(`docs/${name}`, here), text);
for (const [, text, name] of page.matchAll(/```ts\n(\/\/ ([a-z-]+\.ts)\n.*?)```/gs))
  program(name, text);
const [, readme] = readFileSync(new URL("../README.md", here), "utf8").match(/```ts\n(.*?)```/s);
program("readme.ts", readme);
