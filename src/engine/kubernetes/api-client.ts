// Calls the Kubernetes API over HTTP: one request, one answer, bounded in time and size. Reads the address and the
// credentials from a kubeconfig file or from the account of the Pod that the platform runs in. Callers interpret the
// answers.
import { AsyncLocalStorage } from 'node:async_hooks';
import { Agent, type Dispatcher, request } from 'undici';
import { z } from 'zod';
import { EngineError } from '../engine.ts';

/** The API server limits its own answers to 60 s. */
const CALL_LIMIT_MS = 30_000;
const CONNECT_LIMIT_MS = 10_000;
const CONNECTIONS = 32;
/** Of an answer that is read as a whole. */
const MAX_ANSWER_BYTES = 256 * 1_048_576;
/** Of an answer that is an error; the rest is not read. */
const MAX_ERROR_BYTES = 65_536;
/** Of an error's text: users see it in the records of their pods. */
const MAX_ERROR_TEXT = 2_000;
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

export interface ApiAccess {
  /** Path of a kubeconfig file. Undefined: the account of the Pod in which the platform runs. */
  kubeconfig: string | undefined;
  /** Default: the namespace of the kubeconfig's context, or that of the platform's own Pod. */
  namespace?: string | undefined;
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

/** Throws if the caller must not change anything any more. */
export type Fence = () => void;

/** What the credentials say of the connection, and the headers of each call. */
interface Login {
  server: string;
  namespace: string | undefined;
  sign(): Promise<{ headers: Record<string, string>; tls: Agent.Options['connect'] }>;
}

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
      return JSON.parse((await readAll(body)).toString());
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
    const { agent, headers, server } = await this.#connect();
    // As late as possible: what is sent cannot be taken back.
    this.#fence.getStore()?.();
    const search = new URLSearchParams(query).toString();
    const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
    const answer = await request(`${server}${path}${search === '' ? '' : `?${search}`}`, {
      ...{ method, dispatcher: agent, signal: signal ?? null },
      headers: { accept, ...(body !== undefined && { 'content-type': type }), ...headers },
      body: body === undefined ? null : JSON.stringify(body),
    });
    const time = Date.parse(`${answer.headers['date']}`);
    if (Number.isFinite(time)) this.#told = { time, at: performance.now() };
    if (answer.statusCode < 300) return answer;
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
      this.#pool = { key, agent: new Agent({ ...timeouts, ...(tls && { connect: tls }) }) };
      void former?.agent.close();
    }
    return { agent: this.#pool.agent, headers, server: login.server };
  }

  #load(): Promise<Login> {
    this.#login ??= loadLogin(this.#access).catch((error: unknown) => {
      this.#login = undefined;
      throw translate(error);
    });
    return this.#login;
  }
}

/** Loads the library only here: other platforms do not need it. @throws Error that names the file */
async function loadLogin({ kubeconfig }: ApiAccess): Promise<Login> {
  const { KubeConfig } = await import('@kubernetes/client-node');
  const config = new KubeConfig();
  if (kubeconfig === undefined) config.loadFromCluster();
  else config.loadFromFile(kubeconfig);
  const cluster = config.getCurrentCluster();
  if (!cluster) throw new Error(`${kubeconfig} has no current context with a cluster`);
  const context = config.getContextObject(config.getCurrentContext());
  return {
    server: cluster.server.replace(/\/+$/, ''),
    namespace: context?.namespace ?? undefined,
    sign: async () => {
      const given: Record<string, unknown> = { headers: {} };
      await config.applyToHTTPSOptions(given);
      const { auth, ca, cert, headers, key, passphrase, rejectUnauthorized, servername } =
        httpsTerms.parse(given);
      const basic = auth === undefined ? {} : { authorization: `Basic ${btoa(auth)}` };
      const terms = { ca, cert, key, passphrase, rejectUnauthorized, servername };
      const tls = Object.fromEntries(Object.entries(terms).filter(([, value]) => value != null));
      return { headers: { ...headers, ...basic }, tls: { timeout: CONNECT_LIMIT_MS, ...tls } };
    },
  };
}

const pem = z.union([z.string(), z.instanceof(Buffer).transform((bytes) => bytes.toString())]);
const httpsTerms = z.object({
  headers: z.record(z.string(), z.string()),
  auth: z.string().optional(),
  ca: pem.nullish(),
  cert: pem.nullish(),
  key: pem.nullish(),
  passphrase: z.string().nullish(),
  rejectUnauthorized: z.boolean().nullish(),
  servername: z.string().nullish(),
});

async function readAll(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > MAX_ANSWER_BYTES)
      throw new Error(`the answer has more than ${MAX_ANSWER_BYTES} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

async function readStart(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of body) {
    pieces.push(piece);
    bytes += piece.length;
    if (bytes >= MAX_ERROR_BYTES) break;
  }
  return Buffer.concat(pieces).subarray(0, MAX_ERROR_BYTES);
}

async function readError(answer: Dispatcher.ResponseData): Promise<KubernetesError> {
  const text = (await readStart(answer.body)).toString();
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
