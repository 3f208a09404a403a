// A server of RunPod's worker protocol that a worker under test connects to: it hands out jobs, holds
// polls as that cloud does, notes every request, and answers chosen ones wrongly.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { http } from '../../base/node-http.ts';
import type { Deed } from '../check-inputs.ts';
import { Watch } from '../watch.ts';
import type { Departure } from '../worker-exit.ts';

export const PING_MS = 1_000;
const HOLD_MS = 2_000;
const POD = 'conformance-pod';
const KEY = 'conformance-key';

export type Route = 'job-take' | 'job-stop' | 'job-stream' | 'job-done' | 'ping';

export interface Told {
  route: Route;
  method: string;
  pod: string;
  jobId: string | undefined;
  query: URLSearchParams;
  key: string | undefined;
  body: unknown;
  /** Unix ms. */
  at: number;
  /** It was answered wrongly, or not at all. */
  isRefused: boolean;
}

/** Instead of the answer: a status, or a reset connection. */
export type Disturbance = { route: Route; status: number | 'reset' };

export interface RunPodStandOptions extends Departure {
  host: string;
  port: number;
}

interface Poll {
  route: 'job-take' | 'job-stop';
  max: number | undefined;
  response: ServerResponse;
}

export class RunPodStand {
  readonly options: RunPodStandOptions;
  readonly told: Told[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #polls = new Set<Poll>();
  readonly #queue: { id: string; input: unknown }[] = [];
  readonly #toStop: string[] = [];
  readonly #disturbances: Disturbance[] = [];
  readonly #handedOut = new Set<string>();
  readonly #watch = new Watch();
  #port = 0;

  private constructor(options: RunPodStandOptions) {
    this.options = options;
    this.#server = http.createServer((request, response) => void this.#serve(request, response));
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
  }

  /** Listens. @throws what the system says about the address */
  static async open(options: RunPodStandOptions): Promise<RunPodStand> {
    const stand = new RunPodStand(options);
    stand.#server.listen(options.port, options.host);
    await once(stand.#server, 'listening');
    const address = stand.#server.address();
    if (address === null || typeof address === 'string') throw new Error('there is no port');
    stand.#port = address.port;
    return stand;
  }

  get environment(): Readonly<Record<string, string>> {
    const { host } = this.options;
    const name = host.includes(':') ? `[${host}]` : host;
    const base = `http://${name}:${this.#port}/v2/conformance`;
    return {
      RUNPOD_WEBHOOK_GET_JOB: `${base}/job-take/$ID?gpu=none`,
      RUNPOD_WEBHOOK_POST_OUTPUT: `${base}/job-done/$RUNPOD_POD_ID/$ID?gpu=none`,
      RUNPOD_WEBHOOK_POST_STREAM: `${base}/job-stream/$RUNPOD_POD_ID/$ID?gpu=none`,
      RUNPOD_WEBHOOK_PING: `${base}/ping/$RUNPOD_POD_ID?gpu=none`,
      RUNPOD_PING_INTERVAL: String(PING_MS),
      RUNPOD_AI_API_KEY: KEY,
      RUNPOD_POD_ID: POD,
      RUNPOD_ENDPOINT_ID: 'conformance',
      // What this machine has is not the matter here.
      RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true',
      RUNPOD_SKIP_GPU_CHECK: 'true',
    };
  }

  /** The worker's first word. @throws Deviation */
  arrival(ms: number): Promise<Told> {
    return this.until(ms, 'no worker said anything', () => this.told[0]);
  }

  /** Its id. */
  submit(deed: Deed): string {
    const id = `${randomUUID()}-u1`;
    this.#queue.push({ id, input: deed });
    this.#handOut();
    return id;
  }

  /** Wants the job stopped. */
  stop(id: string): void {
    this.#toStop.push(id);
    this.#handOut();
  }

  /** The next request of the route fares so. */
  disturb(disturbance: Disturbance): void {
    this.#disturbances.push(disturbance);
  }

  of(route: Route, jobId?: string): Told[] {
    return this.told.filter(
      (told) => told.route === route && (jobId === undefined || told.jobId === jobId),
    );
  }

  /** What was said at the end of the job, once it has been answered. */
  results(id: string): Told[] {
    return this.of('job-done', id).filter(({ body, isRefused }) => !isRefused && !isProgress(body));
  }

  /** @throws Deviation */
  result(id: string, ms: number): Promise<Told> {
    return this.until(ms, 'no result came', () => this.results(id)[0]);
  }

  /** Comes back with what `find` finds, looked for after each request. @throws Deviation */
  until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    return this.#watch.until(ms, what, find);
  }

  /** Something changed that is no request: whoever waits looks again. */
  look(): void {
    this.#watch.look();
  }

  /** The worker has the job, or its connection has. */
  isHandedOut(id: string): boolean {
    return this.#handedOut.has(id);
  }

  /** @throws Deviation */
  async handedOut(id: string, ms: number): Promise<void> {
    const find = () => (this.isHandedOut(id) ? id : undefined);
    await this.until(ms, 'the job was not taken', find);
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const told = await readRequest(request).catch(() => undefined);
    if (!told) {
      response.writeHead(404).end();
      return;
    }
    const index = this.#disturbances.findIndex(({ route }) => route === told.route);
    const disturbance = index < 0 ? undefined : this.#disturbances.splice(index, 1)[0];
    told.isRefused = disturbance !== undefined || told.key !== KEY;
    this.told.push(told);
    if (told.key !== KEY) response.writeHead(401).end();
    else if (disturbance?.status === 'reset') request.socket.resetAndDestroy();
    else if (disturbance) response.writeHead(disturbance.status).end();
    else if (told.route === 'job-take' || told.route === 'job-stop') this.#hold(told, response);
    else response.writeHead(200).end();
    this.#watch.look();
  }

  #hold({ query, route }: Told, response: ServerResponse): void {
    if (route !== 'job-take' && route !== 'job-stop') return;
    const size = query.get('batch_size');
    const poll: Poll = { route, max: size === null ? undefined : Number(size), response };
    const timer = setTimeout(() => response.writeHead(204).end(), HOLD_MS);
    response.once('close', () => {
      clearTimeout(timer);
      this.#polls.delete(poll);
    });
    this.#polls.add(poll);
    this.#handOut();
  }

