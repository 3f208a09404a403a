// One worker of a load-balancing endpoint: its address, from its pod, its connections, its health, and its number of
// requests. balancer.ts assigns requests.
import { isIPv6 } from 'node:net';
import type { buildConnector, Pool } from 'undici';
import { type Clock, sleep } from '../../base/clock.ts';
import { loadUndici } from '../../base/net/undici.ts';
import type { LivePods } from '../pods/live-pods.ts';
import type { PodState } from '../pods/pod-state.ts';

const PING_PATH = '/ping';
/** Interval of pings, ms; shorter while the worker starts, because requests may wait for it. */
const PING_MS = 1_000;
const AWAITED_PING_MS = 250;
const PING_LIMIT_MS = 2_000;
/** Most bytes of a ping's response, which is ignored. */
const MAX_PING_BYTES = 65_536;
const CONNECT_LIMIT_MS = 5_000;
/**
 * Less than the 5 s after which common servers close connections, so that no request meets a
 * closing one.
 */
const KEPT_OPEN_MS = 4_000;

/** Opens a connection to a worker. */
export type Connector = buildConnector.connector;

export interface BalancedWorkerOptions {
  target: WorkerTarget;
  /** Default: connects to the address of the target. */
  connector?: Connector | undefined;
  clock: Clock;
  /** Most concurrent requests. */
  maxOpen: number;
  /** Called when the worker may get requests, or no longer may. */
  onChange: () => void;
}

export class BalancedWorker {
  /** Without limits of its own, so that the error always names the limit that was reached. */
  readonly pool: Pool;
  /** Requests that it has now, and since the start. */
  open = 0;
  taken = 0;
  /** Number of its last request among all of the endpoint's requests. */
  lastCall = 0;
  /** It gets no new requests. */
  isDraining = false;
  target: WorkerTarget;
  readonly #options: BalancedWorkerOptions;
  readonly #closing = new AbortController();
  #health: PingHealth = 'starting';
  #lastPing = 'has not answered GET /ping yet';

  constructor(options: BalancedWorkerOptions) {
    this.#options = options;
    this.target = options.target;
    const { connector, target } = options;
    const { ip, port } = target;
    const { Pool } = loadUndici();
    this.pool = new Pool(`http://${isIPv6(ip) ? `[${ip}]` : ip}:${port}`, {
      allowH2: false,
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
      connectTimeout: CONNECT_LIMIT_MS,
      keepAliveTimeout: KEPT_OPEN_MS,
      ...(connector && { connect: connector }),
    });
  }

  /** Pings the worker until it is closed. */
  async watch(): Promise<void> {
    const { signal } = this.#closing;
    const { clock, onChange } = this.#options;
    while (!signal.aborted) {
      const health = judgePing(this.#health, await this.#ping());
      if (signal.aborted) return;
      const hasChanged = mayServe(health) !== this.isReady;
      this.#health = health;
      if (hasChanged) onChange();
      await sleep(clock, this.isReady ? PING_MS : AWAITED_PING_MS, signal);
    }
  }

  get isReady(): boolean {
    return mayServe(this.#health);
  }

  get takesMore(): boolean {
    if (!this.isReady || this.isDraining || this.target.isLeaving) return false;
    return this.open < this.#options.maxOpen;
  }

  /** Why it is not ready, for people. */
  describe(): string {
    return `${this.target.podId} ${this.#lastPing}`;
  }

  /** The connection failed: the worker gets nothing until it answers a ping. */
  noteUnreachable(): void {
    this.#health = 'out';
    this.#options.onChange();
  }

  /** Breaks its connections with all requests on them. */
  close(): void {
    this.#closing.abort();
    this.pool.destroy(new Error('the worker is not there any more')).catch(() => {});
  }

  async #ping(): Promise<PingResult> {
    const limit = new AbortController();
    const cancel = this.#options.clock.after(PING_LIMIT_MS, () => limit.abort());
    const signal = AbortSignal.any([limit.signal, this.#closing.signal]);
    try {
      const answer = await this.pool.request({ method: 'GET', path: PING_PATH, signal });
      await answer.body.dump({ limit: MAX_PING_BYTES, signal });
      this.#lastPing = `answers GET /ping with ${answer.statusCode}`;
      if (answer.statusCode === 200) return 'ready';
      return answer.statusCode === 204 ? 'starting' : 'failed';
    } catch (error) {
      this.#lastPing = limit.signal.aborted
        ? `does not answer GET /ping within ${PING_LIMIT_MS} ms`
        : `cannot be asked GET /ping (${readCode(error)})`;
      return 'failed';
    } finally {
      cancel();
    }
  }
}

function readCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'no answer';
}

/** The HTTP port of a worker with a running container. */
export interface WorkerTarget {
  endpointId: string;
  podId: string;
  /** Node on whose machine the address is; undefined if the platform has only one. */
  node: string | undefined;
  /** Address from that machine. */
  ip: string;
  port: number;
  /** The worker is about to end or to be recreated: it gets no new requests. */
  isLeaving: boolean;
}

/** Finds the HTTP addresses of endpoints' workers. The balancer chooses among them. */
export interface TargetSource {
  all(): WorkerTarget[];
  /** Undefined if the pod is not a worker, has no HTTP port, or its container does not run. */
  find(podId: string): WorkerTarget | undefined;
  /**
   * Calls the listener with each pod whose target may have changed. @returns the function that
   * stops it
   */
  onChange(listener: (podId: string) => void): () => void;
}

/** For a pod with several HTTP ports, the first one counts. */
export class PodTargets implements TargetSource {
  readonly #pods: Pick<LivePods, 'all' | 'get' | 'onChange' | 'seen'>;

  constructor(pods: Pick<LivePods, 'all' | 'get' | 'onChange' | 'seen'>) {
    this.#pods = pods;
  }

  all(): WorkerTarget[] {
    return this.#pods.all().flatMap((pod) => this.#describe(pod) ?? []);
  }

  find(podId: string): WorkerTarget | undefined {
    const pod = this.#pods.get(podId);
    return pod && this.#describe(pod);
  }

  onChange(listener: (podId: string) => void): () => void {
    return this.#pods.onChange(listener);
  }

  #describe(pod: PodState): WorkerTarget | undefined {
    const { desired, endpointId, generation, id, node, spec } = pod;
    const seen = this.#pods.seen(id);
    if (endpointId === null || seen?.state !== 'running') return undefined;
    const wanted = spec.ports.find((port) => port.endsWith('/http'));
    const port = seen.ports.find(({ private: number, type }) => `${number}/${type}` === wanted);
    if (!port || port.ip === null || port.public === null) return undefined;
    const isLeaving = desired !== 'running' || seen.generation !== generation;
    return { endpointId, podId: id, node, ip: port.ip, port: port.public, isLeaving };
  }
}

/** Result of one ping: 200, 204, or anything else. */
export type PingResult = 'ready' | 'starting' | 'failed';

/**
 * `starting`: was never ready, or says that it starts. `missed`: ready, but missed the last ping.
 * `out`: was ready, but is unreliable.
 */
export type PingHealth = 'starting' | 'ready' | 'missed' | 'out';

/** Whether the worker may get requests. It may miss one ping while it is busy; after the second in a row it is out. */
export function judgePing(health: PingHealth, result: PingResult): PingHealth {
  if (result !== 'failed') return result;
  switch (health) {
    case 'starting':
      return 'starting';
    case 'ready':
      return 'missed';
    default:
      return 'out';
  }
}

export function mayServe(health: PingHealth): boolean {
  return health === 'ready' || health === 'missed';
}
