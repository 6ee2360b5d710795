import { useSignal } from "@preact/signals";
import { answer, api, type Schemas } from "../api.ts";
import { count } from "../format.ts";
import { useLoad } from "../load.ts";
import { Fold } from "../parts/fold.tsx";
import { Problem } from "../parts/problem.tsx";
import { Status } from "../parts/status.tsx";
import { areLive, isFinal } from "./final.ts";
import { why } from "./why.tsx";

type Task = Schemas["Task"];
type Dependency = Schemas["DependencyState"];

const most = 20; // children or dependencies that a branch shows at first
const pause = 5000; // between two looks at what an open branch shows, in ms

/** The way from a task up to its parent, or to the task that started it or that it runs again. */
export function Parents({ task: t }: { task: Task }) {
  if (t.rerun_of)
    return <nav aria-label="Parents"><TaskLink id={t.rerun_of} /> › <span>run again</span></nav>;
  if (t.parent && !t.child_of)
    return <nav aria-label="Parents"><TaskLink id={t.parent} /> › <span>started by it</span></nav>;
  if (!t.child_of) return null;
  const { parent, index, count: all } = t.child_of;
  return (
    <nav aria-label="Parents">
      <TaskLink id={parent} /> › <span aria-current="page">child {index + 1} of {count(all)}</span>
    </nav>
  );
}

/**
 * The children of a task, the tasks that it started, and what it depends on, as trees whose
 * branches load when opened.
 */
export function Relatives({ task }: { task: Task }) {
  return (
    <>
      {task.children && (
        <section id="children">
          <h2>Children</h2>
          <ChildCounts task={task} children={task.children} />
          {task.tree && <TreeCounts tree={task.tree} />}
          <ul class="tree"><ChildBranch task={task} children={task.children} /></ul>
        </section>
      )}
      {task.spawned && (
        <section id="spawned">
          <h2>Started tasks</h2>
          <ul class="plain">
            {task.spawned.map((s) => (
              <li key={s.type}>
                <a href={`/console/tasks?type=${s.type}&parent=${task.id}`}>
                  {count(s.count)} {s.type}
                </a>
              </li>
            ))}
          </ul>
        </section>
      )}
      {task.dependencies && (
        <section id="dependencies">
          <h2>Depends on</h2>
          <Dependencies all={task.dependencies} />
        </section>
      )}
    </>
  );
}

const TaskLink = ({ id }: { id: string }) =>
  <a href={`/console/tasks/${encodeURIComponent(id)}`}>{id}</a>;

const states = ["waiting", "pending", "running", "succeeded", "failed", "cancelled"] as const;

interface ChildrenProps {
  task: Task;
  children: Schemas["Children"];
}

/** The types of the children: tasks that an attempt started have their own. */
const typesOf = (t: Task) => t.child_types ?? [t.type];

const childrenOf = (t: Task, type: string) => `/console/tasks?type=${type}&parent=${t.id}`;

/** How many children there are, with links to them if they have one type. */
function ChildCounts({ task, children }: ChildrenProps) {
  const [type, ...others] = typesOf(task);
  return (
    <p>
      {count(children.total)} in all:{" "}
      {states.filter((s) => children[s]).map((s) => {
        const part = <>{count(children[s])} <Status status={s} />{" "}</>;
        return type === undefined || others.length > 0
          ? <span key={s}>{part}</span>
          : <a key={s} href={`${childrenOf(task, type)}&status=${s}`}>{part}</a>;
      })}
    </p>
  );
}

const ends = ["succeeded", "failed", "cancelled"] as const;

/** The tasks of all levels below a task whose children have children. */
function TreeCounts({ tree: t }: { tree: Schemas["TreeCounts"] }) {
  const some = ends.filter((s) => t[s]);
  return (
    <p>
      With what is below them: {t.at_least && "at least "}{count(t.total)} tasks in{" "}
      {count(t.levels)} levels{some.length > 0 && ": "}
      {some.map((s) => <span key={s}>{count(t[s])} <Status status={s} />{" "}</span>)}
    </p>
  );
}

