import { effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { session } from "../session.ts";
import { Manual } from "./manual.tsx";

const page = signal("");

/** The heading that the title is of. */
let shown: object | undefined;

effect(() => {
  const { name, color } = session.value?.instance ?? {};
  document.title = [page.value, name, "asyncflow"].filter(Boolean).join(" – ");
  if (!color) return;
  document.documentElement.style.setProperty("--instance", color);
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (icon) icon.href = `data:image/svg+xml,${encodeURIComponent(square(color))}`;
});

/** Returns an icon in the colour of the instance. */
function square(color: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">` +
    `<rect width="32" height="32" rx="7" fill="${color}"/>` +
    `<path d="M7 10h11m0 0-4-4m4 4-4 4M25 22H14m0 0 4-4m-4 4 4 4" fill="none" stroke="#fff"` +
    ` stroke-width="3"/></svg>`;
}

interface TitleProps {
  text: string;
  /** The page of the documentation about the page, with the place in it: console.md#lists. */
  doc: string;
  /** What stands beside the heading. */
  children?: ComponentChildren;
}

/** The heading of a page, which is also the title of its tab, and a link to its documentation. */
export function Title({ text, doc, children }: TitleProps) {
  useEffect(() => {
    const mine = {};
    shown = mine;
    page.value = text;
    return () => {
      if (shown === mine) page.value = ""; // the next heading may already be there
    };
  }, [text]);
  return (
    <div class="title">
      <h1>{text} {children}</h1>
      <Manual page={doc} text="Docs" kind="docs" />
    </div>
  );
}
