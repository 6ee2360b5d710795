import { render } from "preact";
import { App } from "./app.tsx";
import "uplot/dist/uPlot.min.css";
import "./console.css";
import { loadSession } from "./session.ts";

void loadSession();
render(<App />, document.getElementById("app") as HTMLElement);
