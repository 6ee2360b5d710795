/**
 * Submits tasks to asyncflow (Client) and serves its deliveries (Worker), in any JavaScript runtime
 * with fetch and WebCrypto. asyncflow/node serves a Worker by Node's own HTTP server.
 */
export { Client, type CountParams, type ListParams } from "./client.js";
export { etagOf, type CallOptions, type ChangeOptions, type ClientOptions } from "./call.js";
export type { SubmitResult } from "./batch.js";
export type { TaskEvent } from "./watch.js";
export { AsyncflowError, ConnectionError, ProblemError, SubmitManyError } from "./errors.js";
export { Worker, type WorkerOptions } from "./worker.js";
export type { BatchResult, BatchWork, HandlerOptions, Work, WorkerTask } from "./handler.js";
export type { LogLine } from "./run.js";
export { AbortedError, Fail, finish, later, next, Retry, Snooze, spawn, Step } from "./outcome.js";
export { Reporter, type Callback, type ReporterOptions } from "./reporter.js";
export type { Joined } from "./results.js";
export { claim, type Claims } from "./claim.js";
export type { ClaimOptions, ClaimRequest } from "./client.js";
export type { Delivery, FanOut } from "./delivery.js";
export { register, type Registration } from "./register.js";
export * from "./types.js";
