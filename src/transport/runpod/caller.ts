// HTTP for RunPod's worker protocol: its addresses, its headers with the bare key, and the meaning of answers.
// Callers decide about retries.
import type { request } from 'undici';
import { backoffMs, readRetryAfterMs } from '../../base/backoff.ts';
import { OutgoingAgents } from '../../base/net/outgoing-agents.ts';
import type { ChooseProxy } from '../../base/net/outgoing-proxy.ts';
import { describeCallFailure, describeRedirect } from '../../base/net/request-hints.ts';
import { loadUndici } from '../../base/net/undici.ts';
import { LinkError } from '../../wire/link/worker-link.ts';

/** Version of the protocol's public client whose behaviour this follows. */
export const RUNPOD_PROTOCOL_VERSION = '1.12.0';

const PACE = { baseMs: 200, maxMs: 10_000, jitter: 0.2 };
/** Wait after a 429 without Retry-After, ms. */
const TOO_MANY_REQUESTS_MS = 5_000;
const REFUSED_KEY_MS = 30_000;
const NOT_FOUND_MS = 10_000;
/** Upper bound of any requested wait. */
const MAX_RETRY_AFTER_MS = 3_600_000;

interface RunPodCallerOptions {
  /** Sent unchanged, without `Bearer`. */
  key: string | undefined;
  /** Version of the package, for the user agent. */
  version: string;
  chooseProxy: ChooseProxy;
  /** Time to open a connection, ms. Default 10,000. */
  connectMs?: number | undefined;
  /** Time until the answer to a post begins, ms. Default 60,000. */
  postMs?: number | undefined;
}

export interface RunPodAnswer {
  status: number;
  /** Undefined without a readable body. */
  body: unknown;
  retryAfterMs: number | undefined;
}

interface GetOptions {
  /** The call is given up after this time, ms. */
  limitMs: number;
  signal?: AbortSignal;
}

export class RunPodCaller {
  readonly #agents: OutgoingAgents;
  readonly #postMs: number;
  readonly #common: Record<string, string>;

  constructor(options: RunPodCallerOptions) {
    const { chooseProxy, connectMs = 10_000, key, postMs = 60_000, version } = options;
    this.#agents = new OutgoingAgents({ chooseProxy, agent: { connect: { timeout: connectMs } } });
    this.#postMs = postMs;
    const agent = `Millrace/${version} (RunPod worker protocol ${RUNPOD_PROTOCOL_VERSION})`;
    this.#common = { 'user-agent': agent, ...(key !== undefined && { authorization: key }) };
  }

  /** @throws LinkError `unavailable` if there is no answer */
  async get(url: string, { limitMs, signal }: GetOptions): Promise<RunPodAnswer> {
    const limit = AbortSignal.timeout(limitMs);
    return this.#call(url, {
      method: 'GET',
      headers: { ...this.#common, 'content-type': 'application/json' },
      headersTimeout: limitMs,
      bodyTimeout: limitMs,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
  }

  /** @throws LinkError `unavailable` if there is no answer */
  async post(url: string, jobId: string, body: Uint8Array): Promise<RunPodAnswer> {
    return this.#call(url, {
      method: 'POST',
      headers: {
        ...this.#common,
        'content-type': 'application/x-www-form-urlencoded',
        charset: 'utf-8',
        // An ID may be any text, but a header may not.
        'x-request-id': encodeURIComponent(jobId),
      },
      body,
      headersTimeout: this.#postMs,
      bodyTimeout: this.#postMs,
    });
  }

  /** Breaks open calls. */
  close(): Promise<void> {
    return this.#agents.destroy();
  }

  async #call(text: string, options: Parameters<typeof request>[1]): Promise<RunPodAnswer> {
    const url = new URL(text);
    try {
      const dispatcher = await this.#agents.open(url);
      const response = await loadUndici().request(url, { ...options, dispatcher });
      const { headers, statusCode: status } = response;
      const body = readJson(await response.body.text());
      const askedMs = readRetryAfterMs(headers['retry-after'], Date.now());
      const retryAfterMs = askedMs && Math.min(askedMs, MAX_RETRY_AFTER_MS);
      const location = [headers['location']].flat().at(0);
      const redirect = describeRedirect({ status, location, url: text, path: url.pathname });
      return { status, body: redirect ?? body, retryAfterMs };
    } catch (cause) {
      const reason = `${describeCallFailure(cause)}${this.#agents.describe(url)}`;
      throw new LinkError('unavailable', reason, { cause });
    }
  }
}

export function isSuccess({ status }: RunPodAnswer): boolean {
  return status >= 200 && status < 300;
}

/** Whether a retry may get another answer. */
export function isTransientAnswer({ status }: RunPodAnswer): boolean {
  return status >= 500 || [401, 403, 408, 425, 429].includes(status);
}

/** Translates an error answer into a LinkError that is retried. */
export function toPassingError(what: string, answer: RunPodAnswer): LinkError {
  const { retryAfterMs = chooseWait(answer.status) } = answer;
  return new LinkError('unavailable', `${what}: ${describeAnswer(answer)}`, { retryAfterMs });
}

