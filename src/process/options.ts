// The options of a model process, checked and completed in one place, and the environment of its child: that
// of the worker, with its devices, and what the child needs.
import { existsSync } from 'node:fs';
import { basename, delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Times are in ms and sizes in bytes. An option that is left out has its default. */
export interface ModelProcessOptions {
  /**
   * Program to start, by path or by name in PATH. There is no shell. For `python` and `python3`, the variable
   * MILLRACE_PYTHON names another one.
   */
  command: string;
  args?: readonly string[];
  /** Variables beside those of the worker; `undefined` removes one. */
  env?: Readonly<Record<string, string | undefined>>;
  /** Default: the worker's working directory. */
  cwd?: string;
  /**
   * Python packages that a second process imports as soon as the model is ready. Later starts, such as after a crash, are
   * forks of it. The packages must not touch CUDA when they are imported, nor start threads that survive a fork.
   */
  preload?: readonly string[];
  /**
   * Files of the model: paths, folders and globs, relative to `cwd`. The worker reads them into the page cache while the
   * program starts, up to half of the free memory.
   */
  weights?: readonly string[];
  /** Calls that run in the child at a time; others wait for their turn. Default 1, at most 1,000. */
  maxConcurrent?: number;
  /** Calls that may wait for their turn; a further one throws. Default 1,000. */
  maxWaiting?: number;
  /** Time for the child to report that it is ready: it loads its model. Default 600,000. */
  startTimeoutMs?: number;
  /** Time for one call from its start in the child, for a stream until its end. Default: none. */
  callTimeoutMs?: number;
  /**
   * A child that has not left a cancelled call after this time is replaced. Default 1,500: below the
   * worker's grace period of 2,000, so that the worker does not have to replace the thread.
   */
  cancelTimeoutMs?: number;
  /** Time for the child to exit in `stop`; then it is killed. Default 3,000. */
  stopTimeoutMs?: number;
  /** A child that sends nothing for this time is replaced: it hangs. 0: no limit. Default 60,000. */
  hangTimeoutMs?: number;
  /** Largest frame in both directions: one input or one result. Default 256 MB, at most 1 GB. */
  maxFrameBytes?: number;
  /** Bytes of items of one stream that wait for their consumer. Default 262,144. */
  streamWindowBytes?: number;
  /** Longest wait before a child that dies again and again is restarted. Default 30,000. */
  maxBackoffMs?: number;
}

export interface CompleteOptions extends Required<Omit<ModelProcessOptions, OptionalNames>> {
  cwd: string | undefined;
  callTimeoutMs: number | undefined;
  /** The variables of this process, read at each start of the child. */
  inherited: Environment;
}

type OptionalNames = 'cwd' | 'callTimeoutMs';

type NumberName = {
  [Name in keyof ModelProcessOptions]-?: number extends ModelProcessOptions[Name] ? Name : never;
}[keyof ModelProcessOptions];

export interface Range {
  fallback: number;
  min: number;
  max: number;
}

const MAX_PRELOAD = 100;
const MAX_WEIGHTS = 100;
const MB = 1_048_576;
const WEEK_MS = 604_800_000;
export const DAY_MS = 86_400_000;

/** The function whose options are read, for errors. */
type Creator = 'createModelProcess' | 'createModelServer';

const RANGES: Record<Exclude<NumberName, 'callTimeoutMs'>, Range> = {
  maxConcurrent: { fallback: 1, min: 1, max: 1_000 },
  maxWaiting: { fallback: 1_000, min: 0, max: 1_000_000 },
  startTimeoutMs: { fallback: 600_000, min: 1, max: DAY_MS },
  cancelTimeoutMs: { fallback: 1_500, min: 1, max: DAY_MS },
  stopTimeoutMs: { fallback: 3_000, min: 0, max: DAY_MS },
  hangTimeoutMs: { fallback: 60_000, min: 0, max: DAY_MS },
  maxFrameBytes: { fallback: 256 * MB, min: 1_024, max: 1_024 * MB },
  streamWindowBytes: { fallback: 262_144, min: 1, max: 1_024 * MB },
  maxBackoffMs: { fallback: 30_000, min: 0, max: DAY_MS },
};

/** @throws TypeError that names the option and its value */
export function completeOptions(
  options: ModelProcessOptions,
  inherited: Environment,
): CompleteOptions {
  const { callTimeoutMs, cwd } = options;
  const program = readProgram('createModelProcess', options, inherited);
  const readOne = (name: NumberName, range: Range) =>
    readNumber('createModelProcess', name, options[name], range);
  const read = (name: keyof typeof RANGES) => readOne(name, RANGES[name]);
  return {
    ...program,
    cwd,
    weights: readWeightPaths('createModelProcess', options.weights),
    preload: readPreload(options.preload ?? [], program),
    callTimeoutMs:
      callTimeoutMs === undefined
        ? undefined
        : readOne('callTimeoutMs', { fallback: 0, min: 1, max: WEEK_MS }),
    maxConcurrent: read('maxConcurrent'),
    maxWaiting: read('maxWaiting'),
    startTimeoutMs: read('startTimeoutMs'),
    cancelTimeoutMs: read('cancelTimeoutMs'),
    stopTimeoutMs: read('stopTimeoutMs'),
    hangTimeoutMs: read('hangTimeoutMs'),
    maxFrameBytes: read('maxFrameBytes'),
    streamWindowBytes: read('streamWindowBytes'),
    maxBackoffMs: read('maxBackoffMs'),
  };
}

/** @throws TypeError */
export function readWeightPaths(creator: Creator, weights: readonly string[] = []): string[] {
  const isPath = (path: unknown) => typeof path === 'string' && path !== '';
  if (Array.isArray(weights) && weights.length <= MAX_WEIGHTS && weights.every(isPath)) {
    return [...weights];
  }
  const wanted = `give an array of at most ${MAX_WEIGHTS} paths`;
  throw new TypeError(`${creator}: weights is ${show(weights)}; ${wanted}`);
}

/** @throws TypeError */
function readPreload(
  preload: readonly string[],
  { args, command }: Pick<CompleteOptions, 'args' | 'command'>,
): readonly string[] {
  const isName = (name: unknown) => typeof name === 'string' && /^\w+(\.\w+)*$/.test(name);
  if (!Array.isArray(preload) || preload.length > MAX_PRELOAD || !preload.every(isName)) {
    const wanted = `give an array of at most ${MAX_PRELOAD} names of Python packages`;
    throw new TypeError(`createModelProcess: preload is ${show(preload)}; ${wanted}`);
  }
  const [program = '', module = ''] = args;
  const isPython = /^python[\d.]*$/.test(basename(command));
  const isProgram = program === '-m' ? module !== '' : program !== '' && !program.startsWith('-');
  if (preload.length > 0 && !(isPython && isProgram)) {
    const found = show([command, ...args]);
    const wanted = 'python3 with a file, or -m and a module, as its first argument';
    throw new TypeError(`createModelProcess: preload is for ${wanted}, not for ${found}`);
  }
  return preload;
}

/** @throws TypeError */
export function readProgram(
  creator: Creator,
  { args = [], command, env = {} }: Pick<ModelProcessOptions, 'args' | 'command' | 'env'>,
  inherited: Environment,
): { command: string; args: readonly string[]; env: Environment; inherited: Environment } {
  if (typeof command !== 'string' || command === '') {
    throw new TypeError(`${creator}: command is ${show(command)}; name a program`);
  }
  if (!Array.isArray(args) || !args.every((arg) => typeof arg === 'string')) {
    throw new TypeError(`${creator}: args is ${show(args)}; give an array of strings`);
  }
  return { command: choosePython(command, inherited), args, env, inherited };
}

/** @throws TypeError */
export function readNumber(
  creator: Creator,
  name: string,
  value: unknown,
  { fallback, max, min }: Range,
): number {
  if (value === undefined) return fallback;
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) {
    return value;
  }
  const range = `a whole number from ${min} to ${max}`;
  throw new TypeError(`${creator}: ${name} is ${show(value)}; it must be ${range}`);
}

