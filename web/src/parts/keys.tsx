import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { useLocation } from "preact-iso";
import { isOperator, may } from "../session.ts";
import { Dialog } from "./dialog.tsx";

const help = (): [string, string][] => [
  ["j", "next row"],
  ["k", "previous row"],
  ["Enter", "open the row"],
  ["/", `${mayFind() ? "find a task, or " : ""}go to the search of the page, if it has one`],
  ["?", "show these keys"],
];

/** Reports whether the session has a list of tasks to search. */
const mayFind = () => !isOperator() && may("read");

/** The keyboard on all pages. Rows are links with data-row; a search has data-search. */
export function Keys() {
  const open = useSignal(false);
  const { route } = useLocation();
  useLayoutEffect(() => { // so that the page hears keys as soon as it shows anything
    const press = (e: KeyboardEvent) => {
      const target = e.target as HTMLElement;
      if (e.ctrlKey || e.metaKey || e.altKey || target.closest("input, textarea, select, dialog")) {
        return;
      }
      if (e.key === "?") open.value = true;
      else if (e.key === "/") search(mayFind() ? () => route("/console/tasks") : undefined);
      else if (e.key === "j") moveRow(1);
      else if (e.key === "k") moveRow(-1);
      else return;
      e.preventDefault();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);
  if (!open.value) return null;
  return (
    <Dialog title="Keys" close={() => (open.value = false)}>
      <dl class="facts">
        {help().map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}
      </dl>
    </Dialog>
  );
}

/** Goes to the search of the page, or else to another page, if one is given, and its search. */
function search(elsewhere?: () => void): void {
  if (focused() || !elsewhere) return;
  elsewhere();
  const wait = (frames: number) => {
    if (!focused() && frames > 0) requestAnimationFrame(() => wait(frames - 1));
  };
  wait(300);
}

function focused(): boolean {
  const field = document.querySelector<HTMLElement>("[data-search]");
  field?.focus();
  return !!field;
}

function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  const last = rows.length - 1;
  const to = at < 0 ? (by > 0 ? 0 : last) : Math.min(Math.max(at + by, 0), last);
  rows[to]?.focus();
}
