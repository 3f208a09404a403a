// The clients of the runs with kills and faults: they submit jobs, repeat what is not answered, and look at the end of
// each job.
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Peril } from '../handlers/perilous.ts';
import type { EndedJob } from './kill-run.ts';

/** A platform, or several nodes of one. */
export interface Caller {
  fetch(path: string, init?: RequestInit): Promise<Response>;
  post(path: string, body: unknown): Promise<Response>;
}

export interface JobKey {
  endpoint: string;
  id: string;
}

const CLIENTS = 20;
const POLL_MS = 150;
/** Few jobs kill their thread, because a job that is released more than ten times fails. */
const PERIL_EVERY = 17;
const STREAM_SHARE = 0.4;
/** Statuses of a platform that is down, or whose queue is full. */
const REPEATED: readonly number[] = [503, 429];

export function chooseJob(n: number, random: () => number): Peril {
  const count = { n, ms: Math.floor(random() * 60) };
  if (n % PERIL_EVERY === 0) return { do: (n / PERIL_EVERY) % 2 === 0 ? 'exit' : 'spin', count };
  if (random() < STREAM_SHARE) {
    const yields = 5 + Math.floor(random() * 16);
    return { do: 'count', count: { n, ms: Math.floor(random() * 15), yields } };
  }
  return { do: 'count', count };
}

const SHORT_STREAM_EVERY = 20;

/** A job that takes no time and harms nothing. */
export function chooseShortJob(n: number): Peril {
  const isStream = n % SHORT_STREAM_EVERY === 0;
  return { do: 'count', count: { n, ms: 0, ...(isStream && { yields: 5 }) } };
}

interface Clients {
  /** Job n goes to the n-th of them, and then from the first one again. */
  endpoints: readonly string[];
  asked: readonly Peril[];
  /** Each job as first seen after its end. */
  ended: EndedJob[];
  until: number;
  /** Whether job n may be submitted now. Default: it may. */
  mayStart?: (n: number) => boolean;
}