/** Time until the next attempt after this many failures in a row, ms; never less than requested. */
export function chooseRetryMs(error: unknown, failures: number): number {
  const { retryAfterMs = 0 } = error instanceof LinkError ? error : {};
  return Math.max(retryAfterMs, backoffMs(failures, PACE));
}

export function describeAnswer({ body, status }: RunPodAnswer): string {
  const text = body === undefined ? '' : ` ${JSON.stringify(body).slice(0, 200)}`;
  return `${status}${text}`;
}

function chooseWait(status: number): number | undefined {
  if (status === 429) return TOO_MANY_REQUESTS_MS;
  if (status === 401 || status === 403) return REFUSED_KEY_MS;
  return status === 404 ? NOT_FOUND_MS : undefined;
}

function readJson(text: string): unknown {
  if (text.length === 0) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

interface RunPodTemplates {
  /**
   * `$ID` is the worker. With `/job-take-batch/` or `/job-stop/` in place of `/job-take/` it serves
   * further operations.
   */
  take: string;
  /** `$ID` is the job. */
  done: string;
  /** `$ID` is the job. Default: derived from `done`. */
  stream?: string | undefined;
  ping?: string | undefined;
}

export interface RunPodAddressOptions {
  templates: RunPodTemplates;
  /** ID of the pod, which is the worker's ID for the platform. */
  podId: string;
  /** For the placeholder `$RUNPOD_GPU_TYPE_ID`, which otherwise stays. */
  gpuTypeId?: string | undefined;
}

type QueryParameters = readonly (readonly [name: string, value: string])[];

const TAKE_PATH = '/job-take/';

export class RunPodAddresses {
  readonly #templates: RunPodTemplates;
  readonly #options: RunPodAddressOptions;

  /** @throws TypeError if a template is not an http or https URL */
  constructor(options: RunPodAddressOptions) {
    this.#options = options;
    const { done, ping, stream, take } = options.templates;
    const derived = replaceInPath(done, '/job-done/', '/job-stream/');
    this.#templates = { take, done, ping, stream: stream ?? derived };
    for (const [name, template] of Object.entries(this.#templates)) {
      if (template !== undefined) checkTemplate(name, template);
    }
  }

  /** Takes one job, or an array of at most `max`. */
  take(max: number, isBusy: boolean): string {
    const busy = ['job_in_progress', isBusy ? '1' : '0'] as const;
    const { take } = this.#templates;
    const batch = max > 1 ? replaceInPath(take, TAKE_PATH, '/job-take-batch/') : undefined;
    if (batch === undefined) return this.#ofWorker(take, [busy]);
    return this.#ofWorker(batch, [['batch_size', String(max)], busy]);
  }

  /** Undefined if the template does not reveal it. */
  get stop(): string | undefined {
    const stop = replaceInPath(this.#templates.take, TAKE_PATH, '/job-stop/');
    return stop === undefined ? undefined : this.#ofWorker(stop, []);
  }

  done(jobId: string, query: QueryParameters): string {
    return this.#ofJob(this.#templates.done, jobId, query);
  }

  /** Undefined without a way to stream. */
  stream(jobId: string, query: QueryParameters): string | undefined {
    const { stream } = this.#templates;
    return stream === undefined ? undefined : this.#ofJob(stream, jobId, query);
  }

  ping(query: QueryParameters): string | undefined {
    const { ping } = this.#templates;
    return ping === undefined ? undefined : this.#ofWorker(ping, query);
  }

  #ofWorker(template: string, query: QueryParameters): string {
    return addQuery(this.#fill(template, this.#options.podId), query);
  }

  #ofJob(template: string, jobId: string, query: QueryParameters): string {
    return addQuery(this.#fill(template, jobId), query);
  }

  /** Fills both placeholders everywhere, though the platform need not use both everywhere. */
  #fill(template: string, id: string): string {
    const { gpuTypeId, podId } = this.#options;
    const filled = template
      .replaceAll('$RUNPOD_POD_ID', () => encodeURIComponent(podId))
      .replaceAll('$ID', () => encodeURIComponent(id));
    if (gpuTypeId === undefined) return filled;
    return filled.replaceAll('$RUNPOD_GPU_TYPE_ID', () => encodeURIComponent(gpuTypeId));
  }
}

/** A template may have a query, none, or a `?` at its end. */
function addQuery(url: string, query: QueryParameters): string {
  if (query.length === 0) return url;
  const text = query.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join('&');
  if (!url.includes('?')) return `${url}?${text}`;
  return /[?&]$/.test(url) ? `${url}${text}` : `${url}&${text}`;
}

/** Undefined if the path does not contain this part; the query is not searched. */
function replaceInPath(template: string, part: string, other: string): string | undefined {
  const [path = '', ...query] = template.split('?');
  if (!path.includes(part)) return undefined;
  return [path.replaceAll(part, other), ...query].join('?');
}

function checkTemplate(name: string, template: string): void {
  const protocol = URL.canParse(template) ? new URL(template).protocol : undefined;
  if (protocol === 'http:' || protocol === 'https:') return;
  throw new TypeError(`the ${name} address must be an http or https URL: ${template}`);
}
