// `millrace worker`: one worker process for one handler and one endpoint, over HTTP. Workers are
// spawned often, so it imports no more than it runs.

import { randomBytes } from 'node:crypto';
import { flushCompileCache } from 'node:module';
import { hostname } from 'node:os';
import { systemClock } from '../base/clock.ts';
import type { Log } from '../base/log.ts';
import { createHttpLink } from '../transport/http-link.ts';
import { LinkError } from '../wire/worker-link.ts';
import { HandlerNotLoadedError } from '../worker/executor.ts';
import { MemoryOutbox } from '../worker/outbox.ts';
import type { WorkerFolder } from '../worker/state-folder.ts';
import { ThreadExecutor } from '../worker/thread-executor.ts';
import { createWorker, type Worker } from '../worker/worker.ts';
import { type Command, CommandError, EXIT } from './command.ts';
import { describeHost } from './devices.ts';
import { findHandlerFile } from './handler-files.ts';
import { healthOptions, prepareHealthPort } from './health-port.ts';
import { flag, integer, parseOptions, requiredText, text, UsageError } from './options.ts';
import { packageVersion } from './package-info.ts';
import { readPem } from './pem-file.ts';
import { forceOnSecond, listenForStop, type StopSignals } from './stop-signals.ts';
import { createTerminalLog, logLevelOption, showLogLines } from './terminal-log.ts';
import { leaveWithParent, tellParent } from './worker-messages.ts';

const MAX_MS = 604_800_000;

/** A thread is terminated after the grace, which takes up to a second; the rest is for a busy machine. */
const STUCK_AFTER_GRACE_MS = 5_000;

const options = {
  url: requiredText({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'of the platform, http or https',
  }),
  endpoint: requiredText({
    placeholder: 'ID',
    env: 'MILLRACE_ENDPOINT',
    help: 'endpoint whose jobs it takes',
  }),
  key: requiredText({
    placeholder: 'KEY',
    env: 'MILLRACE_KEY',
    help: 'worker key; better given by the variable, which other users cannot see',
  }),
  threads: integer({
    min: 1,
    max: 1_024,
    default: 1,
    env: 'MILLRACE_THREADS',
    help: 'threads, each with the handler loaded on its own',
  }),
  jobsPerThread: integer({
    min: 1,
    max: 1_000,
    env: 'MILLRACE_JOBS_PER_THREAD',
    help: "jobs at a time in one thread; without it the handler's config.concurrency, else 1",
  }),
  workerId: text({
    placeholder: 'ID',
    env: 'MILLRACE_WORKER_ID',
    help: 'stable over restarts; without it the host name and a random part',
  }),
  stateDir: text({
    placeholder: 'DIR',
    env: 'MILLRACE_STATE_DIR',
    help: 'keeps outcomes that are not delivered yet, and the worker id, for the next process; without it they end with this one',
  }),
  drainMs: integer({
    min: 0,
    max: MAX_MS,
    default: 30_000,
    placeholder: 'MS',
    env: 'MILLRACE_DRAIN_MS',
    help: 'on SIGTERM, how long running jobs may go on before they are stopped, ms',
  }),
  forceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 3_000,
    placeholder: 'MS',
    env: 'MILLRACE_FORCE_MS',
    help: 'after that, how long stopped jobs may take to end before they are given back, ms',
  }),
  graceMs: integer({
    min: 0,
    max: MAX_MS,
    default: 2_000,
    placeholder: 'MS',
    env: 'MILLRACE_GRACE_MS',
    help: 'how long a stopped handler may take to end before its thread is killed, ms',
  }),
  ...healthOptions,
  logLevel: logLevelOption('info'),
  ca: text({
    placeholder: 'FILE',
    section: 'advanced',
    env: 'MILLRACE_CA',
    help: "PEM of the authorities to trust for https, instead of the system's",
  }),
  incarnation: integer({
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    section: 'advanced',
    help: 'larger than that of any process that ran under this worker id; default the time, Unix ms',
  }),
  underDev: flag({
    section: 'advanced',
    help: 'started by `millrace dev`: tells it when ready, and leaves when it is gone',
  }),
};

export const workerCommand: Command = {
  name: 'millrace worker',
  summary: 'a worker: takes jobs from one endpoint and runs them',
  description: [
    "Loads the handler, takes jobs from the endpoint's queue and runs them in threads. A platform " +
      'that cannot be reached is waited for. The log goes to standard error, as JSON lines where ' +
      'that is no terminal; lines of a job carry its id.',
    'With --state-dir, what was finished is on disk before it is sent: a worker that is killed delivers ' +
      'it when it is started again with the same folder, and the jobs are not run twice.',
    'SIGTERM and SIGINT: takes no more, lets running jobs end, gives back the rest, leaves. A second ' +
      'one, a second or more later: leaves at once.',
  ],
  positionals: [{ name: '<handler>', help: 'the handler module, .ts or .js' }],
  options,
  examples: [
    'MILLRACE_KEY=mr_… millrace worker handler.ts --url http://10.0.0.5:8000 --endpoint echo',
    'millrace worker handler.ts --threads 4 --jobs-per-thread 16   # the rest from MILLRACE_*',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'left as asked; every outcome was delivered' },
    {
      code: EXIT.failed,
      meaning:
        'the handler cannot be loaded, the health port or the state folder is another process’s, or an outcome is undelivered',
    },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  run,
};

