// Makes the platform reachable for workers in containers, or logs why they cannot reach it: chooses the URL, and judges
// whether containers can reach it there.
import { X509Certificate } from 'node:crypto';
import { isIPv4, isIPv6 } from 'node:net';
import { type Clock, sleep } from '../../base/clock.ts';
import type { EngineKind } from '../../control/endpoints/templates.ts';
import { type ContainerReach, type Engine, EngineError } from '../../engine/engine.ts';
import { PlatformOptionError } from '../option-error.ts';
import type { CompleteOptions } from '../platform-options.ts';

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

interface WorkerAccess {
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

/** How containers name their engine's machine. */
const HOST_NAME = 'host.docker.internal';
const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

interface WorkerUrlChoice {
  engine: EngineKind;
  /** Of the options. Undefined: chosen here. */
  given: string | undefined;
  /** Address that the platform listens on. */
  host: string;
  /** URL of the platform for clients on this machine. */
  url: string;
}

interface WorkerUrl {
  url: string;
  /**
   * `host`: containers call this machine by its name for them. `bridge`: also by its name, and the platform listens only on
   * loopback, so it needs another address to listen on. `elsewhere`: somebody else chose the way.
   */
  way: 'host' | 'bridge' | 'elsewhere';
}

/** Returns why the URL can never be right; undefined if it may be. */
export function findUrlFault({
  engine,
  given,
}: Pick<WorkerUrlChoice, 'engine' | 'given'>): string | undefined {
  if (engine === 'kubernetes' && given === undefined) {
    return 'is required for the engine kubernetes; give the URL at which Pods reach the platform, such as that of its Service';
  }
  if (engine !== 'docker' || given === undefined || !URL.canParse(given)) return undefined;
  const { hostname } = new URL(given);
  if (!isLoopback(hostname)) return undefined;
  return `${given} leads each container to itself; leave the option out, or give a URL that containers can reach`;
}

export function chooseWorkerUrl({ engine, given, host, url }: WorkerUrlChoice): WorkerUrl {
  if (engine !== 'docker') return { url: given ?? url, way: 'elsewhere' };
  const byName = new URL(url);
  byName.hostname = HOST_NAME;
  const ofHost = given ?? byName.href.replace(/\/$/, '');
  if (!isSamePlace(ofHost, byName)) return { url: ofHost, way: 'elsewhere' };
  if (isLoopback(host)) return { url: ofHost, way: 'bridge' };
  if (WILDCARDS.has(host)) return { url: ofHost, way: 'host' };
  // Other addresses of the machine have no listener.
  return { url: given ?? url, way: 'elsewhere' };
}

type Verdict =
  | { kind: 'reachable' }
  /** The platform must also listen on this address. */
  | { kind: 'listen'; host: string }
  | { kind: 'unreachable'; problem: string };

export interface ReachCheck {
  way: WorkerUrl['way'];
  reach: ContainerReach;
  port: number;
  /** Whether the platform may listen on the address of the engine's bridge. */
  listener: 'bridge' | 'none';
  /** PEM. Undefined: plain HTTP. */
  certificate: string | undefined;
}

export function judgeReach(check: ReachCheck): Verdict {
  const { certificate, listener, port, reach, way } = check;
  const { gateway, hostName } = reach;
  if (way === 'elsewhere') return { kind: 'reachable' };
  if (certificate !== undefined && !new X509Certificate(certificate).checkHost(HOST_NAME)) {
    const problem =
      `the certificate of --tls-cert is not for ${HOST_NAME}, the name by which containers call this machine; ` +
      `start the platform with --worker-url https://NAME:${port}, with a name of the certificate that containers can resolve`;
    return { kind: 'unreachable', problem };
  }
  if (hostName === 'none') {
    const problem = `the engine gives containers no ${HOST_NAME}; ${remedy('ADDRESS', port)}`;
    return { kind: 'unreachable', problem };
  }
  if (way === 'host' || hostName === 'loopback') return { kind: 'reachable' };
  if (gateway !== null && listener === 'bridge') return { kind: 'listen', host: gateway };
  const problem = `the platform listens only on loopback; ${remedy(gateway ?? 'ADDRESS', port)}`;
  return { kind: 'unreachable', problem };
}

/** `address`: one of this machine that containers reach. */
function remedy(address: string, port: number): string {
  const what =
    address === 'ADDRESS' ? ', with an address of this machine that containers can reach' : '';
  return `start the platform with --host ${address} --worker-url http://${address}:${port}${what}`;
}

/** Why the platform cannot listen on the gateway's address. */
export function explainListenFailure(host: string, port: number, error: unknown): string {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  if (code === 'EADDRNOTAVAIL') {
    return (
      `containers reach the engine's machine at ${host}, which is no address of this machine; ` +
      remedy('ADDRESS', port)
    );
  }
  if (code === 'EADDRINUSE') {
    return `port ${port} on ${host}, the address for containers, is in use; choose another --port`;
  }
  const reason = error instanceof Error ? error.message : String(error);
  return `listening on ${host}, the address for containers, failed: ${reason}`;
}

function isSamePlace(url: string, other: URL): boolean {
  if (!URL.canParse(url)) return false;
  const { hostname, port } = new URL(url);
  return hostname === other.hostname && port === other.port;
}

function isLoopback(host: string): boolean {
  const address = host.replace(/^\[|\]$/g, '');
  if (isIPv4(address)) return address.startsWith('127.');
  return address === 'localhost' || (isIPv6(address) && address === '::1');
}
