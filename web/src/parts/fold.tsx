import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";

interface FoldProps {
  /** What is below, for screen readers. */
  name: string;
  label: ComponentChildren;
  /** Called while it is open only: what is hidden isn't asked for. */
  children: () => ComponentChildren;
}

/** A branch of a tree, closed at first. Its label may have links, unlike a summary. */
export function Fold({ name, label, children }: FoldProps) {
  const open = useSignal(false);
  return (
    <>
      <button type="button" class="fold" aria-expanded={open.value} aria-label={name}
        onClick={() => (open.value = !open.value)}>{open.value ? "▾" : "▸"}</button>
      {" "}{label}
      {open.value && children()}
    </>
  );
}
