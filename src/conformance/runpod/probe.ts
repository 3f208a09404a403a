// A worker of RunPod's protocol without a handler, and a client of the endpoint: each call sends
// one request to the platform under test.
import { randomBytes } from 'node:crypto';
import { describeCallFailure } from '../../transport/http/http-errors.ts';
import { Deviation, demand } from '../checks.ts';
import { readMember } from './stand.ts';

const PATIENCE_MS = 100_000;
const POLL_EVERY_MS = 100;

export interface RunPodPlace {
  /** The URL before `/<endpoint>/job-take`. */
  url: string;
  endpoint: string;
  key: string;
  jobsUrl: string;
  jobsKey: string;
}

export interface ProbeAnswer {
  status: number;
  body: unknown;
}

export class RunPodProbe {
  readonly #place: RunPodPlace;
  readonly #submitted: string[] = [];
  /** New for each check, so that open polls of the previous check get no jobs. */
  #pod = '';
  #checkEnd = new AbortController();

  constructor(place: RunPodPlace) {
    this.#place = place;
  }

  /** Succeeds with any answer. @throws Error if the platform does not answer */
  async checkReachable(): Promise<void> {
    await this.client('GET', 'health');
  }

  /** Runs the check as a new worker, then cancels the remaining jobs. */
  async runCheck(check: () => Promise<void>): Promise<void> {
    this.#pod = `conformance-${randomBytes(6).toString('hex')}`;
    this.#checkEnd = new AbortController();
    try {
      await check();
    } finally {
      this.#checkEnd.abort();
      for (const id of this.#submitted.splice(0)) {
        await this.client('POST', `cancel/${id}`, {}).catch(() => {});
      }
    }
  }

  /** `tail` follows the worker's ID unchanged: `/<job>?isStream=false`. */
  async worker(
    method: 'GET' | 'POST',
    verb: string,
    tail: string,
    options: { body?: unknown; key?: string } = {},
  ): Promise<ProbeAnswer> {
    const { endpoint, key, url } = this.#place;
    return ask(`${url}/${endpoint}/${verb}/${this.#pod}${tail}`, {
      method,
      signal: this.#checkEnd.signal,
      headers: {
        authorization: options.key ?? key,
        // The known workers send this type, though the body is JSON.
        'content-type': method === 'GET' ? 'application/json' : 'application/x-www-form-urlencoded',
      },
      ...(options.body !== undefined && { body: JSON.stringify(options.body) }),
    });
  }

  async client(method: 'GET' | 'POST', path: string, body?: unknown): Promise<ProbeAnswer> {
    const { endpoint, jobsKey, jobsUrl } = this.#place;
    return ask(`${jobsUrl}/${endpoint}/${path}`, {
      method,
      headers: { authorization: `Bearer ${jobsKey}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  }

  /** @returns the job's ID for clients */
  async submit(input: object = { conformance: true }): Promise<string> {
    const { body, status } = await this.client('POST', 'run', { input });
    const id = readMember(body, 'id');
    demand(status === 200 && typeof id === 'string', `run returns status ${status}`);
    this.#submitted.push(id);
    return id;
  }

  /** Takes one job; its ID is the one for workers. */
  async take(): Promise<{ id: string; input: unknown }> {
    const { body, status } = await this.worker('GET', 'job-take', '?job_in_progress=0');
    demand(status === 200, `job-take is answered ${status}, though there is a job`);
    return readTakenJob(body);
  }

  done(id: string, body: unknown, isStream = 'false'): Promise<ProbeAnswer> {
    return this.worker('POST', 'job-done', `/${id}?isStream=${isStream}`, { body });
  }

  /** Waits until the job has the status. @throws Deviation */
  async until(id: string, wanted: string, ms = 5_000): Promise<unknown> {
    for (const until = Date.now() + ms; ; ) {
      const { body } = await this.client('GET', `status/${id}`);
      const status = readMember(body, 'status');
      if (status === wanted) return body;
      if (Date.now() > until) throw new Deviation(`the job is ${status}, not ${wanted}`);
      await new Promise((resolve) => setTimeout(resolve, POLL_EVERY_MS));
    }
  }
}

/** @throws Deviation */
export function readTakenJob(body: unknown): { id: string; input: unknown } {
  const id = readMember(body, 'id');
  demand(typeof id === 'string', `the job has no id: ${JSON.stringify(body)}`);
  demand(Object.hasOwn(Object(body), 'input'), 'the job has no input');
  return { id, input: readMember(body, 'input') };
}

async function ask(url: string, { signal, ...init }: RequestInit): Promise<ProbeAnswer> {
  const limit = AbortSignal.timeout(PATIENCE_MS);
  try {
    const response = await fetch(url, {
      ...init,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
    });
    const text = await response.text();
    return { status: response.status, body: parse(text) };
  } catch (error) {
    // The message of fetch is always "fetch failed"; the cause has the reason.
    const cause = error instanceof Error ? (error.cause ?? error) : error;
    throw new Error(`${init.method} ${url}: ${describeCallFailure(cause)}`, { cause });
  }
}

function parse(text: string): unknown {
  try {
    return text === '' ? undefined : JSON.parse(text);
  } catch {
    return text;
  }
}
