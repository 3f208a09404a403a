// Starts a run: the command with its environment and its resources, led by a shell that outlives the platform.
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, fchownSync, openSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { HANDOVER_VARIABLE, KEY_VARIABLES } from '../../base/api-key.ts';
import type { Clock } from '../../base/clock.ts';
import { readBootId, readStat } from '../../base/process/process-table.ts';
import { quoteWord } from '../../base/text/shell-words.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import { type ContainerSpec, EngineError, splitArgs } from '../engine.ts';
import { type CgroupHome, joinGroups, makeGroups, nameGroup, removeGroups } from './cgroups.ts';
import type { ContainerFolder } from './container-folders.ts';
import type { PodUser } from './pod-user.ts';
import {
  claimRun,
  type GivenPort,
  type RunGroups,
  type RunNote,
  runFile,
  writeRunRecord,
} from './runs.ts';

/** Command with which this program runs a handler module. */
export interface HandlerCommand {
  execPath: string;
  /** Arguments before the module. */
  args: readonly string[];
  /** Variables that the pod's own override. */
  env: Readonly<Record<string, string>>;
}

export interface RunStartOptions {
  folder: ContainerFolder;
  /** One more than the number of the last run. */
  number: number;
  ports: readonly GivenPort[];
  /** UUIDs. */
  gpus: readonly string[];
  cgroups: CgroupHome;
  /** Processes and threads of the run; 0: no limit. */
  maxProcesses: number;
  /** Prefix of the groups' names. */
  groupPrefix: string;
  devices: readonly Device[];
  runHandler: HandlerCommand | undefined;
  /** Default: the platform's user. */
  user: PodUser | undefined;
  clock: Clock;
}

/** Program and arguments. @throws EngineError `refused` */
export function makeCommand(
  { args, handler, runsVersion }: ContainerSpec,
  runHandler: HandlerCommand | undefined,
): string[] {
  const words = splitArgs(args);
  if (handler !== null || runsVersion) {
    if (!runHandler) throw new EngineError('refused', 'this engine cannot run handlers');
    const module = handler === null ? [] : [resolve(handler)];
    return [runHandler.execPath, ...runHandler.args, ...module, ...words];
  }
  const [program] = words;
  if (program === undefined) {
    const remedy = 'give a command line in args, or a handler in the template';
    throw new EngineError('refused', `the process engine runs no images: ${remedy}`);
  }
  if (program.includes('=')) {
    throw new EngineError('refused', `args start with ${program}; put variables into env`);
  }
  return words;
}

/**
 * Resolves when the run has started, by this call or by a concurrent call with the same number.
 * @returns the child process if this call has started it @throws EngineError
 */
export async function startRun(options: RunStartOptions): Promise<ChildProcess | undefined> {
  const { cgroups, folder, groupPrefix, number } = options;
  const { spec } = folder;
  const command = makeCommand(spec, options.runHandler);
  // Two calls may start the same run.
  const once = randomBytes(4).toString('hex');
  const { generation, id } = spec;
  const groups = makeGroups(cgroups, nameGroup(groupPrefix, { id, generation, number, once }), {
    limits: spec.limits,
    processes: options.maxProcesses,
  });
  const exitFile = join(folder.path, `exit-${once}`);
  let child: ChildProcess | undefined;
  try {
    const launched = await launch(exitFile, options);
    child = (await begin(launched, { ...options, command, groups, once })) ? launched : undefined;
    return child;
  } finally {
    if (!child) {
      await removeGroups(groups, options.clock);
      await rm(exitFile, { force: true });
    }
  }
}

interface Beginning extends RunStartOptions {
  command: readonly string[];
  groups: RunGroups;
  once: string;
}

/**
 * The shell waits for its script and exits without one: if the platform dies in between, nothing
 * runs. @returns false if another call was faster @throws EngineError
 */
