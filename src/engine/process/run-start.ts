// Begins a run: the command, what it is given, and a shell that leads it and outlives the platform.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { type Clock, sleep } from '../../base/clock.ts';
import type { Device } from '../../wire/worker-link.ts';
import { type ContainerSpec, EngineError } from '../engine.ts';
import { splitWords } from '../shell-words.ts';
import { type CgroupHome, listJoins, makeGroups, removeGroups } from './cgroups.ts';
import type { ContainerFolder } from './container-folders.ts';
import { makeEnvironment } from './environment.ts';
import type { GivenPort } from './port-pool.ts';
import type { RunGroups, RunNote } from './run-record.ts';
import { isOddName, writeRunScript } from './run-script.ts';
import { findRun, runFile } from './runs.ts';

const BEGIN_LIMIT_MS = 10_000;
const LOOK_AGAIN_MS = 5;

/** How this very program runs a handler module. */
export interface HandlerCommand {
  execPath: string;
  /** In front of the module. */
  args: readonly string[];
  /** Variables that those of a pod stand above. */
  env: Readonly<Record<string, string>>;
}

export interface RunStartOptions {
  folder: ContainerFolder;
  /** One more than that of the last run. */
  number: number;
  ports: readonly GivenPort[];
  cgroups: CgroupHome;
  /** In front of their names. */
  groupPrefix: string;
  devices: readonly Device[];
  runHandler: HandlerCommand | undefined;
  clock: Clock;
}

/** Program and arguments. @throws EngineError `refused` */
export function makeCommand(
  { args, handler }: ContainerSpec,
  runHandler: HandlerCommand | undefined,
): string[] {
  const words = splitWords(args);
  if (handler !== null) {
    if (!runHandler) throw new EngineError('refused', 'handlers are not run here');
    return [runHandler.execPath, ...runHandler.args, resolve(handler), ...words];
  }
  const [program] = words;
  if (program === undefined) {
    const remedy = 'args have to be a command line, or the template has to name a handler';
    throw new EngineError(
      'refused',
      `processes have no images, so there is nothing to run: ${remedy}`,
    );
  }
  if (program.includes('=')) {
    throw new EngineError('refused', `args begin with ${program}: variables belong to env`);
  }
  return words;
}

/**
 * Resolves when the run has begun, by this call or by another one for the same number: one of them
 * begins, whoever comes first. @returns the child if this call has started it @throws EngineError
 */
export async function startRun(options: RunStartOptions): Promise<ChildProcess | undefined> {
  const { cgroups, folder, groupPrefix, number } = options;
  const { spec } = folder;
  const command = makeCommand(spec, options.runHandler);
  // What it has made of its own disk is its own affair. No folder above is made, should it be gone.
  for (const path of [folder.disk, folder.temporary]) await mkdir(path).catch(() => {});
  // Two may begin the same run.
  const once = randomBytes(4).toString('hex');
  const name = `${groupPrefix}${spec.id}.${spec.generation}.${number}-${once}`;
  const groups = makeGroups(cgroups, name, spec.limits);
  const script = join(folder.path, `start-${once}.sh`);
  let child: ChildProcess | undefined;
  try {
    await writeScript(script, command, { ...options, groups });
    child = await untilBegun(await launch(script, options), options);
    return child;
  } finally {
    if (!child) await removeGroups(groups, options.clock);
    await rm(script, { force: true });
  }
}

/** The child, if it is the one that has begun. */
async function untilBegun(
  child: ChildProcess,
  { clock, folder, number }: RunStartOptions,
): Promise<ChildProcess | undefined> {
  const giveUpAt = clock.now() + BEGIN_LIMIT_MS;
  while (clock.now() < giveUpAt) {
    const hasEnded = child.exitCode !== null || child.signalCode !== null;
    const run = await findRun(folder.path, clock);
    if (run && run.number >= number)
      return run.record?.leader.pid === child.pid ? child : undefined;
    if (hasEnded) break;
    await sleep(clock, LOOK_AGAIN_MS);
  }
  child.kill('SIGKILL');
  throw new EngineError('unavailable', `the process of ${folder.spec.id} does not begin`);
}

async function writeScript(
  path: string,
  command: readonly string[],
  options: RunStartOptions & { groups: RunGroups },
): Promise<void> {
  const { clock, folder, groups, number, ports } = options;
  const note: RunNote = { startedAt: clock.now(), ports, groups };
  const odd = Object.entries(describeAll(options)).filter(([name]) => isOddName(name));
  const text = writeRunScript({
    command,
    runFile: runFile(folder.path, number),
    note: JSON.stringify(note),
    joins: listJoins(groups),
    oddVariables: Object.fromEntries(odd),
  });
  await writeFile(path, text, { mode: 0o600 });
}

function describeAll(options: RunStartOptions): Record<string, string> {
  const { devices, folder, number, ports, runHandler } = options;
  const { disk, mount, path, spec, temporary } = folder;
  const run = runFile(path, number);
  const defaults = spec.handler === null ? undefined : runHandler?.env;
  const folders = { disk, temporary, mount };
  return makeEnvironment({ spec, defaults, run, ports, devices, folders });
}

function launch(script: string, options: RunStartOptions): Promise<ChildProcess> {
  const { folder } = options;
  const plain = Object.entries(describeAll(options)).filter(([name]) => !isOddName(name));
  const log = openSync(folder.log, 'a', 0o600);
  try {
    const child = spawn('/bin/sh', [script], {
      cwd: folder.disk,
      env: Object.fromEntries(plain),
      stdio: ['ignore', log, log],
      // A session of its own: what ends the platform does not end it.
      detached: true,
    });
    child.unref();
    return new Promise((resolve, reject) => {
      child.once('spawn', () => resolve(child));
      child.on('error', (error: NodeJS.ErrnoException) => {
        const code = error.code === 'E2BIG' ? 'refused' : 'unavailable';
        reject(new EngineError(code, `cannot be started: ${error.message}`, { cause: error }));
      });
    });
  } finally {
    closeSync(log);
  }
}
