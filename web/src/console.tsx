import { render } from "preact";
import { App } from "./app.tsx";
import "./console.css";
import { keepPlaces } from "./places.ts";
import { loadSession } from "./session.ts";

/** Reads the session until the server can tell. */
function begin(): void {
  loadSession().catch(() => setTimeout(begin, 3000));
}

keepPlaces();
begin();
render(<App />, document.getElementById("app") as HTMLElement);
