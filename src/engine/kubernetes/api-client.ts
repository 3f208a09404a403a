// Calls the Kubernetes API over HTTP: one request, one answer, bounded in time and size. Judges error answers to a create or
// start; callers interpret all other answers.
import { AsyncLocalStorage } from 'node:async_hooks';
import { Agent, type Dispatcher, request } from 'undici';
import { z } from 'zod';
import { readBody, readErrorText } from '../answers.ts';
import { EngineError } from '../engine.ts';
import { type ApiAccess, type Login, loadLogin } from './login.ts';

/** The API server limits its own answers to 60 s. */
const CALL_LIMIT_MS = 30_000;
const CONNECT_LIMIT_MS = 10_000;
const CONNECTIONS = 32;
/** Of an error's text: users see it in the records of their pods. */
const MAX_ERROR_TEXT = 2_000;
const UNAUTHORIZED = 401;
const NOT_FOUND = 404;

const status = z.object({
  message: z.string().optional(),
  reason: z.string().optional(),
});

/** The API server answered with an error; its text is the message. */
export class KubernetesError extends Error {
  override readonly name = 'KubernetesError';
  readonly status: number;
  /** Such as `AlreadyExists`. Empty if the answer has none. */
  readonly reason: string;

  constructor(status: number, reason: string, message: string) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

export interface ApiRequest {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE';
  path: string;
  query?: Readonly<Record<string, string>>;
  body?: unknown;
  accept?: string;
  limitMs?: number;
  signal?: AbortSignal;
}

/** Throws if the caller may no longer change anything. */
export type Fence = () => void;

export class ApiClient {
  readonly #access: ApiAccess;
  readonly #callLimitMs: number;
  readonly #fence = new AsyncLocalStorage<Fence>();
  #login: Promise<Login> | undefined;
  /** What the last answer said of the API server's clock, Unix ms, and when, by the monotonic clock of this machine. */
  #told: { time: number; at: number } | undefined;
  /** The connections, and the credentials that they were opened with. */
  #pool: { key: string; agent: Agent } | undefined;

  constructor(access: ApiAccess, callLimitMs = CALL_LIMIT_MS) {
    this.#access = access;
    this.#callLimitMs = callLimitMs;
  }

  /** Path of the namespace's objects. @throws EngineError `unavailable` */
  async pathOf(kind: string, name?: string, group = '/api/v1'): Promise<string> {
    const namespace = this.#access.namespace ?? (await this.#load()).namespace ?? 'default';
    const tail = name === undefined ? '' : `/${encodeURIComponent(name)}`;
    return `${group}/namespaces/${encodeURIComponent(namespace)}/${kind}${tail}`;
  }

  /**
   * Calls the fence before each request of the verb: a process that was paused in the middle of it sends no further one.
   * @throws the error of the fence
   */
  within<T>(fence: Fence, verb: () => Promise<T>): Promise<T> {
    return this.#fence.run(fence, verb);
  }

  /** Unix ms by the clock of the API server, whatever this machine's clock says; undefined before the first answer. */
  now(): number | undefined {
    return this.#told && this.#told.time + performance.now() - this.#told.at;
  }

  /** @throws KubernetesError @throws EngineError `unavailable` if the API server did not answer */
  async ask(question: ApiRequest): Promise<unknown> {
    const limit = AbortSignal.timeout(question.limitMs ?? this.#callLimitMs);
    const signal = question.signal ? AbortSignal.any([question.signal, limit]) : limit;
    try {
      const { body } = await this.open({ ...question, signal });
      return JSON.parse((await readBody(body)).toString());
    } catch (error) {
      throw translate(error);
    }
  }

  /** Undefined if the object does not exist. @throws like `ask` */
  async find(question: ApiRequest): Promise<unknown> {
    try {
      return await this.ask(question);
    } catch (error) {
      if (error instanceof KubernetesError && error.status === NOT_FOUND) return undefined;
      throw error;
    }
  }

  /** An answer whose body the caller reads. @throws like `ask` */
  async open(question: ApiRequest): Promise<Dispatcher.ResponseData> {
    const { accept = 'application/json', body, method, path, query = {}, signal } = question;
    const { agent, headers, login } = await this.#connect();
    // As late as possible: what is sent cannot be taken back.
    this.#fence.getStore()?.();
    const search = new URLSearchParams(query).toString();
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const answer = await request(`${login.server}${path}${search === '' ? '' : `?${search}`}`, {
      method,
      dispatcher: agent,
      signal: signal ?? null,
      headers: { accept, ...(body !== undefined && { 'content-type': type }), ...headers },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const time = Date.parse(`${answer.headers['date']}`);
    if (Number.isFinite(time)) this.#told = { time, at: performance.now() };
    if (answer.statusCode < 300) return answer;
    if (answer.statusCode === UNAUTHORIZED) login.forget();
    throw await readError(answer);
  }

  async close(): Promise<void> {
    const pool = this.#pool;
    this.#pool = undefined;
    await pool?.agent.destroy();
  }

  async #connect() {
    const login = await this.#load();
    const { headers, tls } = await login.sign();
    // Certificates may be renewed while the platform runs.
    const key = JSON.stringify(tls);
    if (this.#pool?.key !== key) {
      const timeouts = { headersTimeout: 0, bodyTimeout: 0, connections: CONNECTIONS };
      const former = this.#pool;
      const connect = { timeout: CONNECT_LIMIT_MS, ...tls };
      this.#pool = { key, agent: new Agent({ ...timeouts, connect }) };
      void former?.agent.close();
    }
    return { agent: this.#pool.agent, headers, login };
  }

  #load(): Promise<Login> {
    this.#login ??= loadLogin(this.#access).catch((error: unknown) => {
      this.#login = undefined;
      throw translate(error);
    });
    return this.#login;
  }
}

async function readError(answer: Dispatcher.ResponseData): Promise<KubernetesError> {
  const text = await readErrorText(answer.body);
  let parsed: z.infer<typeof status> | undefined;
  try {
    parsed = status.safeParse(JSON.parse(text)).data;
  } catch {
    // A proxy in front of the API server may answer with a page.
  }
  const message = parsed?.message ?? `the API server answered ${answer.statusCode}`;
  const shown = message.slice(0, MAX_ERROR_TEXT);
  return new KubernetesError(answer.statusCode, parsed?.reason ?? '', shown);
}

function translate(error: unknown): KubernetesError | EngineError {
  if (error instanceof KubernetesError || error instanceof EngineError) return error;
  const reason = error instanceof Error ? error.message || String(error.cause) : String(error);
  const message = `the Kubernetes API does not answer: ${reason}`;
  return new EngineError('unavailable', message, { cause: error });
}

const BAD_REQUEST = 400;
const TOO_LARGE = 413;
const INVALID = 422;
const FORBIDDEN = 403;
/** A quota of the namespace may allow it later; a rule of the namespace changes only with the operator. */
const QUOTA = /exceeded quota/i;
const POLICY = /violates PodSecurity|denied the request|podsecurity/i;

export function judgeRefusal(answer: KubernetesError): EngineError {
  const { message, status } = answer;
  const isPermanent =
    [BAD_REQUEST, TOO_LARGE, INVALID].includes(status) ||
    (status === FORBIDDEN && POLICY.test(message) && !QUOTA.test(message));
  return new EngineError(isPermanent ? 'refused' : 'unavailable', message, { cause: answer });
}