  #handOut(): void {
    for (const poll of this.#polls) {
      if (poll.route === 'job-stop' && this.#toStop.length > 0) {
        this.#answer(poll, { jobsToStop: this.#toStop.splice(0) });
      } else if (poll.route === 'job-take' && this.#queue.length > 0) {
        const jobs = this.#queue.splice(0, poll.max ?? 1);
        for (const { id } of jobs) this.#handedOut.add(id);
        this.#answer(poll, poll.max === undefined ? jobs[0] : jobs);
      }
    }
  }

  #answer(poll: Poll, body: unknown): void {
    this.#polls.delete(poll);
    poll.response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    this.#watch.look();
  }
}

export function isProgress(body: unknown): boolean {
  return readMember(body, 'status') === 'IN_PROGRESS';
}

export function readMember(body: unknown, name: string): unknown {
  return new Map<string, unknown>(Object.entries(Object(body))).get(name);
}

/** Undefined for what is no request of the protocol. */
async function readRequest(request: IncomingMessage): Promise<Told | undefined> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  const { headers, method = '', url = '' } = request;
  // Workers append "&name=value" whether or not there is a "?".
  const [path = '', ...rest] = url.split(/[?&]/);
  const [, , , word = '', pod = '', job] = path.split('/');
  const route = ROUTES.get(word);
  if (route === undefined) return undefined;
  const text = Buffer.concat(pieces).toString();
  return {
    ...{ route, method, pod, key: headers.authorization, at: Date.now(), isRefused: false },
    jobId: job === undefined ? undefined : decodeURIComponent(job),
    query: new URLSearchParams(rest.join('&')),
    body: text === '' ? undefined : JSON.parse(text),
  };
}

const ROUTES = new Map<string, Route>([
  ['job-take', 'job-take'],
  ['job-take-batch', 'job-take'],
  ['job-stop', 'job-stop'],
  ['job-stream', 'job-stream'],
  ['job-done', 'job-done'],
  ['ping', 'ping'],
]);