async function begin(child: ChildProcess, beginning: Beginning): Promise<boolean> {
  const { clock, command, folder, gpus, groups, number, once, ports } = beginning;
  const { pid = 0, stdin } = child;
  let hasBegun = false;
  try {
    // Outside of its groups, no limit would apply.
    joinGroups(groups, pid);
    const exitFile = `exit-${once}`;
    const note: RunNote = { startedAt: clock.now(), ports, groups, gpus, exitFile };
    const text = writeRunRecord(readStat(pid), readBootId(), note);
    hasBegun = await claimRun({ folder: folder.path, number, once, text });
    const { input, variables } = describeAll(beginning);
    const odd = Object.entries(variables).filter(([name]) => isOddName(name));
    const script = writeRunScript({ command, oddVariables: Object.fromEntries(odd), input });
    // It may have been killed by now.
    stdin?.on('error', () => {});
    if (hasBegun) stdin?.end(script);
    return hasBegun;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const message = `the process of ${folder.spec.id} did not start: ${reason}`;
    throw new EngineError('unavailable', message, { cause: error });
  } finally {
    if (!hasBegun) child.kill('SIGKILL');
  }
}

interface Given {
  variables: Record<string, string>;
  input?: string;
}

/** A handler's program reads its keys from its input. */
function describeAll(options: RunStartOptions): Given {
  const { devices, folder, gpus, number, ports, runHandler } = options;
  const { disk, mount, path, temporary } = folder;
  const spec = { ...folder.spec, gpus };
  const run = runFile(path, number);
  const defaults = spec.handler === null && !spec.runsVersion ? undefined : runHandler?.env;
  const folders = { disk, temporary, mount };
  const variables = makeEnvironment({ spec, defaults, run, ports, devices, folders });
  return defaults === undefined ? { variables } : handOverKeys(variables);
}

function handOverKeys(variables: Record<string, string>): Given {
  const names = new Set<string>(KEY_VARIABLES);
  const all = Object.entries(variables);
  const keys = all.filter(([name]) => names.has(name));
  if (keys.length === 0) return { variables };
  const others = all.filter(([name]) => !names.has(name));
  return {
    variables: { ...Object.fromEntries(others), [HANDOVER_VARIABLE]: '1' },
    input: JSON.stringify(Object.fromEntries(keys)),
  };
}

