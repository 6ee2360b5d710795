import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import { register, type Registration } from "./register.js";
import { headersOf, type Worker } from "./worker.js";

/**
 * Returns a listener that serves a worker in a Node server: createServer(nodeHandler(worker)). No
 * parser may have read the body before.
 */
export function nodeHandler(worker: Worker): (req: IncomingMessage, res: ServerResponse) => void {
  return (req, res) => void serve(worker, req, res);
}

async function serve(worker: Worker, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const gone = new Promise<undefined>((resolve) => res.once("close", () => resolve(undefined)));
  const headers = new Headers();
  for (const [name, values] of Object.entries(req.headersDistinct)) {
    for (const value of values ?? []) headers.append(name, value);
  }
  const receipt = await worker.receive({ method: req.method ?? "", headers, body: req });
  const answer = await Promise.race([receipt.answer, gone]);
  if (!answer || res.destroyed) return receipt.end(false);
  const { socket } = req; // finish also fires when the write has failed
  const sent = new Promise<boolean>((resolve) =>
    res.once("finish", () => resolve(!socket.destroyed && !socket.errored)),
  );
  res.writeHead(answer.status, {
    ...headersOf(answer),
    "Content-Length": Buffer.byteLength(answer.body),
  });
  res.end(answer.body);
  receipt.end((await Promise.race([sent, gone])) === true);
}

/** Options of listen. */
export interface ListenOptions {
  port: number;
  /** Default 127.0.0.1. */
  host?: string;
  /** Registers the handlers once the server listens. */
  registration?: Registration;
}

/** A worker that is served. */
export interface Listening {
  readonly server: Server;
  /** Its address, such as http://127.0.0.1:9000. */
  readonly url: string;
  /**
   * Refuses new deliveries, waits up to graceMs for those in flight (see Worker.close), and ends
   * the server.
   */
  close(graceMs?: number): Promise<void>;
}

/**
 * Serves a worker by a server of its own, under any path. Resolves once it listens and, if
 * requested, is registered. It speaks plain HTTP/1.1: put TLS in front of it, or use nodeHandler in
 * a server of your own.
 */
export async function listen(worker: Worker, options: ListenOptions): Promise<Listening> {
  const server = createServer(
    { requestTimeout: 30_000, headersTimeout: 5000, keepAliveTimeout: 120_000 },
    nodeHandler(worker),
  );
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(options.port, options.host ?? "127.0.0.1", resolve);
  });
  const { address, port, family } = server.address() as AddressInfo;
  const close = async (graceMs?: number) => {
    const ended = new Promise((resolve) => server.close(resolve));
    try {
      await worker.close(graceMs);
    } finally {
      server.closeIdleConnections();
      const stop = setTimeout(() => server.closeAllConnections(), 1000);
      await ended;
      clearTimeout(stop);
    }
  };
  if (options.registration) {
    try {
      await register(worker, options.registration);
    } catch (err) {
      await close(0).catch(() => {}); // throw err, not the error of close
      throw err;
    }
  }
  return { server, url: `http://${family === "IPv6" ? `[${address}]` : address}:${port}`, close };
}
