// What is asked of a queue as a whole: health, purge-queue and the list of its jobs.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { readOk, readProblem } from '../../support/answers.ts';
import { EndpointCaller } from '../../support/endpoint-caller.ts';
import type { Step } from '../../support/handlers/api-script.ts';
import { Gate } from '../../support/network/gate.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

const purged = z.strictObject({ removed: z.int(), status: z.literal('completed') });

let platform: PlatformProcess;

beforeAll(async () => {
  platform = await PlatformProcess.start({
    endpoints: ['counted', 'empty', 'purged', 'synced', 'running', 'listed', 'states'],
    args: ['--lease-ms', '1000', '--renew-every-ms', '200'],
  });
});
afterAll(() => platform.close());

const caller = (name: string) => new EndpointCaller(platform, name);
const failure: Step = { do: 'throw', message: 'no', as: 'non-retryable' };

describe('health', () => {
  it('has only zero counts on a new endpoint', async () => {
    expect(await caller('empty').health()).toEqual({
      jobs: { completed: 0, failed: 0, inProgress: 0, inQueue: 0, retried: 0 },
      workers: { idle: 0, running: 0 },
    });
  });

  it('counts jobs by status, and idle and running workers', async () => {
    const counted = caller('counted');
    const gate = new Gate(platform.folder);
    const workers = [1, 2].map(() =>
      platform.startWorker('counted', 'api-script.ts', '--unsupervised', '--jobs-per-thread', '1'),
    );
    await counted.untilServed(2);
    expect((await counted.health()).workers).toEqual({ idle: 2, running: 0 });
    await counted.runsync({ steps: [] });
    await counted.runsync({ steps: [failure] });
    await counted.runsync({
      steps: [{ do: 'throw', message: 'once', as: 'retry at once', onlyInAttempt: 1 }],
    });
    const held = await counted.run({ steps: [{ do: 'wait', file: gate.path }] });
    await counted.untilStatus(held, 'IN_PROGRESS');
    await counted.run({ steps: [] }, { policy: { delay: 600_000 } });
    expect(await counted.health()).toEqual({
      jobs: { completed: 2, failed: 1, inProgress: 1, inQueue: 1, retried: 1 },
      workers: { idle: 1, running: 1 },
    });
    gate.open();
    await counted.untilEnd(held);
    await Promise.all(workers.map((worker) => worker.end()));
    expect((await counted.health()).workers).toEqual({ idle: 0, running: 0 });
  });

  it('does not count a killed worker after its lease has expired', async () => {
    const running = caller('running');
    const worker = platform.startWorker('running', 'api-script.ts', '--unsupervised');
    await running.untilServed();
    await worker.end('SIGKILL');
    await until(async () => (await running.health()).workers.idle <= 0, { everyMs: 50 });
    expect((await running.health()).workers).toEqual({ idle: 0, running: 0 });
  });
});

describe('purge-queue', () => {
  it('cancels waiting and delayed jobs, and keeps running jobs', async () => {
    const endpoint = caller('purged');
    const gate = new Gate(platform.folder);
    platform.startWorker('purged', 'api-script.ts', '--unsupervised', '--jobs-per-thread', '1');
    const running = await endpoint.run({
      steps: [{ do: 'wait', file: gate.path }],
      answer: 'ran on',
    });
    await endpoint.untilStatus(running, 'IN_PROGRESS');
    const waiting = await endpoint.run({ steps: [] });
    const delayed = await endpoint.run({ steps: [] }, { policy: { delay: 600_000 } });
    const purge = await readOk(await endpoint.post('purge-queue'), purged);
    expect(purge).toEqual({ removed: 2, status: 'completed' });
    for (const id of [waiting, delayed]) {
      expect((await endpoint.status(id)).status).toBe('CANCELLED');
    }
    expect((await endpoint.health()).jobs.inQueue).toBe(0);
    gate.open();
    expect(await endpoint.untilEnd(running)).toMatchObject({
      status: 'COMPLETED',
      output: 'ran on',
    });
  });

  it('answers a waiting runsync with CANCELLED', async () => {
    const endpoint = caller('synced');
    const waiting = endpoint.runsync({});
    await endpoint.newest('IN_QUEUE');
    await endpoint.post('purge-queue');
    expect((await waiting).status).toBe('CANCELLED');
  });

  it('removes 0 jobs from an empty queue', async () => {
    const purge = await readOk(await caller('empty').post('purge-queue'), purged);
    expect(purge.removed).toBe(0);
  });
});

describe('the list of jobs', () => {
  it('returns the newest first, in pages, each job once', async () => {
    const listed = caller('listed');
    const submitted: string[] = [];
    for (let n = 0; n < 7; n += 1) submitted.push(await listed.run({ n }));
    const seen: string[] = [];
    const sizes: number[] = [];
    for (let query = '?limit=3'; ; ) {
      const { cursor, jobs } = await listed.list(query);
      sizes.push(jobs.length);
      seen.push(...jobs.map(({ id }) => id));
      if (cursor === undefined) break;
      query = `?limit=3&cursor=${cursor}`;
    }
    expect(seen).toEqual(submitted.reverse());
    expect(sizes).toEqual([3, 3, 1]);
  });

  it('continues at its cursor after new jobs have arrived', async () => {
    const listed = caller('listed');
    const first = await listed.list('?limit=2');
    await listed.run({});
    const second = await listed.list(`?limit=2&cursor=${first.cursor}`);
    const older = (await listed.list()).jobs.map(({ id }) => id).slice(3, 5);
    expect(second.jobs.map(({ id }) => id)).toEqual(older);
  });

  it('returns the jobs of one status', async () => {
    const states = caller('states');
    platform.startWorker('states', 'api-script.ts', '--unsupervised');
    const gate = new Gate(platform.folder);
    const ids: Record<string, string> = {
      COMPLETED: (await states.runsync({ steps: [] })).id,
      FAILED: (await states.runsync({ steps: [failure] })).id,
      IN_PROGRESS: await states.run({ steps: [{ do: 'wait', file: gate.path }] }),
      IN_QUEUE: await states.run({ steps: [] }, { policy: { delay: 600_000 } }),
      CANCELLED: await states.run({ steps: [] }, { policy: { delay: 600_000 } }),
    };
    await states.post(`cancel/${ids['CANCELLED']}`);
    await states.untilStatus(ids['IN_PROGRESS'] ?? '', 'IN_PROGRESS');
    for (const [status, id] of Object.entries(ids)) {
      const { jobs } = await states.list(`?status=${status}`);
      expect(jobs.map((job) => [job.id, job.status])).toEqual([[id, status]]);
    }
    expect((await states.list('?status=TIMED_OUT')).jobs).toEqual([]);
    expect((await states.list()).jobs).toHaveLength(5);
    gate.open();
  });

  it.each(['status=DONE', 'status=completed', 'limit=0', 'limit=1001', 'cursor=!', 'cursor='])(
    'returns 422 for %s',
    async (query) => {
      const { errors } = await readProblem(await caller('empty').get(`jobs?${query}`), 422);
      expect(errors).toEqual([expect.stringContaining(query.split('=', 1)[0] ?? '')]);
    },
  );
});
