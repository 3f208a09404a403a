// The server side of RunPod's worker protocol, as known from public code and captured requests, including
// its quirks, with faults that a test injects.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export type RunPodRoute = 'take' | 'stop' | 'stream' | 'done' | 'ping';

/** A fault of one request. */
export type RunPodFault =
  /** Answers with the status and does nothing else. */
  | { kind: 'status'; status: number; headers?: Record<string, string> }
  /** Resets the connection before or after the server acts. */
  | { kind: 'reset'; when: 'before' | 'after' };

export interface SeenRequest {
  route: RunPodRoute;
  method: string;
  /** As received, with its query. */
  url: string;
  headers: IncomingMessage['headers'];
  jobId: string | undefined;
  body: string;
  at: number;
}

/** The server's state of a job. */
export interface StandInJob {
  id: string;
  deliveries: number;
  stream: { output?: unknown; metrics?: unknown }[];
  progress: unknown[];
  /** Results in order of arrival; the first one counts. */
  results: StandInResult[];
}

export interface StandInResult {
  output?: unknown;
  error?: unknown;
  stopPod?: boolean;
  isStream: string | null;
}

export interface RunPodServerOptions {
  /** Maximum wait of takes and stops, ms. */
  holdMs?: number;
  /** Form of the URL templates. */
  templates?: 'query' | 'bare' | 'question' | 'literal';
  /** Called for each request; undefined: no fault. */
  fault?: (route: RunPodRoute, jobId: string | undefined) => RunPodFault | undefined;
}

interface Waiter {
  response: ServerResponse;
  max: number | undefined;
  timer: NodeJS.Timeout;
}

const POD = 'pod-abc';
const KEY = 'worker-key';

export class RunPodServer {
  readonly jobs = new Map<string, StandInJob>();
  readonly requests: SeenRequest[] = [];
  fault: RunPodServerOptions['fault'];
  readonly #options: Required<Pick<RunPodServerOptions, 'holdMs' | 'templates'>>;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #queue: unknown[] = [];
  readonly #takes = new Set<Waiter>();
  readonly #stops = new Set<Waiter>();
  readonly #toStop: string[] = [];
  readonly #watchers = new Set<() => void>();
  #port = 0;

