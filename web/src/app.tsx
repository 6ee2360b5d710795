import { signal } from "@preact/signals";
import { ErrorBoundary, LocationProvider, Route, Router } from "preact-iso";
import { Alerts } from "./alerts/alerts.tsx";
import { Audit, OperatorAudit } from "./audit/audit.tsx";
import { Endpoint } from "./endpoints/endpoint.tsx";
import { Endpoints } from "./endpoints/endpoints.tsx";
import { Failures } from "./failures/failures.tsx";
import { Governance, OperatorOverview } from "./governance/governance.tsx";
import { Layout } from "./layout.tsx";
import { LoggedIn, loggedInPage, Login } from "./login/login.tsx";
import { Operations } from "./operations/operations.tsx";
import { Overview } from "./overview/overview.tsx";
import type { Page } from "./page.ts";
import { Manual } from "./parts/manual.tsx";
import { Title } from "./parts/title.tsx";
import { Schedule } from "./schedules/schedule.tsx";
import { Schedules } from "./schedules/schedules.tsx";
import { expired, isOperator, may, session } from "./session.ts";
import { Task } from "./task/task.tsx";
import { Tasks } from "./tasks/tasks.tsx";
import { Tenant } from "./tenants/tenant.tsx";
import { Tenants } from "./tenants/tenants.tsx";
import { Type } from "./types/type.tsx";
import { Types } from "./types/types.tsx";
import { Workers } from "./workers/workers.tsx";

/** A page that everyone has who is logged in. */
const loggedIn: Page = { path: loggedInPage, title: "", show: LoggedIn };

const tenantPages: Page[] = [
  { path: "/console", title: "Overview", show: Overview, scope: "read" },
  { path: "/console/tasks", title: "Tasks", show: Tasks },
  { path: "/console/tasks/:id", title: "", show: Task, scope: "read" },
  { path: "/console/failures", title: "Failures", show: Failures, scope: "read" },
  { path: "/console/types", title: "Types", show: Types, scope: "read" },
  { path: "/console/types/:type", title: "", show: Type, scope: "read" },
  { path: "/console/endpoints", title: "Endpoints", show: Endpoints, scope: "read" },
  { path: "/console/endpoints/:id", title: "", show: Endpoint, scope: "read" },
  { path: "/console/workers", title: "Workers", show: Workers, scope: "read" },
  { path: "/console/schedules", title: "Schedules", show: Schedules, scope: "read" },
  { path: "/console/schedules/:name", title: "", show: Schedule, scope: "read" },
  { path: "/console/operations", title: "Operations", show: Operations, scope: "read" },
  { path: "/console/alerts", title: "Alerts", show: Alerts, scope: "manage" },
  { path: "/console/audit", title: "Audit", show: Audit, scope: "manage" },
  loggedIn,
];

const operatorPages: Page[] = [
  { path: "/console", title: "Overview", show: OperatorOverview },
  { path: "/console/tenants", title: "Tenants", show: Tenants },
  { path: "/console/tenants/:slug", title: "", show: Tenant },
  { path: "/console/governance", title: "Governance", show: Governance },
  { path: "/console/audit", title: "Audit", show: OperatorAudit },
  loggedIn,
];

/** Why a page could not be shown; "": it could. */
const broken = signal("");

export function App() {
  const s = session.value;
  if (s === undefined) {
    return (
      <p class="empty late">
        The server can't be reached yet. The page tries again every 3 s.{" "}
        <Manual page="console.md#when-the-server-is-slow-or-lost" text="Docs" />
      </p>
    );
  }
  if (!s.logged_in) return <Login />;
  const all = isOperator() ? operatorPages : tenantPages;
  const allowed = (p: Page) => !p.scope || may(p.scope);
  return (
    <LocationProvider scope="/console">
      <Layout key={s.id} pages={all.filter(allowed)}>
        <ErrorBoundary onError={(e) => (broken.value = String(e))}>
          {broken.value && <p role="alert" class="problem">This page has failed: {broken.value}</p>}
          <Router onRouteChange={() => (broken.value = "")}>
            {all.map((p) => allowed(p)
              ? <Route key={p.path} path={p.path} component={p.show} />
              : <Route key={p.path} path={p.path} component={NotAllowed} page={p} />)}
            <Route default component={Missing} />
          </Router>
        </ErrorBoundary>
      </Layout>
      {expired.value && <Login over />}
    </LocationProvider>
  );
}

function NotAllowed({ page }: { page: Page }) {
  return (
    <>
      <Title text={page.title || "No access"} doc="security.md#scopes" />
      <p>This page needs the scope <code>{page.scope}</code>.</p>
    </>
  );
}

function Missing() {
  return (
    <>
      <Title text="There is no such page" doc="console.md#pages" />
      <p>Choose a page in the menu, or go to the <a href="/console">overview</a>.</p>
    </>
  );
}
