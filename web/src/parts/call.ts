import { type Signal, useSignal } from "@preact/signals";
import { CallError } from "../api.ts";

/** What a button or a form has sent. */
export interface Call {
  /** While it is under way, the button or form is disabled. */
  busy: Signal<boolean>;
  error: Signal<CallError | undefined>;
  /** Does something, unless something is under way. Returns whether it has succeeded. */
  send: (work: () => Promise<unknown>) => Promise<boolean>;
}

/** Has a button or a form send one thing at a time, whatever is clicked meanwhile. */
export function useCall(): Call {
  const busy = useSignal(false);
  const error = useSignal<CallError | undefined>(undefined);
  const send = async (work: () => Promise<unknown>) => {
    if (busy.peek()) return false; // a second click may come before the button is disabled
    busy.value = true;
    try {
      await work();
      error.value = undefined;
    } catch (e) {
      error.value = e instanceof CallError ? e : new CallError(0, { detail: String(e) });
    }
    busy.value = false;
    return error.peek() === undefined;
  };
  return { busy, error, send };
}
