// A gate before a platform: it passes worker calls on or refuses them, as a test says, and records
// each call with its answer.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { Readable } from 'node:stream';
import type { WorkerVerb } from '../../../src/wire/routes/routes.ts';
import { until } from '../until.ts';

export interface Refusal {
  status: number;
  /** Seconds. */
  retryAfter?: number;
}

export interface NotedCall {
  verb: string;
  /** The call came before half of the `Retry-After` of the verb's last refusal was over. */
  isEarly: boolean;
  /** Undefined while the call is open, or if the caller disconnected. */
  status: number | undefined;
}

const VERB = /\/worker\/([a-z]+)$/;

export class HttpGate {
  readonly calls: NotedCall[] = [];
  readonly #targetUrl: string;
  readonly #server: Server;
  readonly #refusals = new Map<string, Refusal[]>();
  /** Verbs that were refused a short time ago. */
  readonly #held = new Set<string>();
  #refuseAll: Refusal | undefined;
  #port = 0;

  private constructor(targetUrl: string) {
    this.#targetUrl = targetUrl;
    this.#server = createServer((request, response) => {
      this.#serve(request, response).catch(() => response.destroy());
    });
  }

  static async start(targetUrl: string): Promise<HttpGate> {
    const gate = new HttpGate(targetUrl);
    gate.#server.listen(0, '127.0.0.1');
    await once(gate.#server, 'listening');
    const address = gate.#server.address();
    if (address === null || typeof address === 'string') throw new Error('the gate has no port');
    gate.#port = address.port;
    return gate;
  }

  get url(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  /** Resolves with the next call of the verb. */
  refuseNext(verb: WorkerVerb, refusal: Refusal): void {
    this.#refusals.set(verb, [...(this.#refusals.get(verb) ?? []), refusal]);
  }

  /** Answers every later call; undefined passes calls on again. Breaks open ones. */
  refuseAll(refusal: Refusal | undefined): void {
    this.#refuseAll = refusal;
    if (refusal) this.#server.closeAllConnections();
  }

  /** Resolves with the calls of the verb, or of all verbs, when this number has arrived. */
  waitForCalls(verb: WorkerVerb | undefined, count: number): Promise<NotedCall[]> {
    return until(() => {
      const calls = this.calls.filter((call) => verb === undefined || call.verb === verb);
      return calls.length >= count && calls;
    });
  }

  /** Resolves with the refused call of the verb and the one that came after it. */
  waitForRepetition(verb: WorkerVerb, status: number): Promise<[NotedCall, NotedCall]> {
    return until((): [NotedCall, NotedCall] | undefined => {
      const calls = this.calls.filter((call) => call.verb === verb);
      const index = calls.findIndex((call) => call.status === status);
      const [refused, next] = calls.slice(index);
      return index >= 0 && refused && next ? [refused, next] : undefined;
    });
  }

  async close(): Promise<void> {
    const hasClosed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await hasClosed;
  }

  /** Calls of the verb count as early for `ms`. */
  #hold(verb: string, ms: number): void {
    this.#held.add(verb);
    setTimeout(() => this.#held.delete(verb), ms).unref();
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url ?? '';
    const verb = VERB.exec(path)?.[1] ?? path;
    const call: NotedCall = { verb, isEarly: this.#held.has(verb), status: undefined };
    this.calls.push(call);
    const body = Buffer.concat(await Array.fromAsync(request));
    const refusal = this.#refuseAll ?? this.#refusals.get(verb)?.shift();
    if (refusal) {
      call.status = refusal.status;
      const { retryAfter, status } = refusal;
      response.writeHead(
        status,
        retryAfter === undefined ? {} : { 'retry-after': `${retryAfter}` },
      );
      response.end();
      if (retryAfter !== undefined) this.#hold(verb, (retryAfter * 1_000) / 2);
      return;
    }
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const answer = await fetch(this.#targetUrl + path, {
      method: request.method ?? 'GET',
      headers: pickHeaders(request),
      ...(body.length > 0 && { body }),
      signal: gone.signal,
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    call.status = answer.status;
    const type = answer.headers.get('content-type');
    response.writeHead(answer.status, type === null ? {} : { 'content-type': type });
    Readable.from([bytes]).pipe(response);
  }
}

/** All but those of the connection. */
function pickHeaders({ headers }: IncomingMessage): Record<string, string> {
  const kept = Object.entries(headers).flatMap(([name, value]) => {
    const isOwn = ['connection', 'host', 'content-length', 'transfer-encoding'].includes(name);
    return isOwn || typeof value !== 'string' ? [] : [[name, value] as const];
  });
  return Object.fromEntries(kept);
}