async function run(args: readonly string[]): Promise<number> {
  const { values, positionals } = parseOptions(options, args);
  const handlerPath = findHandlerFile(positionals);
  const log = createTerminalLog(values.logLevel);
  const link = openLink(values, log);
  const devices = describeHost();
  const executor = new ThreadExecutor({
    handlerPath,
    threads: values.threads,
    graceMs: values.graceMs,
    devices,
    ...(values.jobsPerThread !== undefined && { concurrency: values.jobsPerThread }),
    logDestination: { write: showLogLines },
  });
  const { drainMs, forceMs } = values;
  const version = packageVersion();
  const folder = await openFolder(values, log);
  const { workerId, incarnation, outbox } = folder;
  const terms = { workerId, incarnation, outbox, version, devices, drainMs, forceMs };
  const healthPort = await prepareHealthPort(values, { log, version });
  const stuckAfterMs = values.graceMs + STUCK_AFTER_GRACE_MS;
  const observer = healthPort?.observer;
  const worker = createWorker({ ...terms, stuckAfterMs, observer, link, executor, log });
  const signals = listenForStop();
  if (values.underDev) leaveWithParent();
  try {
    await healthPort?.open(worker);
    return await live(worker, signals);
  } catch (error) {
    // The log, which `dev` shows, has the reason already.
    const isTold = values.underDev && log.isLevelEnabled('fatal');
    if (error instanceof CommandError && isTold) return EXIT.failed;
    throw error;
  } finally {
    signals.release();
    await link.close();
    await folder.close();
    await healthPort?.close();
  }
}

async function live(worker: Worker, signals: StopSignals): Promise<number> {
  void signals.first.then(() => worker.drain());
  forceOnSecond(signals);
  try {
    await worker.start();
  } catch (error) {
    const isExplained = error instanceof HandlerNotLoadedError || error instanceof LinkError;
    throw isExplained ? new CommandError(error.message) : error;
  }
  if (worker.state.name === 'ready') tellParent({ type: 'ready' });
  // Now and not at the end, which a worker that is killed does not have.
  flushCompileCache();
  const end = await worker.ended;
  if (end.name === 'failed') throw new CommandError(end.reason);
  return end.name === 'stopped' && end.farewell.delivered ? EXIT.ok : EXIT.failed;
}

function openLink(
  values: { url: string; endpoint: string; key: string; ca: string | undefined },
  log: ReturnType<typeof createTerminalLog>,
) {
  const { url, endpoint, key } = values;
  const tls = values.ca === undefined ? undefined : { ca: readPem('--ca', values.ca) };
  try {
    return createHttpLink({ url, endpointId: endpoint, key, log, ...(tls && { tls }) });
  } catch (error) {
    throw new UsageError(`--url: ${error instanceof Error ? error.message : String(error)}`);
  }
}

interface FolderValues {
  stateDir: string | undefined;
  workerId: string | undefined;
  incarnation: number | undefined;
  endpoint: string;
  underDev: boolean;
}

/** Who this worker is, and where its reports wait. @throws CommandError if it may not be that one */
async function openFolder(values: FolderValues, log: Log): Promise<WorkerFolder> {
  const { stateDir, workerId, incarnation, endpoint: endpointId } = values;
  if (stateDir === undefined) {
    log[values.underDev ? 'debug' : 'info'](
      'no --state-dir: what is not delivered is kept in memory only, and ends with the process',
    );
    return {
      workerId: workerId ?? nameWorker(),
      incarnation: incarnation ?? Date.now(),
      outbox: new MemoryOutbox(),
      close: async () => {},
    };
  }
  const { openWorkerFolder, StateFolderError } = await import('../worker/state-folder.ts');
  const identity = { stateDir, workerId, incarnation, endpointId, nameWorker };
  try {
    return await openWorkerFolder({ ...identity, clock: systemClock, log });
  } catch (error) {
    throw error instanceof StateFolderError
      ? new CommandError(`--state-dir: ${error.message}`)
      : error;
  }
}

/**
 * The host's name, as far as it may stand in a worker's id, and a random part: containers may share
 * both host name and process id, and two workers of one id would drive each other out.
 */
function nameWorker(): string {
  const host = hostname()
    .replaceAll(/[^A-Za-z0-9._-]/g, '-')
    .replace(/^[^A-Za-z0-9]+/, '')
    .slice(0, 100);
  return `${host || 'worker'}-${randomBytes(4).toString('hex')}`;
}
