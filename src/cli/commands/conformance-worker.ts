// Tests a worker, by the options of `millrace conformance worker`: starts it if a command is given, waits for it, and ends it.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Log } from '../../base/log.ts';
import {
  type CheckResult,
  type ConformanceCheck,
  chooseChecks,
  Deviation,
  runConformanceChecks,
  type WorkerExit,
} from '../../conformance/checks.ts';
import { CommandError, EXIT } from '../command.ts';
import { inheritEnvironment } from '../config.ts';
import { choice, flag, integer, list, type OptionValues, text, UsageError } from '../options.ts';
import { printNote } from '../output.ts';
import { listenForStop } from '../stop-signals.ts';
import { logLevelOption } from '../terminal-log.ts';

export const link = { choices: ['http', 'grpc'] as const };

export const sharedOptions = {
  protocol: choice({
    choices: ['millrace', 'runpod'],
    default: 'millrace',
    help: 'protocol to test; docs/protocol.md describes millrace',
  }),
  only: list({
    placeholder: 'AREA',
    help: 'area (second column of the table) to test; checks that all areas need run too; an unknown area lists all',
  }),
  json: flag({ help: 'print one JSON object instead of the table' }),
  logLevel: logLevelOption('silent'),
};

export const workerOptions = {
  link: choice({ ...link, help: 'transport of the protocol millrace; default: http' }),
  host: text({ default: '127.0.0.1', placeholder: 'HOST', help: 'address to listen on' }),
  port: integer({
    min: 0,
    max: 65_535,
    default: 0,
    placeholder: 'PORT',
    help: 'port to listen on; 0 picks a free one',
  }),
  waitMs: integer({
    min: 1,
    max: 3_600_000,
    default: 60_000,
    placeholder: 'MS',
    help: "how long to wait for the worker's first call, ms",
  }),
  ...sharedOptions,
};

type WorkerValues = OptionValues<typeof workerOptions>;

/** @throws UsageError */
export function chooseAreas<Stage>(
  checks: readonly ConformanceCheck<Stage>[],
  only: readonly string[],
): readonly ConformanceCheck<Stage>[] {
  const areas = new Set(checks.map(({ area }) => area));
  const unknown = only.find((area) => !areas.has(area));
  if (unknown === undefined) return chooseChecks(checks, only);
  throw new UsageError(`--only ${unknown}: unknown area; give one of ${[...areas].join(', ')}`);
}

/** Time that the worker gets to end before it is killed, ms. */
const END_MS = 10_000;

interface WorkerUnderTest {
  values: WorkerValues;
  /** Empty if you start the worker yourself. */
  command: readonly string[];
  log: Log;
  onRow: (row: CheckResult) => void;
}

/** The platform that the checks simulate. */
interface Stand {
  /** Environment variables that the worker needs. */
  readonly environment: Readonly<Record<string, string>>;
  /** Resolves with the worker's first call. @throws Deviation */
  arrival(ms: number): Promise<unknown>;
  close(): Promise<void>;
}

interface StandOptions extends WorkerExit {
  host: string;
  port: number;
  carrier: 'http' | 'grpc';
  log: Log;
}

/** @throws UsageError, CommandError if no worker connects */
export async function checkWorker(test: WorkerUnderTest): Promise<CheckResult[]> {
  const { command, log, values } = test;
  const { host, port } = values;
  const open = values.protocol === 'millrace' ? openMillrace : openRunPod;
  const workers: StartedWorker[] = [];
  const start = () => {
    const worker = startWorker(command, stand.environment);
    workers.push(worker);
    return worker;
  };
  const exit = Promise.withResolvers<number | null>();
  const terminate = () => workers[0]?.terminate();
  const workerExit: WorkerExit =
    command.length > 0
      ? { terminate, exitCode: exit.promise, startAnother: start }
      : { terminate: () => printNote('Now send SIGTERM to the worker.\n') };
  const carrier = values.link ?? 'http';
  const { check, stand } = await open({ host, port, carrier, log, ...workerExit }, values.only);
  const stop = listenForStop();
  // The worker would outlive this command.
  void stop.first.then(async () => {
    for (const worker of workers) await worker.end();
    process.exit(EXIT.interrupted);
  });
  try {
    if (command.length > 0) exit.resolve(start().exitCode);
    else tellAddresses(stand.environment);
    await meetWorker(stand, values.waitMs, exit.promise);
    return await check(test.onRow);
  } finally {
    for (const worker of workers) await worker.end();
    stop.release();
    await stand.close();
  }
}

interface OpenedStand {
  stand: Stand;
  check: (onRow: (row: CheckResult) => void) => Promise<CheckResult[]>;
}

type Open = (options: StandOptions, only: readonly string[]) => Promise<OpenedStand>;

const openMillrace: Open = async (options, only) => {
  const { workerChecks } = await import('../../conformance/worker/worker-checks.ts');
  const checks = chooseAreas(workerChecks, only);
  const { WorkerStand } = await import('../../conformance/worker/worker-stand.ts');
  const stand = await WorkerStand.open(options);
  return { stand, check: (onRow) => runConformanceChecks(checks, stand, onRow) };
};

const openRunPod: Open = async (options, only) => {
  const { runPodWorkerChecks } = await import('../../conformance/runpod/worker-checks.ts');
  const checks = chooseAreas(runPodWorkerChecks, only);
  const { RunPodStand } = await import('../../conformance/runpod/stand.ts');
  const stand = await RunPodStand.open(options);
  return { stand, check: (onRow) => runConformanceChecks(checks, stand, onRow) };
};

interface StartedWorker {
  /** Null if a signal ended the worker, or if it could not be started. */
  readonly exitCode: Promise<number | null>;
  terminate(): void;
  /** Sends SIGTERM first, so that the worker can end its own child processes. */
  end(): Promise<void>;
}

function startWorker(
  [program = '', ...args]: readonly string[],
  environment: Readonly<Record<string, string>>,
): StartedWorker {
  // The worker's output goes to standard error; standard output is for the table.
  const child = spawn(program, args, {
    env: inheritEnvironment(environment),
    stdio: ['ignore', process.stderr, process.stderr],
  });
  const exitCode = once(child, 'exit').then(
    ([code]) => code,
    (error: Error) => {
      printNote(`${program}: ${error.message}\n`);
      return null;
    },
  );
  return {
    exitCode,
    terminate: () => void child.kill('SIGTERM'),
    async end() {
      child.kill('SIGTERM');
      const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
      await exitCode;
      clearTimeout(timer);
    },
  };
}

function tellAddresses(environment: Readonly<Record<string, string>>): void {
  const lines = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  printNote(`Start the worker with\n${lines.map((line) => `  ${line}\n`).join('')}`);
}

async function meetWorker(stand: Stand, ms: number, exit: Promise<number | null>): Promise<void> {
  const early = exit.then((code) => {
    throw new CommandError(`the worker exited with code ${code} before its first call`);
  });
  try {
    await Promise.race([stand.arrival(ms), early]);
  } catch (error) {
    throw error instanceof Deviation ? new CommandError(error.message) : error;
  } finally {
    early.catch(() => {});
  }
}