function launch(exitFile: string, options: RunStartOptions): Promise<ChildProcess> {
  const { folder, user } = options;
  const plain = Object.entries(describeAll(options).variables).filter(([name]) => !isOddName(name));
  const log = openSync(folder.log, 'a', 0o600);
  const exit = openSync(exitFile, 'a', 0o600);
  try {
    // Programs reopen their output by name, such as /dev/stderr.
    if (user) fchownSync(log, user.uid, user.gid);
    const child = spawn('/bin/sh', shellArgs(runFile(folder.path, options.number)), {
      cwd: folder.disk,
      env: Object.fromEntries(plain),
      stdio: ['pipe', log, log, exit],
      // A separate session, so that a signal that ends the platform does not end the run.
      detached: true,
      // Also drops root's supplementary groups.
      ...(user && { uid: user.uid, gid: user.gid }),
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
    closeSync(exit);
  }
}

export interface RunScriptOptions {
  /** Program and arguments. */
  command: readonly string[];
  /** Variables that a shell may not pass on unchanged. */
  oddVariables: Readonly<Record<string, string>>;
  /** One line for its standard input. Default: none. */
  input?: string | undefined;
}

/** The shell reads the script from its input; process lists show the run's file as its name. */
export function shellArgs(runFile: string): string[] {
  return ['-s', runFile];
}

/** File descriptor for the exit code. */
const EXIT_FD = 3;

/** The line after the input, which is JSON. */
const END = 'end of input';

/** Variables that shells set, change or read themselves, and names that they do not accept. */
const ODD_NAME =
  /^(?:_|PWD|OLDPWD|SHLVL|IFS|OPT[A-Z]+|PPID|LINENO|PS\d|ENV|BASH\w*|SHELLOPTS|POSIXLY_CORRECT|RANDOM|SECONDS|HIST\w*|U?EUID|UID|GROUPS|DIRSTACK|FUNCNAME|COLUMNS|LINES)$|[^A-Za-z0-9_]/;

/** Variables that shells add to the environment of their children. */
const ADDED_BY_SHELLS = ['PWD', 'OLDPWD', 'SHLVL', '_'];

export function isOddName(name: string): boolean {
  return ODD_NAME.test(name);
}

/**
 * Uses only built-in commands, except `env`: the PATH is the container's. The script ignores a TERM
 * sent to the whole group; the command gets it as usual, because caught signals are not inherited.
 */
export function writeRunScript({ command, input, oddVariables }: RunScriptOptions): string {
  const unset = ADDED_BY_SHELLS.map((name) => `-u ${name}`);
  const assignments = Object.entries(oddVariables).map(([name, value]) => `${name}=${value}`);
  const words = [...assignments, ...command].map(quoteWord);
  // A here-document: its text is in no list of processes.
  const [source, ...lines] = input === undefined ? ['/dev/null'] : [`<'${END}'`, input, END];
  return [
    // One compound command: nothing runs if the script is cut short.
    '{',
    'trap : TERM INT HUP',
    // The shell's own messages, such as "Killed", are not the container's output.
    'exec 4>&2 2>/dev/null',
    'umask 022',
    // In a subshell: some shells redirect themselves while a command runs.
    `(exec /usr/bin/env ${unset.join(' ')} -- ${words.join(' ')} <${source} 2>&4 4>&- ${EXIT_FD}>&-)`,
    ...lines,
    `echo "$?" >&${EXIT_FD}`,
    // Kills the rest of its group, this shell included.
    'kill -9 -$$',
    '}',
    '',
  ].join('\n');
}

/** Marks the processes of a run with the path of the run's file. */
export const RUN_VARIABLE = 'MILLRACE_RUN';

export interface EnvironmentOptions {
  spec: ContainerSpec;
  /** Overridden by the spec. Default: none. */
  defaults?: Readonly<Record<string, string>> | undefined;
  /** File of the run. */
  run: string;
  folders: { disk: string; temporary: string; mount: string | undefined };
  ports: readonly GivenPort[];
  /** All devices of the machine. */
  devices: readonly Device[];
}

/**
 * The spec overrides defaults, but not the variables that only the engine assigns (ports, GPUs).
 */
export function makeEnvironment(options: EnvironmentOptions): Record<string, string> {
  const { defaults, devices, folders, ports, run, spec } = options;
  return {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: folders.disk,
    TMPDIR: folders.temporary,
    LANG: 'C.UTF-8',
    ...defaults,
    ...spec.env,
    ...(folders.mount !== undefined && { MILLRACE_MOUNT: folders.mount }),
    ...describePorts(ports),
    ...pinDevices(spec.gpus, devices),
    [RUN_VARIABLE]: run,
  };
}

function describePorts(ports: readonly GivenPort[]): Record<string, string> {
  const named = ports.map((port) => [`MILLRACE_PORT_${port.private}`, `${port.public}`]);
  const [first] = ports;
  return { ...(first && { PORT: `${first.public}` }), ...Object.fromEntries(named) };
}

/**
 * Shows only the allotted GPUs, or none. -1 and not an empty value, which some libraries treat as
 * unset. On a machine without detected GPUs nothing is hidden: there may be one that Millrace
 * cannot detect.
 */
function pinDevices(gpus: readonly string[], devices: readonly Device[]): Record<string, string> {
  if (!devices.some(({ kind }) => kind === 'gpu')) return {};
  const own = gpus.flatMap((uuid) => devices.find((device) => device.uuid === uuid) ?? []);
  const indices = own.map(({ index }) => index).join(',');
  if (own.some(({ uuid }) => uuid.startsWith('amd-'))) {
    // ROCr hides first; HIP then counts the remaining devices. CUDA's variable would contradict
    // them.
    const places = own.map((_, place) => place).join(',');
    return { ROCR_VISIBLE_DEVICES: indices, HIP_VISIBLE_DEVICES: places };
  }
  if (own.some(({ uuid }) => uuid.startsWith('intel-'))) {
    return { ...HIDDEN_NVIDIA, HIP_VISIBLE_DEVICES: '-1', ZE_AFFINITY_MASK: indices };
  }
  if (own.length === 0) return { ...HIDDEN_NVIDIA, HIP_VISIBLE_DEVICES: '-1' };
  const uuids = own.map(({ uuid }) => uuid).join(',');
  return {
    CUDA_DEVICE_ORDER: 'PCI_BUS_ID',
    CUDA_VISIBLE_DEVICES: uuids,
    NVIDIA_VISIBLE_DEVICES: uuids,
    HIP_VISIBLE_DEVICES: '-1',
  };
}

const HIDDEN_NVIDIA = { CUDA_VISIBLE_DEVICES: '-1', NVIDIA_VISIBLE_DEVICES: 'void' };
