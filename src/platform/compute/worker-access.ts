// Makes the platform reachable for workers in containers, or logs why they cannot reach it.
import { type Clock, sleep } from '../../base/clock.ts';
import { type ContainerReach, type Engine, EngineError } from '../../engine/engine.ts';
import { PlatformOptionError } from '../option-error.ts';
import type { CompleteOptions } from '../platform-options.ts';
import {
  chooseWorkerUrl,
  explainListenFailure,
  findUrlFault,
  judgeReach,
  type WorkerUrl,
} from './worker-url.ts';

/** Interval of the questions to an engine that does not answer, ms. */
const RETRY_MS = 5_000;

export interface WorkerAccessOptions {
  options: Pick<CompleteOptions, 'compute' | 'host' | 'log' | 'tls'>;
  /** The engine of this machine. */
  engine: Pick<Engine, 'findReach'> | undefined;
  /** URL of the platform for clients on this machine. */
  url: string;
  /** Opens another address of the API, with the same port. */
  listenAlso: (host: string) => Promise<void>;
  clock: Clock;
}

export interface WorkerAccess {
  /** URL for the workers of endpoints. */
  url: string;
  close(): Promise<void>;
}

/** @throws PlatformOptionError */
export function checkWorkerUrl({ compute }: Pick<CompleteOptions, 'compute'>): void {
  const fault = findUrlFault({ engine: compute.engine, given: compute.workerUrl });
  if (fault !== undefined) throw new PlatformOptionError('invalid', 'compute.workerUrl', fault);
}

/**
 * Resolves after the first question to the engine; repeats it in the background until the engine answers.
 */
export async function openWorkerAccess(options: WorkerAccessOptions): Promise<WorkerAccess> {
  const { clock, engine, options: given, url } = options;
  const { engine: kind, workerUrl } = given.compute;
  const chosen = chooseWorkerUrl({ engine: kind, given: workerUrl, host: given.host, url });
  const closing = new AbortController();
  const attempt = async () => {
    const reach = await findReach(engine);
    if (reach && !closing.signal.aborted) await provide(reach, chosen, options);
    return reach !== undefined;
  };
  const repeat = async () => {
    do await sleep(clock, RETRY_MS, closing.signal);
    while (!closing.signal.aborted && !(await attempt()));
  };
  const isDone = chosen.way === 'elsewhere' || !engine?.findReach || (await attempt());
  const repeating = isDone ? undefined : repeat();
  return {
    url: chosen.url,
    async close() {
      closing.abort();
      await repeating;
    },
  };
}

/** Undefined: the engine does not answer now, which the reconciler logs. */
async function findReach(
  engine: WorkerAccessOptions['engine'],
): Promise<ContainerReach | undefined> {
  try {
    return await engine?.findReach?.();
  } catch (error) {
    if (error instanceof EngineError) return undefined;
    throw error;
  }
}

async function provide(
  reach: ContainerReach,
  { url, way }: WorkerUrl,
  { listenAlso, options, url: ownUrl }: WorkerAccessOptions,
): Promise<void> {
  const { compute, log, tls } = options;
  const port = Number(new URL(ownUrl).port);
  const { workerListener: listener = 'bridge' } = compute;
  const verdict = judgeReach({ way, reach, port, listener, certificate: tls?.cert });
  const warn = (problem: string) =>
    log.warn({ url, problem }, 'workers in containers cannot reach the platform');
  if (verdict.kind === 'unreachable') warn(verdict.problem);
  if (verdict.kind !== 'listen') return;
  const { host } = verdict;
  try {
    await listenAlso(host);
    log.info({ host, port }, 'listening for workers in containers');
  } catch (error) {
    warn(explainListenFailure(host, port, error));
  }
}
