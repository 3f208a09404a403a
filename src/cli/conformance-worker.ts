// The worker under test: started if there is a command for it, waited for, told to leave at the end.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Log } from '../base/log.ts';
import { type Check, chooseChecks, Deviation, type Row, runChecks } from '../conformance/checks.ts';
import { CommandError } from './command.ts';
import { inheritEnvironment } from './config.ts';
import type { ConformanceValues } from './conformance.ts';
import { packageVersion } from './package-info.ts';

/** A worker that does not end by then is killed. */
const END_MS = 10_000;

export interface WorkerUnderTest {
  values: ConformanceValues;
  /** Empty: somebody else starts it. */
  command: readonly string[];
  log: Log;
  onRow: (row: Row) => void;
}

/** What the worker connects to. */
interface Stand {
  /** What the worker has to know. */
  readonly environment: Readonly<Record<string, string>>;
  /** Its first word. @throws Deviation */
  arrival(ms: number): Promise<unknown>;
  close(): Promise<void>;
}

interface StandOptions {
  host: string;
  port: number;
  carrier: 'http' | 'grpc';
  log: Log;
  version: string;
  terminate: () => void;
  exitCode?: Promise<number | null>;
}

/** @throws CommandError if no worker comes */
export async function checkWorker(test: WorkerUnderTest): Promise<Row[]> {
  const { command, log, values } = test;
  const { host, port } = values;
  const exit = Promise.withResolvers<number | null>();
  let child: ChildProcess | undefined;
  const standOptions: StandOptions = {
    ...{ host, port, carrier: values.link ?? 'http', log, version: packageVersion() },
    terminate: () => {
      if (child) child.kill('SIGTERM');
      else process.stderr.write('Now send SIGTERM to the worker.\n');
    },
    ...(command.length > 0 && { exitCode: exit.promise }),
  };
  const open = values.protocol === 'millrace' ? openMillrace : openRunPod;
  const { check, stand } = await open(standOptions);
  try {
    if (command.length > 0) child = startWorker(command, stand.environment, exit.resolve);
    else tellAddresses(stand.environment);
    await meetWorker(stand, values.waitMs, exit.promise);
    return await check(values.only, test.onRow);
  } finally {
    if (child) await endWorker(child, exit.promise);
    await stand.close();
  }
}

interface Opened {
  stand: Stand;
  check: (only: readonly string[], onRow: (row: Row) => void) => Promise<Row[]>;
}

async function openMillrace(options: StandOptions): Promise<Opened> {
  const { WorkerStand } = await import('../conformance/worker-stand.ts');
  const { workerChecks } = await import('../conformance/worker-checks.ts');
  return prepare(await WorkerStand.open(options), workerChecks);
}

async function openRunPod(options: StandOptions): Promise<Opened> {
  const { RunPodStand } = await import('../conformance/runpod-stand.ts');
  const { runPodWorkerChecks } = await import('../conformance/runpod-worker-checks.ts');
  return prepare(await RunPodStand.open(options), runPodWorkerChecks);
}

function prepare<S extends Stand>(stand: S, checks: readonly Check<S>[]): Opened {
  return {
    stand,
    check: (only, onRow) => runChecks(chooseChecks(checks, only), stand, onRow),
  };
}

function startWorker(
  [program = '', ...args]: readonly string[],
  environment: Readonly<Record<string, string>>,
  onExit: (code: number | null) => void,
): ChildProcess {
  // What it says goes to stderr: stdout is the table's.
  const child = spawn(program, args, {
    env: inheritEnvironment(environment),
    stdio: ['ignore', process.stderr, process.stderr],
  });
  child.once('error', (error) => {
    process.stderr.write(`${program}: ${error.message}\n`);
    onExit(null);
  });
  void once(child, 'exit').then(
    ([code]) => onExit(code),
    () => {},
  );
  return child;
}

/** Gently: it may have started processes of its own, which it takes along. */
async function endWorker(child: ChildProcess, exit: Promise<number | null>): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), END_MS);
  await exit;
  clearTimeout(timer);
}

function tellAddresses(environment: Readonly<Record<string, string>>): void {
  const lines = Object.entries(environment).map(([name, value]) => `${name}=${value}`);
  process.stderr.write(`Start the worker with\n${lines.map((line) => `  ${line}\n`).join('')}`);
}

async function meetWorker(stand: Stand, ms: number, exit: Promise<number | null>): Promise<void> {
  const early = exit.then((code) => {
    throw new CommandError(`the worker ended with the code ${code} before it said a word`);
  });
  try {
    await Promise.race([stand.arrival(ms), early]);
  } catch (error) {
    throw error instanceof Deviation ? new CommandError(error.message) : error;
  } finally {
    early.catch(() => {});
  }
}