export async function runJobs(
  platform: Caller,
  { asked, ended, endpoints, mayStart, until }: Clients,
): Promise<void> {
  let next = 0;
  const client = async () => {
    for (;;) {
      const n = next++;
      const job = asked[n];
      if (!job) return;
      while (mayStart && !mayStart(n)) await sleep(POLL_MS);
      const endpoint = endpoints[n % endpoints.length] ?? '';
      // A submission whose answer was lost is repeated. Nobody would cancel a second job.
      const idempotencyKey = `job ${n}`;
      const submit = () => platform.post(`/v2/${endpoint}/run`, { input: job, idempotencyKey });
      const { id } = jobRef.parse(await persist(submit));
      await waitForEnd(platform, { endpoint, id, asked: job }, until);
      ended.push({ endpoint, id, asked: job, seen: await look(platform, { endpoint, id }) });
    }
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
}

type Submitting = Pick<Clients, 'asked' | 'endpoints' | 'mayStart'> & {
  /** Each job once it is acknowledged. */
  submitted: Omit<EndedJob, 'seen'>[];
};

/** Submits jobs as fast as the platform takes them. */
export async function submitJobs(
  platform: Caller,
  { asked, endpoints, mayStart, submitted }: Submitting,
): Promise<void> {
  let next = 0;
  await inParallel(async () => {
    const n = next++;
    const job = asked[n];
    if (!job) return false;
    while (mayStart && !mayStart(n)) await sleep(POLL_MS);
    const endpoint = endpoints[n % endpoints.length] ?? '';
    const body = { input: job, idempotencyKey: `job ${n}` };
    const { id } = jobRef.parse(await persist(() => platform.post(`/v2/${endpoint}/run`, body)));
    submitted.push({ endpoint, id, asked: job });
    return true;
  });
}

const health = z.looseObject({
  jobs: z.looseObject({ inQueue: z.number(), inProgress: z.number() }),
});

/** Resolves when no endpoint has a job that has not ended. */
export async function untilIdle(platform: Caller, endpoints: readonly string[]): Promise<void> {
  for (const endpoint of endpoints) {
    for (;;) {
      const seen = await persist(() => platform.fetch(`/v2/${endpoint}/health`));
      const { jobs } = health.parse(seen);
      if (jobs.inQueue + jobs.inProgress === 0) break;
      await sleep(POLL_MS);
    }
  }
}

/** The jobs as they are now. Only of streams are the chunks read, because there are so many jobs. */
export async function lookAtAll(
  platform: Caller,
  submitted: readonly Omit<EndedJob, 'seen'>[],
): Promise<EndedJob[]> {
  const ended: EndedJob[] = [];
  let next = 0;
  await inParallel(async () => {
    const job = submitted[next++];
    if (!job) return false;
    if (job.asked.count.yields !== undefined) {
      ended.push({ ...job, seen: await look(platform, job) });
    } else {
      const record = await readRecord(platform, job);
      ended.push({ ...job, seen: { record, chunks: [record.output] } });
    }
    return true;
  });
  return ended;
}

const FAST_CLIENTS = 32;

/** Several clients repeat `act` until it returns false. */
async function inParallel(act: () => Promise<boolean>): Promise<void> {
  const client = async () => {
    while (await act());
  };
  await Promise.all(Array.from({ length: FAST_CLIENTS }, client));
}

/** Waits for the end of a job; repeats the cancel of a running job that never ends on its own. */
async function waitForEnd(
  platform: Caller,
  { asked, endpoint, id }: JobKey & { asked: Peril },
  until: number,
): Promise<void> {
  for (;;) {
    const { status } = await readRecord(platform, { endpoint, id });
    if (asked.do === 'spin' && status === 'IN_PROGRESS') {
      await persist(() => platform.post(`/v2/${endpoint}/cancel/${id}`, {}));
    }
    const live = status === 'IN_QUEUE' || status === 'IN_PROGRESS';
    if (!live || Date.now() > until) return;
    await sleep(POLL_MS);
  }
}

/** Retries while the platform is down or its queue is full. @returns its answer as JSON */
export async function persist(ask: () => Promise<Response>): Promise<unknown> {
  for (;;) {
    try {
      const answer = await ask();
      if (answer.status === 200) return await answer.json();
      if (!REPEATED.includes(answer.status)) throw new UnexpectedAnswer(await answer.text());
    } catch (error) {
      if (error instanceof UnexpectedAnswer) throw error;
    }
    await sleep(POLL_MS);
  }
}

class UnexpectedAnswer extends Error {}

export const jobRef = z.object({ id: z.string() });
const seenRecord = z.looseObject({
  status: z.string(),
  attempt: z.number(),
  output: z.unknown().exactOptional(),
  error: z
    .looseObject({ code: z.string(), attempts: z.array(z.looseObject({ code: z.string() })) })
    .exactOptional(),
});
const seenChunks = z.array(z.object({ output: z.unknown(), metrics: z.looseObject({}) }));

/** A job as a client sees it. */
export interface SeenJob {
  record: z.infer<typeof seenRecord>;
  chunks: unknown[];
}

async function look(platform: Caller, key: JobKey): Promise<SeenJob> {
  const record = await readRecord(platform, key);
  const stream = `/v2/${key.endpoint}/stream/${key.id}?after=0&wait=0`;
  const chunks = seenChunks.parse(await persist(() => platform.fetch(stream)));
  return { record, chunks: chunks.map(({ output }) => output) };
}

export async function readRecord(
  platform: Caller,
  { endpoint, id }: JobKey,
): Promise<SeenJob['record']> {
  return seenRecord.parse(await persist(() => platform.fetch(`/v2/${endpoint}/status/${id}`)));
}

/** One line for each job that is no longer as it was seen. */
export async function findChanges(platform: Caller, ended: readonly EndedJob[]): Promise<string[]> {
  const changes: string[] = [];
  for (const { endpoint, id, seen } of ended) {
    const now = await look(platform, { endpoint, id });
    // The execution time may arrive after the cancel.
    const same = isDeepStrictEqual(
      { ...now, record: { ...now.record, executionTime: 0 } },
      { ...seen, record: { ...seen.record, executionTime: 0 } },
    );
    if (!same) changes.push(`${id}: ${JSON.stringify(seen)} → ${JSON.stringify(now)}`);
  }
  return changes;
}
