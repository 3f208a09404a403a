// A client of one user that notes all of its calls.
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { isTerminal, JOB_STATUSES } from '../../src/wire/job/job.ts';
import { readEvents } from '../support/network/event-stream.ts';
import type {
  Answer,
  NewFlow,
  NewSchedule,
  Piece,
  Recorder,
  Request,
  StreamBody,
  Submission,
} from './history.ts';

export interface Access {
  user: string;
  key: string;
  /** Platform, node or proxy of the next call. */
  chooseUrl: () => string;
  /** Lists leave out jobs from before, Unix ms. */
  since: number;
  /** How long the client waits for an answer, ms. */
  limitMs: number;
}

/** What has arrived of a stream, and the position to resume at. */
interface StreamRead extends StreamBody {
  next: string;
}

const PAUSE_MS = 80;

const chunks = z.array(z.object({ output: z.unknown() }));
const event = z.object({ output: z.unknown() });
const page = z.looseObject({ jobs: z.array(z.unknown()), cursor: z.string().exactOptional() });

export class RecordingClient {
  readonly user: string;
  readonly #recorder: Recorder;
  readonly #access: Access;

  constructor(recorder: Recorder, access: Access) {
    this.user = access.user;
    this.#recorder = recorder;
    this.#access = access;
  }

  run(endpoint: string, body: Submission): Promise<Answer | null> {
    return this.#call({ do: 'run', endpoint, body }, () => this.#post(endpoint, 'run', body));
  }

  runsync(endpoint: string, body: Submission): Promise<Answer | null> {
    const request = { do: 'runsync', endpoint, body } as const;
    return this.#call(request, () => this.#post(endpoint, 'runsync?wait=3000', body));
  }

  runJobs(endpoint: string, bodies: Submission[]): Promise<Answer | null> {
    const request = { do: 'jobs', endpoint, bodies } as const;
    return this.#call(request, () => this.#post(endpoint, 'jobs', { jobs: bodies }));
  }

  purge(endpoint: string): Promise<Answer | null> {
    return this.#call({ do: 'purge', endpoint }, () => this.#post(endpoint, 'purge-queue', {}));
  }

