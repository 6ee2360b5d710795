import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { may, type Scope } from "../session.ts";
import { useCall } from "./call.ts";
import { Dialog } from "./dialog.tsx";
import { Refused } from "./field.tsx";
import { Problem } from "./problem.tsx";
import { toast } from "./toast.tsx";

interface ActionProps {
  label: string;
  /** What is on the button, if that isn't the label. */
  face?: ComponentChildren;
  /** The scope that the call needs: without it there is no button. */
  scope: Scope;
  /** Returns what to say when it is done. */
  run: () => Promise<string | void>;
  /** What to ask before; nothing: it is done at once. */
  ask?: ComponentChildren;
  /** Called when the button is pressed, before the question is shown. */
  begin?: () => void;
  danger?: boolean;
  disabled?: boolean;
  /** There is no button, but a question that is open stays. */
  hidden?: boolean;
  /** False as long as the question isn't complete: it can't be answered yet. */
  ready?: boolean;
}

/** A button that changes something, after a question if there is one. */
export function Action(props: ActionProps) {
  const open = useSignal(false);
  const { busy, error, send } = useCall();
  if (!may(props.scope)) return null;
  const close = () => {
    open.value = false;
    error.value = undefined;
  };
  const run = () => send(async () => {
    const said = await props.run();
    close();
    toast(said || `${props.label}: done`);
  });
  const press = () => {
    props.begin?.();
    if (props.ask) open.value = true;
    else void run();
  };
  return (
    <>
      {!props.hidden && (
        <button type="button" class={props.danger ? "danger" : ""}
          disabled={props.disabled || busy.value} onClick={press}>
          {props.face ?? props.label}
        </button>
      )}
      {(open.value || error.value) && (
        <Dialog title={props.label} close={close}>
          <form onSubmit={(e) => { e.preventDefault(); void run(); }}>
            <Refused.Provider value={error.value?.problem.errors ?? []}>
              {props.ask}
            </Refused.Provider>
            <Problem error={error.value} />
            <p class="buttons">
              <button type="button" onClick={close}>Back</button>
              <button type="submit" disabled={busy.value || props.ready === false}
                class={props.danger ? "danger" : "primary"}>{props.label}</button>
            </p>
          </form>
        </Dialog>
      )}
    </>
  );
}