  private constructor({ fault, holdMs = 300, templates = 'query' }: RunPodServerOptions) {
    this.#options = { holdMs, templates };
    this.fault = fault;
    this.#server = createServer((request, response) => void this.#serve(request, response));
    this.#server.on('connection', (socket) => {
      this.#sockets.add(socket);
      socket.once('close', () => this.#sockets.delete(socket));
    });
  }

  static async start(options: RunPodServerOptions = {}): Promise<RunPodServer> {
    const server = new RunPodServer(options);
    server.#server.listen(0, '127.0.0.1');
    await once(server.#server, 'listening');
    const address = server.#server.address();
    if (address === null || typeof address === 'string') throw new Error('there is no port');
    server.#port = address.port;
    return server;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  get templates() {
    const base = `${this.url}/v2/ep1`;
    const end = { query: '?gpu=NVIDIA+L4', bare: '', question: '?', literal: '?gpu=NVIDIA+L4' };
    const query = end[this.#options.templates];
    const worker = this.#options.templates === 'literal' ? '$RUNPOD_POD_ID' : '$ID';
    return {
      take: `${base}/job-take/${worker}${query}`,
      done: `${base}/job-done/$RUNPOD_POD_ID/$ID${query}`,
      stream: `${base}/job-stream/$RUNPOD_POD_ID/$ID${query}`,
      ping: `${base}/ping/$RUNPOD_POD_ID${query}`,
    };
  }

  /** The environment that RunPod sets for a worker. */
  get environment(): Record<string, string> {
    const { done, ping, stream, take } = this.templates;
    return {
      RUNPOD_WEBHOOK_GET_JOB: take,
      RUNPOD_WEBHOOK_POST_OUTPUT: done,
      RUNPOD_WEBHOOK_POST_STREAM: stream,
      RUNPOD_WEBHOOK_PING: ping,
      RUNPOD_PING_INTERVAL: '1000',
      RUNPOD_AI_API_KEY: KEY,
      RUNPOD_POD_ID: POD,
      RUNPOD_ENDPOINT_ID: 'ep1',
    };
  }

  /** Delivers a job; delivers it again if it already exists. */
  submit(id: string, input: unknown): void {
    this.#know(id);
    this.offer({ id, input });
  }

  /** Delivers any element, even an invalid one. */
  offer(element: unknown): void {
    this.#queue.push(element);
    this.#handOut();
  }

  /** Requests stops of the jobs with the next answer to a stop poll. */
  stop(...ids: string[]): void {
    this.#toStop.push(...ids);
    for (const waiter of this.#stops) this.#answerStop(waiter);
  }

  job(id: string): StandInJob {
    const job = this.jobs.get(id);
    if (!job) throw new Error(`job ${id} not found`);
    return job;
  }

  of(route: RunPodRoute): SeenRequest[] {
    return this.requests.filter((request) => request.route === route);
  }

  /** Resolves when the condition holds; checks it after each request. */
  async until(holds: () => boolean): Promise<void> {
    if (holds()) return;
    await new Promise<void>((resolve) => {
      const look = () => {
        if (!holds()) return;
        this.#watchers.delete(look);
        resolve();
      };
      this.#watchers.add(look);
    });
  }

  async result(id: string): Promise<StandInResult> {
    await this.until(() => (this.jobs.get(id)?.results.length ?? 0) > 0);
    const [first] = this.job(id).results;
    if (!first) throw new Error('there is no result');
    return first;
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    try {
      for await (const piece of request) pieces.push(piece);
    } catch {
      return;
    }
    const seen = readRequest(request, Buffer.concat(pieces).toString());
    if (seen === undefined || request.headers.authorization !== KEY) {
      response.writeHead(seen ? 401 : 404).end();
      return;
    }
    this.requests.push(seen);
    const fault = this.fault?.(seen.route, seen.jobId);
    if (fault?.kind === 'reset' && fault.when === 'before') request.socket.resetAndDestroy();
    else if (fault?.kind === 'status') response.writeHead(fault.status, fault.headers).end();
    else this.#act(seen, response, fault);
    for (const look of this.#watchers) look();
  }

  #act(seen: SeenRequest, response: ServerResponse, fault: RunPodFault | undefined): void {
    const { route } = seen;
    if (route === 'take' || route === 'stop') {
      this.#hold(seen, response);
      return;
    }
    if (route === 'done') this.#noteDone(seen);
    if (route === 'stream') this.#know(seen.jobId ?? '').stream.push(JSON.parse(seen.body));
    if (fault) response.socket?.resetAndDestroy();
    else response.writeHead(200).end();
  }

  #noteDone({ body, jobId = '', url }: SeenRequest): void {
    const job = this.#know(jobId);
    const result = JSON.parse(body);
    // A result without a status ends the job.
    if (result.status === 'IN_PROGRESS') job.progress.push(result.output);
    else job.results.push({ ...result, isStream: readParameter(url, 'isStream') });
  }

  #hold(seen: SeenRequest, response: ServerResponse): void {
    const isTake = seen.route === 'take';
    const waiting = isTake ? this.#takes : this.#stops;
    const batch = readParameter(seen.url, 'batch_size');
    const end = () => {
      waiting.delete(waiter);
      response.writeHead(204).end();
    };
    const timer = setTimeout(end, this.#options.holdMs);
    const waiter: Waiter = { response, max: batch === null ? undefined : Number(batch), timer };
    waiting.add(waiter);
    response.once('close', () => {
      clearTimeout(timer);
      waiting.delete(waiter);
    });
    if (isTake) this.#handOut();
    else this.#answerStop(waiter);
  }

  #handOut(): void {
    for (const waiter of this.#takes) {
      if (this.#queue.length === 0) return;
      const jobs = this.#queue.splice(0, waiter.max ?? 1);
      for (const job of jobs) this.#noteDelivery(job);
      this.#takes.delete(waiter);
      this.#answer(waiter, waiter.max === undefined ? jobs[0] : jobs);
    }
  }

  #noteDelivery(job: unknown): void {
    if (typeof job !== 'object' || job === null || !('id' in job)) return;
    this.#know(String(job.id)).deliveries += 1;
  }

  #answerStop(waiter: Waiter): void {
    if (this.#toStop.length === 0) return;
    this.#stops.delete(waiter);
    this.#answer(waiter, { jobsToStop: this.#toStop.splice(0) });
  }

  #answer({ response, timer }: Waiter, body: unknown): void {
    clearTimeout(timer);
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  }

  #know(id: string): StandInJob {
    const known = this.jobs.get(id);
    if (known) return known;
    const job: StandInJob = { id, deliveries: 0, stream: [], progress: [], results: [] };
    this.jobs.set(id, job);
    return job;
  }
}

const ROUTES: Readonly<Record<string, RunPodRoute>> = {
  'job-take': 'take',
  'job-take-batch': 'take',
  'job-stop': 'stop',
  'job-stream': 'stream',
  'job-done': 'done',
  ping: 'ping',
};

/** Returns undefined if the request has an unknown route or another pod. */
function readRequest(request: IncomingMessage, body: string): SeenRequest | undefined {
  const { headers, method = '', url = '' } = request;
  const [, , , word = '', pod, jobId] = (url.split('?')[0] ?? '').split('/');
  const route = ROUTES[word];
  if (route === undefined || pod !== POD) return undefined;
  const id = jobId === undefined ? undefined : decodeURIComponent(jobId);
  return { route, method, url, headers, jobId: id, body, at: Date.now() };
}

function readParameter(url: string, name: string): string | null {
  return new URL(url, 'http://localhost').searchParams.get(name);
}
