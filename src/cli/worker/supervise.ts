// Runs `millrace worker` as the supervisor: keeps one worker process running for each device set
// until it is asked to exit. It loads few modules, because it runs all the time.
import { join } from 'node:path';
import { systemClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { launcherPath } from '../../base/package-info.ts';
import type { WorkerBye } from '../../wire/link/worker-link.ts';
import type { Detection } from '../../worker/gpu/detect.ts';
import type { DeviceSet } from '../../worker/gpu/device-sets.ts';
import type { GpuUsageFeed } from '../../worker/gpu/gpu-usage-feed.ts';
import type { BeforeStart } from '../../worker/starts.ts';
import { DeviceWatch } from '../../worker/supervisor/device-watch.ts';
import type { LaunchTerms } from '../../worker/supervisor/keeper.ts';
import { addUpHealth, type FleetHealth, Supervisor } from '../../worker/supervisor/supervisor.ts';
import { WorkerProcess } from '../../worker/supervisor/worker-process.ts';
import { CommandError, EXIT, NotLoadedError, UnfitError, WorkerRefusedError } from '../command.ts';
import { inheritWithoutKeys, listKeys, readVariable } from '../config.ts';
import { UsageError } from '../options.ts';
import { printNote } from '../output.ts';
import { listenForStop, type StopSignals } from '../stop-signals.ts';
import { createTerminalLog } from '../terminal-log.ts';
import { BEFORE_VARIABLE, measureBefore } from './before-start.ts';
import { chooseCompileCaches } from './compile-caches.ts';
import { openHealthPort } from './health-port.ts';
import { openLink, planLink } from './platform-link.ts';
import type { WeightsAhead } from './weights-ahead.ts';
import {
  BREAKER_VARIABLE,
  DEVICE_SET_VARIABLE,
  SPARE_VARIABLE,
  type WorkerFlags,
} from './worker-flags.ts';
import { checkGpuSampling, createGpuFeed, planWorkers } from './worker-machine.ts';

/** Time beyond --drain-ms and --force-ms to deliver reports, send bye, and kill a thread, ms. */
const EXIT_SLACK_MS = 15_000;
/** Time that a supervisor has for the byes of its workers after a second signal, ms. */
const LAST_BYES_MS = 1_000;
/** Limit of one bye for a dead worker, which also delays an exiting supervisor, ms. */
const BYE_MS = 3_000;
const WORKER_ID = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

interface SuperviseOptions {
  handlerPath: string;
  values: WorkerFlags;
  /** The arguments as given; worker processes get the same ones. */
  args: readonly string[];
  /** How long this process has installed the handler. */
  installMs: number;
  /** Weights that are read already. Undefined: none are remembered. */
  weights: WeightsAhead | undefined;
}

/** Resolves with the exit code. @throws UsageError, CommandError */
export async function superviseWorkers(options: SuperviseOptions): Promise<number> {
  const { args, installMs, values, weights } = options;
  checkValues(values);
  const signals = listenForStop();
  const log = createTerminalLog(values.logLevel);
  const planned = await Promise.race([planWorkers(values, log), signals.first]);
  // A hanging nvidia-smi would keep this process alive.
  if (typeof planned === 'string') process.exit(EXIT.ok);
  const { detection, plan } = planned;
  const { sets } = plan;
  tellPlan(sets, log);
  const prefixes = await planPrefixes(values, { sets, detection, log });
  const { stateDir, startAttempts, vramGrowthLimit, workerId } = values;
  const hasGpus = sets.some(({ devices }) => devices.some(({ kind }) => kind !== 'cpu'));
  const caches = hasGpus ? chooseCompileCaches(stateDir, readVariable) : {};
  const before = measureBefore(installMs);
  // A process that replaces another one has not waited for what came before.
  const fresh = new Set(sets);
  const supervisor = new Supervisor({
    sets,
    workerId,
    launch: (set, as) => {
      const { first = {}, later = {} } = weights ?? {};
      const variables = { ...caches, ...(as.incarnation === undefined ? first : later) };
      const started = launchWorker({
        ...{ args, set, as, variables, key: values.key, prefix: prefixes.get(set) ?? [] },
        before: fresh.delete(set) ? before : undefined,
      });
      void started.ready.then(() => weights?.end());
      return started;
    },
    sayBye: (bye) => sayBye(values, bye, log),
    readUndelivered: async (id) => {
      if (stateDir === undefined) return [];
      const { readUndelivered } = await import('../../worker/outbox/outbox-entries.ts');
      return readUndelivered(join(stateDir, id), log);
    },
    killAfterMs: values.drainMs + values.forceMs + EXIT_SLACK_MS,
    startAttempts,
    clock: systemClock,
    log,
  });
  const watch = new DeviceWatch({
    detection,
    workers: supervisor.keepers,
    log,
    ...(vramGrowthLimit !== undefined && { vramGrowthLimitBytes: vramGrowthLimit * 2 ** 20 }),
  });
  const feed = createGpuFeed({ detection, workers: supervisor.keepers, values, log });
  const port = await openSupervisorPort({ supervisor, watch, feed, values, log });
  try {
    feed?.start();
    return await oversee(supervisor, watch, signals);
  } finally {
    feed?.stop();
    watch.stop();
    signals.release();
    await port?.close();
  }
}

async function oversee(
  supervisor: Supervisor,
  watch: DeviceWatch,
  signals: StopSignals,
): Promise<number> {
  void signals.first.then(() => {
    watch.stop();
    return supervisor.stop();
  });
  void signals.second.then(async (signal) => {
    supervisor.kill();
    await Promise.race([supervisor.ended, new Promise((done) => setTimeout(done, LAST_BYES_MS))]);
    process.exit(signal === 'SIGINT' ? EXIT.interrupted : EXIT.failed);
  });
  // A device that is bad at the start gets no process.
  watch.start();
  supervisor.start();
  const end = await supervisor.ended;
  if (end.name === 'left') return end.isClean ? EXIT.ok : EXIT.failed;
  if (end.exitCode === EXIT.usage) throw new UsageError(end.reason);
  if (end.exitCode === EXIT.unfit) throw new UnfitError(end.reason);
  if (end.exitCode === EXIT.notLoaded) throw new NotLoadedError(end.reason);
  if (end.exitCode === EXIT.refused) throw new WorkerRefusedError(end.reason);
  if (end.isFinal) throw new CommandError(end.reason);
  printNote(`millrace worker: no worker process could be started: ${end.reason}\n`);
  return EXIT.gaveUp;
}

/** Rejects values that a worker process would reject, before one is started. @throws UsageError */
function checkValues(values: WorkerFlags): void {
  const { incarnation, workerId } = values;
  planLink(values);
  checkGpuSampling(values);
  if (workerId !== undefined && !WORKER_ID.test(workerId)) {
    throw new UsageError(
      `--worker-id: must be 1 to 128 letters, digits, ".", "_" or "-", the first a letter or digit, got ${JSON.stringify(workerId)}`,
    );
  }
  if (incarnation !== undefined) {
    throw new UsageError(
      '--incarnation needs --unsupervised; a supervisor sets the incarnation itself',
    );
  }
}

function tellPlan(sets: readonly DeviceSet[], log: Log): void {
  const devices = sets.map((set) =>
    set.devices.map(({ index, kind, name, uuid }) => {
      return kind === 'cpu' ? name : `${index} ${name} ${uuid}`;
    }),
  );
  log.info({ processes: sets.length, devices }, 'supervisor started');
}

interface Prefixes {
  sets: readonly DeviceSet[];
  detection: Detection;
  log: Log;
}

/** Returns the command prefix of each set's process, which keeps the process near its GPUs. */
async function planPrefixes(
  { cpuAffinity }: WorkerFlags,
  { detection, log, sets }: Prefixes,
): Promise<Map<DeviceSet, string[]>> {
  const prefixes = new Map<DeviceSet, string[]>();
  if (!cpuAffinity) return prefixes;
  const { planAffinity } = await import('../../worker/gpu/device-sets.ts');
  const searchPath = readVariable('PATH') ?? '';
  for (const set of sets) {
    const { devices } = detection;
    const { note, prefix, processors } = await planAffinity({ set, devices, searchPath });
    const uuids = set.devices.map(({ uuid }) => uuid);
    if (note !== undefined) log.warn({ devices: uuids }, `--cpu-affinity: ${note}`);
    else if (processors !== undefined)
      log.info({ devices: uuids, processors }, 'worker pinned to CPUs');
    prefixes.set(set, prefix);
  }
  return prefixes;
}

interface Launch {
  args: readonly string[];
  set: DeviceSet;
  as: LaunchTerms;
  /** The worker key; empty if RunPod's own key applies. */
  key: string;
  prefix: readonly string[];
  /** Those of the folders of compile caches, and of the weights. */
  variables: Readonly<Record<string, string>>;
  before: BeforeStart | undefined;
}

function launchWorker({ args, as, before, key, prefix, set, variables }: Launch): WorkerProcess {
  const { breaker, incarnation, workerId } = as;
  const own = [
    '--unsupervised',
    ...(workerId === undefined ? [] : [`--worker-id=${workerId}`]),
    ...(incarnation === undefined ? [] : [`--incarnation=${incarnation}`]),
  ];
  // Options may precede the handler; the last value of an option applies.
  const [options, rest] = splitArguments(args);
  const worker = [process.execPath, launcherPath, 'worker', ...options, ...own, ...rest];
  return new WorkerProcess({
    command: [...prefix, ...worker],
    environment: inheritWithoutKeys({
      ...variables,
      ...set.environment,
      [DEVICE_SET_VARIABLE]: JSON.stringify(set.devices),
      [BREAKER_VARIABLE]: breaker && JSON.stringify(breaker),
      // A process that takes over from another one has been woken, or was never parked.
      ...(incarnation !== undefined && { [SPARE_VARIABLE]: undefined }),
      [BEFORE_VARIABLE]: before && JSON.stringify(before),
    }),
    input: JSON.stringify({ ...listKeys(), ...(key !== '' && { MILLRACE_KEY: key }) }),
  });
}

/**
 * Returns the arguments before and after `--`, without the key, because handlers can read
 * `process.argv`.
 */
function splitArguments(args: readonly string[]): [string[], string[]] {
  const end = args.indexOf('--');
  const before = end < 0 ? [...args] : args.slice(0, end);
  const kept = before.filter(
    (arg, index) => !arg.startsWith('--key=') && arg !== '--key' && before[index - 1] !== '--key',
  );
  return [kept, end < 0 ? [] : args.slice(end)];
}

/** Loads the carrier only when a worker has died. */
async function sayBye(values: WorkerFlags, bye: WorkerBye, log: Log): Promise<void> {
  const link = await openLink(values, log);
  const cut = setTimeout(() => void link.close(), BYE_MS);
  try {
    await link.bye(bye);
  } finally {
    clearTimeout(cut);
    await link.close();
  }
}

async function readHealth(supervisor: Supervisor): Promise<FleetHealth> {
  const views = await Promise.all(
    supervisor.keepers.map(async (keeper) => {
      const answer = await keeper.ask();
      const { restarts, set, state, workerId } = keeper;
      return { workerId, devices: set.devices, state, restarts, health: answer?.health };
    }),
  );
  return addUpHealth(views, supervisor.isStopping);
}

interface SupervisorPort {
  supervisor: Supervisor;
  watch: DeviceWatch;
  feed: GpuUsageFeed | undefined;
  values: WorkerFlags;
  log: Log;
}

async function openSupervisorPort({ feed, log, supervisor, values, watch }: SupervisorPort) {
  const { healthHost, healthPort } = values;
  if (healthPort === undefined) return undefined;
  const { createFleetMetrics } = await import('../../worker/supervisor/fleet-metrics.ts');
  const { keepers } = supervisor;
  const metrics = createFleetMetrics({
    keepers,
    readDevices: () => watch.statuses,
    readSamplingSeconds: feed && (() => feed.cpuSeconds),
  });
  return openHealthPort({
    healthHost,
    healthPort,
    log,
    // The supervisor exits when it cannot continue, so an answer means that it is alive.
    liveness: async () => ({ isHealthy: true, body: { status: 'ok' } }),
    readiness: async () => {
      const health = await readHealth(supervisor);
      return { isHealthy: health.ready, body: health };
    },
    collectMetrics: () => metrics.collect(),
  });
}
