// A server of RunPod's worker protocol for a worker under test: hands out jobs, holds polls as
// RunPod does, records every request, and injects errors.
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { http } from '../../base/net/node-http.ts';
import { type CheckInput, Watch, type WorkerExit } from '../checks.ts';

export const PING_MS = 1_000;
const HOLD_MS = 2_000;
const POD = 'conformance-pod';
const KEY = 'conformance-key';

type WorkerRoute = 'job-take' | 'job-stop' | 'job-stream' | 'job-done' | 'ping';

export interface RecordedRequest {
  route: WorkerRoute;
  method: string;
  pod: string;
  jobId: string | undefined;
  query: URLSearchParams;
  key: string | undefined;
  body: unknown;
  /** Unix ms. */
  at: number;
  /** It got an error or no answer. */
  isRefused: boolean;
}

/** Replaces the answer: by a status, or by a reset of the connection. */
type Disturbance = { route: WorkerRoute; status: number | 'reset' };

interface RunPodStandOptions extends WorkerExit {
  host: string;
  port: number;
}

interface PendingPoll {
  route: 'job-take' | 'job-stop';
  max: number | undefined;
  response: ServerResponse;
}

export class RunPodStand {
  readonly options: RunPodStandOptions;
  readonly requests: RecordedRequest[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #polls = new Set<PendingPoll>();
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

  /** Listens. @throws the system's error for an invalid address */
  static async open(options: RunPodStandOptions): Promise<RunPodStand> {
    const stand = new RunPodStand(options);
    stand.#server.listen(options.port, options.host);
    await once(stand.#server, 'listening');
    const address = stand.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the server has no port');
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
      // The check of the machine does not matter here.
      RUNPOD_SKIP_AUTO_SYSTEM_CHECKS: 'true',
      RUNPOD_SKIP_GPU_CHECK: 'true',
    };
  }

  /** Waits for the worker's first request. @throws Deviation */
  arrival(ms: number): Promise<RecordedRequest> {
    return this.until(ms, 'no worker connected', () => this.requests[0]);
  }

  /** @returns the job's ID */
  submit(input: CheckInput): string {
    const id = `${randomUUID()}-u1`;
    this.#queue.push({ id, input });
    this.#handOut();
    return id;
  }

  /** Requests that the job is stopped. */
  stop(id: string): void {
    this.#toStop.push(id);
    this.#handOut();
  }

  /** Applies to the next request of the route. */
  disturb(disturbance: Disturbance): void {
    this.#disturbances.push(disturbance);
  }

  of(route: WorkerRoute, jobId?: string): RecordedRequest[] {
    return this.requests.filter(
      (seen) => seen.route === route && (jobId === undefined || seen.jobId === jobId),
    );
  }

  /** Posted results of the job that were answered with success. */
  results(id: string): RecordedRequest[] {
    return this.of('job-done', id).filter(({ body, isRefused }) => !isRefused && !isProgress(body));
  }

  /** @throws Deviation */
  result(id: string, ms: number): Promise<RecordedRequest> {
    return this.until(ms, 'no result was posted', () => this.results(id)[0]);
  }

  /** Runs `find` after each request until it returns a value. @throws Deviation */
  until<T>(ms: number, what: string, find: () => T | undefined): Promise<T> {
    return this.#watch.until(ms, what, find);
  }

  /** Makes `until` run `find` again after a change that is not a request. */
  check(): void {
    this.#watch.check();
  }

  /** Whether the job has been sent on a worker's connection. */
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
    const received = await readRequest(request).catch(() => undefined);
    if (!received) {
      response.writeHead(404).end();
      return;
    }
    const index = this.#disturbances.findIndex(({ route }) => route === received.route);
    const disturbance = index < 0 ? undefined : this.#disturbances.splice(index, 1)[0];
    received.isRefused = disturbance !== undefined || received.key !== KEY;
    this.requests.push(received);
    if (received.key !== KEY) response.writeHead(401).end();
    else if (disturbance?.status === 'reset') request.socket.resetAndDestroy();
    else if (disturbance) response.writeHead(disturbance.status).end();
    else if (received.route === 'job-take' || received.route === 'job-stop')
      this.#hold(received, response);
    else response.writeHead(200).end();
    this.#watch.check();
  }

  #hold({ query, route }: RecordedRequest, response: ServerResponse): void {
    if (route !== 'job-take' && route !== 'job-stop') return;
    const size = query.get('batch_size');
    const poll: PendingPoll = { route, max: size === null ? undefined : Number(size), response };
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

  #answer(poll: PendingPoll, body: unknown): void {
    this.#polls.delete(poll);
    poll.response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    this.#watch.check();
  }
}

function isProgress(body: unknown): boolean {
  return readMember(body, 'status') === 'IN_PROGRESS';
}

export function readMember(body: unknown, name: string): unknown {
  return new Map<string, unknown>(Object.entries(Object(body))).get(name);
}

/** Undefined if the request is not part of the protocol. */
async function readRequest(request: IncomingMessage): Promise<RecordedRequest | undefined> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece);
  const { headers, method = '', url = '' } = request;
  // Workers append "&name=value" with or without a "?".
  const [path = '', ...rest] = url.split(/[?&]/);
  const [, , , word = '', pod = '', job] = path.split('/');
  const route = ROUTES.get(word);
  if (route === undefined) return undefined;
  const text = Buffer.concat(pieces).toString();
  return {
    route,
    method,
    pod,
    key: headers.authorization,
    at: Date.now(),
    isRefused: false,
    jobId: job === undefined ? undefined : decodeURIComponent(job),
    query: new URLSearchParams(rest.join('&')),
    body: text === '' ? undefined : JSON.parse(text),
  };
}

const ROUTES = new Map<string, WorkerRoute>([
  ['job-take', 'job-take'],
  ['job-take-batch', 'job-take'],
  ['job-stop', 'job-stop'],
  ['job-stream', 'job-stream'],
  ['job-done', 'job-done'],
  ['ping', 'ping'],
]);