export function show(value: unknown): string {
  return JSON.stringify(value) ?? String(value);
}

/** The child's descriptor for frames; the standard ones belong to its libraries, which print. */
export const FRAME_DESCRIPTOR = 3;

/** Folder of millrace_model.py, last in the module search path: a copy of the author's own wins. */
const LIBRARY = fileURLToPath(new URL('./python', import.meta.url));

export type Environment = Readonly<Record<string, string | undefined>>;

/** Set by `millrace deploy --python`: the interpreter for commands without a path. */
export function choosePython(command: string, inherited: Environment): string {
  return /^python3?$/.test(command) ? inherited['MILLRACE_PYTHON'] || command : command;
}

/** The path of a program that is found on the PATH; the command itself if it is a path, or not found. */
export function locateProgram(command: string, path: string | undefined): string {
  if (command.includes('/')) return command;
  const places = (path ?? '').split(delimiter).map((folder) => join(folder, command));
  return places.find((place) => existsSync(place)) ?? command;
}

export function buildEnvironment(
  inherited: Environment,
  own: Environment,
): Record<string, string | undefined> {
  // Without it, Python holds back what is printed to a pipe.
  const merged = { PYTHONUNBUFFERED: '1', ...inherited, ...own };
  const { PYTHONPATH: path } = merged as Record<string, string | undefined>;
  return {
    ...merged,
    PYTHONPATH: path ? `${path}${delimiter}${LIBRARY}` : LIBRARY,
    MILLRACE_MODEL_FD: String(FRAME_DESCRIPTOR),
  };
}