/** The children of a task, with a branch for each type if they have several. */
function ChildBranch({ task, children }: ChildrenProps) {
  const types = typesOf(task);
  const first = Math.min(children.total, most);
  const some = { task, first, live: areLive(children) };
  if (types.length > 1)
    return <>{types.map((type) => (
      <li key={type}>
        <Fold name={`Children of ${task.id} of the type ${type}`} label={`Children: ${type}`}>
          {() => <Children {...some} type={type} all={`All children: ${type}`} />}
        </Fold>
      </li>
    ))}</>;
  const label = first < children.total
    ? `The latest ${first} of ${count(children.total)} children`
    : children.total === 1 ? "1 child" : `${first} children`;
  return (
    <li>
      <Fold name={`Children of ${task.id}`} label={label}>
        {() => types.map((type) => (
          <Children {...some} key={type} type={type} all="All children" />
        ))}
      </Fold>
    </li>
  );
}

interface SomeChildren {
  task: Task;
  type: string;
  first: number;
  live: boolean;
  /** The text of the link to all of them. */
  all: string;
}

/** The first children of a type, those of the latest fan-out. */
function Children({ task, type, first, live, all }: SomeChildren) {
  const ended = useSignal(false); // as of the last load
  const some = useLoad(async (signal) => {
    const page = await answer(api.GET("/v1/tasks", { signal,
      params: { query: { type, parent: task.id, latest: true, limit: first || 1 } } }));
    ended.value = !live;
    return page;
  }, [task.id, type, first], live || !ended.value ? pause : 0);
  return (
    <ul class="tree">
      <Problem error={some.error} retry={some.reload} />
      {!some.data && !some.error && <li class="quiet">Loading…</li>}
      {some.data?.data.map((t) => (
        <li key={t.id}>
          {task.tree
            ? <Fold name={`Below ${t.id}`} label={<ChildLabel child={t} />}>
                {() => <Branches id={t.id} />}
              </Fold>
            : <ChildLabel child={t} />}
        </li>
      ))}
      {some.data?.next_cursor && <li>
        <a href={childrenOf(task, type)}>{all}</a>
      </li>}
    </ul>
  );
}

const ChildLabel = ({ child: t }: { child: Task }) => (
  <>
    <TaskLink id={t.id} /> <Status status={t.status} />
    <span class="quiet"> {t.stage} {why(t) || t.error}</span>
  </>
);

function Dependencies({ all }: { all: Dependency[] }) {
  const whole = useSignal(false);
  return (
    <ul class="tree">
      {(whole.value ? all : all.slice(0, most)).map((d, i) => (
        <li key={i}>
          {d.task
            ? <Fold name={`Below ${d.task}`} label={<DependencyLabel dependency={d} />}>
                {() => <Branches id={d.task as string} />}
              </Fold>
            : <DependencyLabel dependency={d} />}
        </li>
      ))}
      {all.length > most && !whole.value && (
        <li><button type="button" onClick={() => (whole.value = true)}>
          Show all {count(all.length)}
        </button></li>
      )}
    </ul>
  );
}

function DependencyLabel({ dependency: d }: { dependency: Dependency }) {
  return (
    <>
      {d.task ? <TaskLink id={d.task} /> : `${d.type} ${d.key}`}
      {" "}<Status status={d.status} />
      <span class="quiet"> on failure: {d.on_failure}</span>
    </>
  );
}

/** What is below a task in the tree: its children, and what it depends on itself. */
function Branches({ id }: { id: string }) {
  const ended = useSignal(false);
  const one = useLoad(async (signal) => {
    const task = await answer(api.GET("/v1/tasks/{id}", { signal, params: { path: { id } } }));
    ended.value = isFinal(task);
    return task;
  }, [id], ended.value ? 0 : pause);
  const t = one.data;
  return (
    <div class="branch">
      <Problem error={one.error} retry={one.reload} />
      {!t && !one.error && <p class="quiet">Loading…</p>}
      {t && (
        <>
          <p>
            <Status status={t.status} /> <span class="quiet">in {t.stage} {why(t) || t.error}</span>
          </p>
          {t.children && (
            <ul class="tree"><ChildBranch task={t} children={t.children} /></ul>
          )}
          {t.dependencies && <Dependencies all={t.dependencies} />}
          {!t.children && !t.dependencies && (
            <p class="quiet">It has no children, and depends on nothing.</p>
          )}
        </>
      )}
    </div>
  );
}
