import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { test, type TestContext } from "node:test";

import { Client, register, Reporter, Worker } from "asyncflow";
import { listen } from "asyncflow/node";

import { deferred, freePort } from "./setup.js";

// These tests start asyncflow with an existing database. The environment has the process's
// environment, one NAME=value a line, and a token.
const binary = process.env["ASYNCFLOW_BINARY"] ?? "";
const [settings, token] = [
  process.env["ASYNCFLOW_NODE_ENV"] ?? "",
  process.env["ASYNCFLOW_NODE_TOKEN"] ?? "",
];
const options = {
  skip:
    binary === "" || settings === ""
      ? "ASYNCFLOW_BINARY and ASYNCFLOW_NODE_ENV are not set"
      : false,
};

/** An asyncflow that is killed and started again, at the same address. */
class Server {
  private process: ChildProcess | undefined;

  private constructor(private readonly address: string) {}

  static async start(t: TestContext): Promise<Server> {
    const s = new Server(`127.0.0.1:${await freePort()}`);
    t.after(() => s.kill());
    await s.start();
    return s;
  }

  get client(): Client {
    return new Client(`http://${this.address}`, token);
  }

  /** Resolves once it is ready. */
  async start(): Promise<void> {
    const own = settings.split("\n").map((line) => line.split(/=(.*)/s).slice(0, 2));
    const env = { ...process.env, ...Object.fromEntries(own), ASYNCFLOW_LISTEN: this.address };
    const started = (this.process = spawn(binary, ["serve"], {
      env,
      stdio: ["ignore", "ignore", "pipe"],
    }));
    let said = "";
    const ready = deferred<boolean>();
    createInterface({ input: started.stderr }).on("line", (line) => {
      said += `${line}\n`;
      if (line.includes("asyncflow is ready")) ready.resolve(true);
    }).on("close", () => ready.resolve(false));
    assert.ok(await ready.promise, said);
  }

  async kill(): Promise<void> {
    const running = this.process;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    running.kill("SIGKILL");
    await once(running, "exit");
  }
}

/** The calls that a worker sends to asyncflow. */
class Wire {
  private readonly waiting: { call: string; resolve: () => void }[] = [];

  readonly fetch: typeof fetch = async (input, init) => {
    const verb = String(input).split("/").pop() ?? "";
    const response = await fetch(input, init).catch((err: unknown) => {
      this.told(`${verb} 0`);
      throw err;
    });
    this.told(`${verb} ${response.status}`);
    return response;
  };

  /** Resolves when the next call gets an answer with that status; 0: the connection failed. */
  next(verb: string, status: number): Promise<void> {
    const { promise, resolve } = deferred();
    this.waiting.push({ call: `${verb} ${status}`, resolve });
    return promise;
  }

  private told(call: string): void {
    for (const w of this.waiting) if (w.call === call) w.resolve();
  }
}

let types = 0;

for (const [answer, answerWithinMs] of [
  ["before the answer", 20_000],
  ["after 202", -1],
] as const) {
  for (const end of ["while it is away", "when it is back"] as const) {
    test(`asyncflow is killed ${answer}; the work ends ${end}`, options, async (t) => {
      const server = await Server.start(t);
      const name = `restart${++types}`;
      // The lease outlasts the restart, however long that takes.
      await server.client.putTaskType(name, {
        stages: [{ name: "first", timeout: "10m", retry: { max_attempts: 3, interval: -0.1 } }],
      });
      const [wire, begun, go] = [new Wire(), deferred(), deferred()];
      let calls = 0;
      const reporter = new Reporter({ fetch: wire.fetch, retryMs: 10 });
      const worker = new Worker({ keys: [], log: () => {}, heartbeatMs: 50, reporter });
      worker.handle<number, number>(name, "first", async ({ context }) => {
        calls++;
        begun.resolve();
        await go.promise;
        return context + 1;
      }, { answerWithinMs });
      const served = await listen(worker, { port: 0 });
      // the work may be under way if the test has failed
      t.after(() => served.close(0).catch(() => {}));
      await register(worker, { client: server.client, url: served.url });
      const { id } = await server.client.submit({ type: name, context: 1 });
      await begun.promise;

      const unheard = wire.next("heartbeat", 0);
      await server.kill();
      await unheard;
      if (end === "while it is away") {
        const unreported = wire.next("complete", 0);
        go.resolve();
        await unreported;
      }
      const heard = wire.next("heartbeat", 200);
      await server.start();
      if (end === "when it is back") {
        await heard;
        go.resolve();
      }
      const task = await server.client.wait(id);
      assert.deepEqual([task.status, task.result], ["succeeded", 2]);
      assert.deepEqual((await server.client.attempts(id)).map((a) => a.outcome), ["done"]);
      assert.equal(calls, 1);
    });
  }
}
