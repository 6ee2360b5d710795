import { render } from "preact";
import { App } from "./app.tsx";
import "./console.css";
import { loadSession } from "./session.ts";

/** Reads the session until the server can tell. */
function begin(): void {
  loadSession().catch(() => setTimeout(begin, 3000));
}

begin();
render(<App />, document.getElementById("app") as HTMLElement);
