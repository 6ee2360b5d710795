import type { ComponentType } from "preact";
import type { Scope } from "./session.ts";

/** A page of the console, with its path below /console. */
export interface Page {
  path: string;
  title: string; // in the menu; "": it isn't there
  show: ComponentType;
  scope?: Scope; // that it needs: without it, it isn't in the menu and says so
}
