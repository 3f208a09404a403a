// The options of a model server, checked and completed in one place.
import type { KeeperOptions } from './child-keeper.ts';
import {
  DAY_MS,
  type Environment,
  type ModelProcessOptions,
  type Range,
  readNumber,
  readProgram,
  readWeightPaths,
  show,
} from './options.ts';

/** A path of the server, for a request without a body, or a function. It must end when `signal` aborts. */
export type ServerHook<Result> =
  | string
  | ((url: string, signal: AbortSignal) => Result | Promise<Result>);

type SharedNames =
  | 'command'
  | 'cwd'
  | 'weights'
  | 'maxConcurrent'
  | 'maxWaiting'
  | 'startTimeoutMs'
  | 'stopTimeoutMs'
  | 'hangTimeoutMs'
  | 'maxBackoffMs';

/**
 * Times are in ms. Defaults that differ from those of a model process: `maxConcurrent` 256, `stopTimeoutMs` 4,000. After
 * `hangTimeoutMs` without a good answer to `ready`, the server is replaced; while requests run, a server that does not
 * answer at all may be busy, and is left alone.
 */
export interface ModelServerOptions extends Pick<ModelProcessOptions, SharedNames> {
  /** `{port}` is replaced by a free port of the loopback interface, which the server must listen on. */
  args?: readonly string[];
  /** Variables beside those of the worker; `undefined` removes one. `{port}` is replaced as in `args`. PORT is set. */
  env?: Environment;
  /** A path that answers GET with 200 when the model is loaded, or a function that returns true then. Default `/health`. */
  ready?: ServerHook<boolean>;
  /**
   * How the model leaves the GPU when the worker is parked: a path for POST, such as `/sleep?level=1` of vLLM, or a function,
   * which should return the number of bytes that it has freed. It needs `wake`, and runs while no request runs.
   */
  sleep?: ServerHook<unknown>;
  /** How the model comes back: a path for POST, such as `/wake_up` of vLLM, or a function. */
  wake?: ServerHook<unknown>;
}

export interface CompleteServerOptions extends KeeperOptions {
  ready: ServerHook<boolean>;
  hooks: { park: ServerHook<unknown>; wake: ServerHook<unknown> } | undefined;
  stopTimeoutMs: number;
  hangTimeoutMs: number;
}

const RANGES = {
  maxConcurrent: { fallback: 256, min: 1, max: 10_000 },
  maxWaiting: { fallback: 1_000, min: 0, max: 1_000_000 },
  startTimeoutMs: { fallback: 600_000, min: 1, max: DAY_MS },
  stopTimeoutMs: { fallback: 4_000, min: 0, max: DAY_MS },
  hangTimeoutMs: { fallback: 60_000, min: 0, max: DAY_MS },
  maxBackoffMs: { fallback: 30_000, min: 0, max: DAY_MS },
} as const satisfies Record<string, Range>;

/** @throws TypeError that names the option and its value */
export function completeServerOptions(
  options: ModelServerOptions,
  inherited: Environment,
): CompleteServerOptions {
  const { cwd, ready = '/health', sleep, wake } = options;
  for (const [name, hook] of Object.entries({ ready, sleep, wake })) {
    if (hook === undefined || typeof hook === 'function') continue;
    if (typeof hook === 'string' && hook.startsWith('/')) continue;
    const found = `createModelServer: ${name} is ${show(hook)}`;
    throw new TypeError(`${found}; give a path that begins with /, or a function`);
  }
  if ((sleep === undefined) !== (wake === undefined)) {
    const [given, missing] = sleep === undefined ? ['wake', 'sleep'] : ['sleep', 'wake'];
    throw new TypeError(
      `createModelServer: ${missing} is missing; give both ${given} and ${missing}`,
    );
  }
  const read = (name: keyof typeof RANGES) =>
    readNumber('createModelServer', name, options[name], RANGES[name]);
  return {
    ...readProgram('createModelServer', options, inherited),
    cwd,
    weights: readWeightPaths('createModelServer', options.weights),
    ready,
    hooks: sleep === undefined || wake === undefined ? undefined : { park: sleep, wake },
    maxConcurrent: read('maxConcurrent'),
    maxWaiting: read('maxWaiting'),
    startTimeoutMs: read('startTimeoutMs'),
    stopTimeoutMs: read('stopTimeoutMs'),
    hangTimeoutMs: read('hangTimeoutMs'),
    maxBackoffMs: read('maxBackoffMs'),
  };
}

/** The arguments and the environment of a server with this port. */
export function bindPort(
  { args, env: own, inherited }: CompleteServerOptions,
  port: number,
): { args: string[]; env: Record<string, string | undefined> } {
  const fill = (text: string) => text.replaceAll('{port}', String(port));
  const filled = Object.entries(own).map(([name, value]) => [name, value && fill(value)]);
  return {
    args: args.map(fill),
    env: { PYTHONUNBUFFERED: '1', ...inherited, ...Object.fromEntries(filled), PORT: String(port) },
  };
}