  change(action: 'cancel' | 'retry', endpoint: string, job: string): Promise<Answer | null> {
    return this.#call({ do: action, endpoint, job }, () =>
      this.#post(endpoint, `${action}/${job}`, {}),
    );
  }

  /** `waitMs`: longest time that the platform waits for the end of the job. */
  status(endpoint: string, job: string, waitMs?: number): Promise<Answer | null> {
    const query = waitMs === undefined ? '' : `?wait=${waitMs}`;
    const request = { do: 'status', endpoint, job } as const;
    return this.#call(request, () => this.#get(endpoint, `status/${job}${query}`));
  }

  details(endpoint: string, job: string): Promise<Answer | null> {
    return this.#call({ do: 'details', endpoint, job }, () => this.#get(endpoint, `jobs/${job}`));
  }

  schedule(endpoint: string, body: NewSchedule): Promise<Answer | null> {
    const creation = { ...body, endpointId: endpoint, catchUp: 'all' };
    return this.#call({ do: 'schedule', endpoint, body }, () =>
      this.#send('POST', '/v1/schedules', creation),
    );
  }

  schedules(endpoint: string): Promise<Answer | null> {
    return this.#call({ do: 'schedules', endpoint }, async () =>
      readAnswer(await this.#fetch('/v1/schedules?limit=1000')),
    );
  }

  pause(endpoint: string, schedule: string): Promise<Answer | null> {
    return this.#call({ do: 'pause', endpoint, schedule }, () =>
      this.#send('PATCH', `/v1/schedules/${schedule}`, { paused: true }),
    );
  }

  flow(endpoint: string, body: NewFlow): Promise<Answer | null> {
    return this.#call({ do: 'flow', endpoint, body }, () => this.#post(endpoint, 'flows', body));
  }

  flowRecord(endpoint: string, flow: string): Promise<Answer | null> {
    const request = { do: 'flow-record', endpoint, flow } as const;
    return this.#call(request, () => this.#get(endpoint, `flows/${flow}`));
  }

  list(endpoint: string): Promise<Answer | null> {
    const { since } = this.#access;
    return this.#call({ do: 'list', endpoint }, async () => {
      const jobs: unknown[] = [];
      for (let cursor: string | undefined = ''; cursor !== undefined; ) {
        const answer: Answer = await this.#get(endpoint, `jobs?since=${since}${cursor}`);
        if (answer.status !== 200) return answer;
        const seen = page.parse(answer.body);
        jobs.push(...seen.jobs);
        cursor = seen.cursor && `&cursor=${encodeURIComponent(seen.cursor)}`;
      }
      return { status: 200, body: { jobs } };
    });
  }

  /** Reads a page of chunks after a position, or after the cursor that the platform keeps. */
  async page(endpoint: string, job: string, after: string | null): Promise<StreamRead> {
    const query = after === null ? '' : `&after=${after}`;
    const read: StreamRead = { pieces: [], end: 'part', next: after ?? '0' };
    await this.#stream({ do: 'stream', endpoint, job, after }, read, async () => {
      const response = await this.#fetch(`/v2/${endpoint}/stream/${job}?wait=300${query}`);
      if (response.status !== 200) return response;
      const seen = chunks.parse(await response.json());
      if (response.headers.has('millrace-reset')) read.pieces.push({ reset: true });
      read.next = response.headers.get('millrace-next') ?? '';
      const [attempt = 0, last = 0] = read.next.split('.').map(Number);
      const first = last - seen.length + 1;
      const number = ({ output }: { output: unknown }, index: number): Piece => {
        return { at: `${attempt}.${first + index}`, output };
      };
      read.pieces.push(...seen.map(number));
      read.status = z.enum(JOB_STATUSES).parse(response.headers.get('millrace-status'));
      const isEnd = after !== null && seen.length === 0 && isTerminal(read.status);
      if (isEnd) read.end = 'done';
      return response;
    });
    return read;
  }

  /** Reads events after a position, until the end or until `leaveAfter` of them. */
  async events(
    endpoint: string,
    job: string,
    { after, leaveAfter }: { after: string; leaveAfter: number },
  ): Promise<StreamRead> {
    const read: StreamRead = { pieces: [], end: 'part', next: after };
    await this.#stream({ do: 'stream', endpoint, job, after }, read, async (signal) => {
      const headers = { accept: 'text/event-stream', 'last-event-id': after };
      const response = await this.#fetch(`/v2/${endpoint}/stream/${job}`, { headers, signal });
      if (response.status !== 200) return response;
      for await (const { data, event: name, id } of readEvents(response)) {
        if (name === 'done') read.record = JSON.parse(data);
        if (name === 'done' || name === 'expired') read.end = name;
        if (name === 'reset') read.pieces.push({ reset: true });
        if (name !== 'message' || id === undefined) continue;
        read.pieces.push({ at: id, output: event.parse(JSON.parse(data)).output });
        read.next = id;
        if (read.pieces.length >= leaveAfter) break;
      }
      return response;
    });
    return read;
  }

  /** Notes what arrived, even if the connection breaks. */
  async #stream(
    request: Request,
    read: StreamRead,
    ask: (signal: AbortSignal) => Promise<Response>,
  ): Promise<void> {
    const left = new AbortController();
    const signal = AbortSignal.any([left.signal, AbortSignal.timeout(this.#access.limitMs)]);
    await this.#call(request, async () => {
      const response = await ask(signal).catch((error: unknown) => {
        if (read.pieces.length === 0) throw error;
        return undefined;
      });
      left.abort();
      const { next: _next, ...body } = read;
      return { status: response?.status ?? 200, body };
    });
  }

  /** Waits a little after a call without an answer. */
  async #call(request: Request, ask: () => Promise<Answer>): Promise<Answer | null> {
    const answer = await this.#recorder.call(this.user, request, ask);
    if (!answer) await sleep(PAUSE_MS);
    return answer;
  }

  #post(endpoint: string, path: string, body: unknown): Promise<Answer> {
    return this.#send('POST', `/v2/${endpoint}/${path}`, body);
  }

  async #send(method: string, path: string, body: unknown): Promise<Answer> {
    const headers = { 'content-type': 'application/json' };
    const init = { method, headers, body: JSON.stringify(body) };
    return readAnswer(await this.#fetch(path, init));
  }

  async #get(endpoint: string, path: string): Promise<Answer> {
    return readAnswer(await this.#fetch(`/v2/${endpoint}/${path}`));
  }

  #fetch(path: string, init: RequestInit = {}): Promise<Response> {
    const { chooseUrl, key, limitMs } = this.#access;
    const headers = { authorization: `Bearer ${key}`, ...init.headers };
    const signal = init.signal ?? AbortSignal.timeout(limitMs);
    return fetch(chooseUrl() + path, { ...init, headers, signal });
  }
}

async function readAnswer(response: Response): Promise<Answer> {
  return { status: response.status, body: await response.json() };
}
