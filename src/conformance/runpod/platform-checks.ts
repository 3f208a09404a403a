// Checks a platform of RunPod's protocol against the requests that its known workers send.

import { randomBytes } from 'node:crypto';
import { describeCallFailure } from '../../base/net/request-hints.ts';
import { begin, type ConformanceCheck, Deviation, demand, demandSame, within } from '../checks.ts';
import { readMember } from './stand.ts';

const AT_ONCE_MS = 5_000;

const checks: ConformanceCheck<RunPodProbe>[] = [
  {
    area: 'take',
    rule: 'returns a job with its ID and input',
    isBasic: true,
    async run(probe) {
      const input = { text: 'ä "\\ 😀', list: [1, null] };
      await probe.submit(input);
      demandSame((await probe.take()).input, input, 'the input');
    },
  },
  {
    area: 'take',
    rule: 'returns a job as soon as it is submitted',
    async run(probe) {
      const take = begin(probe.take());
      await new Promise((resolve) => setTimeout(resolve, 300));
      await probe.submit();
      await within(AT_ONCE_MS, 'the take was not answered', take);
    },
  },
  {
    area: 'take',
    rule: 'accepts query parameters after "&" without "?"',
    async run(probe) {
      await probe.submit();
      const { body, status } = await probe.worker('GET', 'job-take', '&job_in_progress=0');
      demandSame(status, 200, 'the status');
      readTakenJob(body);
    },
  },
  {
    area: 'take',
    rule: 'returns several jobs as an array, at most the requested number',
    async run(probe) {
      for (let count = 0; count < 3; count++) await probe.submit();
      const query = '?batch_size=2&job_in_progress=0';
      const { body, status } = await probe.worker('GET', 'job-take-batch', query);
      demandSame(status, 200, 'the status');
      demand(Array.isArray(body), 'the answer is not an array');
      demand(body.length >= 1 && body.length <= 2, `the answer has ${body.length} jobs`);
      for (const job of body) readTakenJob(job);
    },
  },
  {
    area: 'access',
    rule: 'rejects a wrong key',
    async run(probe) {
      const { status } = await probe.worker('GET', 'ping', '', { key: 'wrong' });
      demand(status === 401 || status === 403, `the status is ${status}; expected 401 or 403`);
    },
  },
  {
    area: 'done',
    rule: 'completes the job with its output, whatever the Content-Type',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      const output = { text: 'héllo ✓', list: [1] };
      demandSame((await probe.done(job.id, { output })).status, 200, 'the status');
      demandSame(readMember(await probe.until(id, 'COMPLETED'), 'output'), output, 'the output');
    },
  },
  {
    area: 'done',
    rule: 'accepts query parameters after "&" without "?"',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      const tail = `/${job.id}&isStream=false`;
      const { status } = await probe.worker('POST', 'job-done', tail, { body: { output: 1 } });
      demandSame(status, 200, 'the status');
      await probe.until(id, 'COMPLETED');
    },
  },
  {
    area: 'done',
    rule: 'returns 200 for a repeated result and keeps the first',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      for (const output of ['first', 'second']) {
        demandSame((await probe.done(job.id, { output })).status, 200, 'the status');
      }
      demandSame(readMember(await probe.until(id, 'COMPLETED'), 'output'), 'first', 'the output');
    },
  },
  {
    area: 'done',
    rule: 'returns 200 for the result of a cancelled job',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      await probe.client('POST', `cancel/${id}`, {});
      demandSame((await probe.done(job.id, { output: 1 })).status, 200, 'the status');
      await probe.until(id, 'CANCELLED');
    },
  },
  {
    area: 'done',
    rule: 'accepts stopPod in a result',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      const { status } = await probe.done(job.id, { output: 1, stopPod: true });
      demandSame(status, 200, 'the status');
      await probe.until(id, 'COMPLETED');
    },
  },
  {
    area: 'progress',
    rule: 'does not end the job: a result with status IN_PROGRESS leaves it running',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      const { status } = await probe.done(job.id, { status: 'IN_PROGRESS', output: '10%' });
      demandSame(status, 200, 'the status');
      await probe.until(id, 'IN_PROGRESS');
      await probe.done(job.id, { output: 'end' });
      demandSame(readMember(await probe.until(id, 'COMPLETED'), 'output'), 'end', 'the output');
    },
  },
  {
    area: 'stream',
    rule: 'keeps posted outputs in order, readable for clients',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      for (const output of ['a', { b: 1 }, 'c']) {
        const tail = `/${job.id}?isStream=false`;
        const { status } = await probe.worker('POST', 'job-stream', tail, { body: { output } });
        demandSame(status, 200, 'the status');
      }
      await probe.done(job.id, { output: [] }, 'true');
      const { body } = await probe.client('GET', `stream/${id}`);
      const stream = readMember(body, 'stream');
      demand(Array.isArray(stream), 'the answer has no array "stream"');
      const outputs = stream.map((chunk) => readMember(chunk, 'output'));
      demandSame(outputs, ['a', { b: 1 }, 'c'], 'the chunks');
      await probe.until(id, 'COMPLETED');
    },
  },
  {
    area: 'error',
    rule: 'fails the job with the posted string as its error',
    async run(probe) {
      const id = await probe.submit();
      // The endpoint may retry the job.
      for (let attempt = 0; attempt < 3; attempt++) {
        const job = await within(30_000, 'the job was not returned again', probe.take());
        const error = JSON.stringify({
          error_type: 'RuntimeError',
          error_message: 'the posted error',
        });
        demandSame((await probe.done(job.id, { error })).status, 200, 'the status');
        const { body } = await probe.client('GET', `status/${id}`);
        if (readMember(body, 'status') === 'FAILED') break;
      }
      const error = readMember(await probe.until(id, 'FAILED'), 'error');
      demand(
        JSON.stringify(error)?.includes('the posted error') ?? false,
        `the error does not contain the posted string: ${error}`,
      );
    },
  },
  {
    area: 'ping',
    rule: 'returns 200, with and without jobs',
    async run(probe) {
      demandSame((await probe.worker('GET', 'ping', '')).status, 200, 'the status without jobs');
      await probe.submit();
      const { id } = await probe.take();
      const { status } = await probe.worker('GET', 'ping', `?job_id=${id}&runpod_version=1.12.0`);
      demandSame(status, 200, 'the status with a job');
    },
  },
  {
    area: 'stop',
    rule: 'names a cancelled job at once, by the ID that the take returned',
    async run(probe) {
      const id = await probe.submit();
      const job = await probe.take();
      const stop = begin(probe.worker('GET', 'job-stop', ''));
      await new Promise((resolve) => setTimeout(resolve, 200));
      await probe.client('POST', `cancel/${id}`, {});
      const { body } = await within(AT_ONCE_MS, 'the poll was not answered', stop);
      demandSame(readMember(body, 'jobsToStop'), [job.id], 'the jobs to stop');
    },
  },
];

export const runPodPlatformChecks: readonly ConformanceCheck<RunPodProbe>[] = checks.map(
  (check) => ({
    ...check,
    run: (probe) => probe.runCheck(async () => check.run(probe)),
  }),
);

const PATIENCE_MS = 100_000;
const POLL_EVERY_MS = 100;

interface RunPodTarget {
  /** The URL before `/<endpoint>/job-take`. */
  url: string;
  endpoint: string;
  key: string;
  jobsUrl: string;
  jobsKey: string;
}

interface ProbeAnswer {
  status: number;
  body: unknown;
}

export class RunPodProbe {
  readonly #target: RunPodTarget;
  readonly #submitted: string[] = [];
  /** New for each check, so that open polls of the previous check get no jobs. */
  #pod = '';
  #checkEnd = new AbortController();

  constructor(target: RunPodTarget) {
    this.#target = target;
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
    const { endpoint, key, url } = this.#target;
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
    const { endpoint, jobsKey, jobsUrl } = this.#target;
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
function readTakenJob(body: unknown): { id: string; input: unknown } {
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
