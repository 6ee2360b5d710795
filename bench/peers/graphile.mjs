// Works off jobs with graphile-worker, to be measured beside asyncflow: no-op jobs, or with one
// POST each. It prints "ready" when all is set up, begins at a line of its input, prints the result
// in a line of JSON, and ends with its input. Two processes work; this one inserts.
import {fork} from "node:child_process"
import {once} from "node:events"
import {createInterface} from "node:readline"
import {fileURLToPath} from "node:url"
import {parseArgs} from "node:util"
import {Logger, makeWorkerUtils, run} from "graphile-worker"
import pg from "pg"
import {Agent, request} from "undici"

const processes = 2
const concurrency = 200 // jobs of a process at once
const inserters = 4
const batch = 100 // jobs of an insert
const warmUp = 2000 // jobs
const queue = 2000 // jobs that a process takes at once

const {values: options} = parseArgs({
  options: {
    database: {type: "string"},
    jobs: {type: "string", default: "60000"},
    url: {type: "string", default: ""},
  },
})
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error("graphile-worker:", message)
})

// work is one of the processes that work. It sends the other one the time in ms that each job took
// from insert to done.
async function work() {
  let took = []
  const dispatcher = new Agent({connections: concurrency})
  const call = async (payload, helpers) => {
    if (options.url !== "") {
      const {statusCode, body} = await request(options.url, {
        dispatcher, method: "POST",
        headers: {"content-type": "application/json"}, body: JSON.stringify(payload),
      })
      await body.dump()
      if (statusCode !== 200) throw new Error(`HTTP ${statusCode}`)
    }
    took.push(Date.now() - helpers.job.created_at.getTime())
  }
  await run({
    connectionString: options.database,
    logger,
    taskList: {call},
    noHandleSignals: true,
    preset: {
      worker: {
        concurrentJobs: concurrency, pollInterval: 20, maxPoolSize: 10,
        localQueue: {size: queue}, completeJobBatchDelay: 0, failJobBatchDelay: 0,
      },
    },
  })
  process.send("ready")
  setInterval(() => {
    if (took.length > 0) process.send(took)
    took = []
  }, 5)
  process.on("disconnect", () => process.exit())
}

// insertAll inserts jobs, in batches over a few connections.
async function insertAll(utils, jobs) {
  const payload = {pad: "x".repeat(190)}
  let taken = 0
  const insert = async () => {
    while (taken < jobs) {
      const n = Math.min(batch, jobs - taken)
      taken += n
      await utils.addJobs(Array.from({length: n}, () => ({identifier: "call", payload})))
    }
  }
  await Promise.all(Array.from({length: inserters}, insert))
}

// measure inserts jobs and waits until none is left.
async function measure(utils, pool, workers, jobs) {
  const took = []
  let finish
  const done = new Promise((resolve) => (finish = resolve))
  const collect = (some) => {
    took.push(...some)
    if (took.length >= jobs) finish()
  }
  for (const w of workers) w.on("message", collect)
  const start = performance.now()
  await insertAll(utils, jobs)
  await done
  const unfinished = "SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS left"
  for (let left = true; left;) {
    left = (await pool.query(unfinished)).rows[0].left
  }
  const seconds = (performance.now() - start) / 1000
  for (const w of workers) w.off("message", collect)
  took.sort((a, b) => a - b)
  const percentile = (p) => took[Math.min(Math.ceil((p / 100) * took.length), took.length) - 1]
  return {seconds, p50_ms: percentile(50), p99_ms: percentile(99)}
}

async function lead() {
  const pool = new pg.Pool({connectionString: options.database, max: inserters})
  const complain = (err) => console.error("graphile-worker:", err.message)
  pool.on("error", complain)
  pool.on("connect", (client) => client.on("error", complain))
  const utils = await makeWorkerUtils({pgPool: pool, logger})
  await utils.migrate()
  await pool.query("TRUNCATE graphile_worker._private_jobs")
  const workers = []
  for (let i = 0; i < processes; i++) {
    const w = fork(fileURLToPath(import.meta.url), process.argv.slice(2), {
      env: {...process.env, BENCH_ROLE: "worker"}, stdio: ["ignore", "inherit", "inherit", "ipc"],
    })
    w.on("exit", (code) => code && process.exit(code))
    await once(w, "message")
    workers.push(w)
  }
  await measure(utils, pool, workers, warmUp)
  const lines = createInterface({input: process.stdin})
  const ended = once(lines, "close")
  console.log("ready")
  await once(lines, "line")
  console.log(JSON.stringify(await measure(utils, pool, workers, Number(options.jobs))))
  await ended
  for (const w of workers) w.disconnect()
  await utils.release()
  await pool.end()
}

await (process.env.BENCH_ROLE === "worker" ? work() : lead())
