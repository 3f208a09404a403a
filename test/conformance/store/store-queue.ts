// Queries for jobs: the queue, leases, due times, the list.
import { expect, it } from 'vitest';
import { type JobSearch, numberGpuType, type StoredJob } from '../../../src/store/store.ts';
import { JOB_STATUSES, type JobStatus } from '../../../src/wire/job/job.ts';
import type { FailedAttempt, JobError } from '../../../src/wire/job/job-records.ts';
import { addJobs, ENDPOINT, makeJob, makeLease } from '../../support/store/stored-jobs.ts';
import { idsOf, readJob, save, store } from './store-under-test.ts';

const FAILURE: FailedAttempt = {
  ...{ attempt: 1, code: 'gpu_out_of_memory', message: 'CUDA out of memory' },
  ...{ workerId: 'w', startedAt: 0, endedAt: 1 },
};

export function describeQueue(): void {
  const mixed = [
    makeJob({ id: 'late', position: 5 }),
    makeJob({ id: 'early', position: 2 }),
    makeJob({ id: 'urgent', position: 9, priority: 3 }),
    makeJob({ id: 'less urgent', position: 1, priority: 2 }),
    makeJob({ id: 'delayed', position: 0, priority: 9, delayed: true }),
    makeJob({ id: 'running', position: 0, status: 'IN_PROGRESS' }),
    makeJob({ id: 'done', position: 0, status: 'COMPLETED' }),
    { ...makeJob({ id: 'elsewhere', position: 0 }), endpointId: 'ep_other' },
  ];
  const ready = ['urgent', 'less urgent', 'early', 'late'];

  it('returns ready jobs by priority, then in order of submission', async () => {
    await addJobs(store, mixed);
    expect(idsOf(await store.read((tx) => tx.readyJobs(ENDPOINT, 10)))).toEqual(ready);
    expect(idsOf(await store.write((tx) => tx.readyJobs(ENDPOINT, 2)))).toEqual(ready.slice(0, 2));
  });

  it('counts ready jobs, only up to a limit if others are delayed', async () => {
    const count = (limit: number) => store.read((tx) => tx.countReady(ENDPOINT, limit));
    expect(await count(2)).toBe(0);
    await addJobs(
      store,
      mixed.filter(({ delayed }) => !delayed),
    );
    expect([await count(2), await count(10)]).toEqual([4, 4]);
    await addJobs(
      store,
      mixed.filter(({ delayed }) => delayed),
    );
    expect(await count(2)).toBe(2);
    expect(await count(10)).toBe(4);
  });

  it('contains delayed jobs too', async () => {
    await addJobs(store, mixed);
    const queued = await store.write((tx) => tx.queuedJobs(ENDPOINT, 10));
    expect(idsOf(queued).sort()).toEqual([...ready, 'delayed'].sort());
    expect(await store.read((tx) => tx.queuedJobs(ENDPOINT, 2))).toHaveLength(2);
  });

  it('returns queued jobs up to a position, in order of submission', async () => {
    await addJobs(store, mixed);
    const upTo = (position: number, limit = 10) =>
      store.read((tx) => tx.queuedJobs(ENDPOINT, limit, position));
    expect(idsOf(await upTo(2))).toEqual(['delayed', 'less urgent', 'early']);
    expect(idsOf(await upTo(2, 2))).toEqual(['delayed', 'less urgent']);
    expect(idsOf(await upTo(9))).toEqual(['delayed', 'less urgent', 'early', 'late', 'urgent']);
    expect(await upTo(-1)).toEqual([]);
  });

  it('returns a job again when its delay ends or a worker releases it', async () => {
    await addJobs(store, mixed);
    const delayed = await readJob('delayed');
    const running = await readJob('running');
    if (!delayed || !running) throw new Error('they were inserted');
    await save(delayed, { delayed: false });
    await save(running, { status: 'IN_QUEUE' });
    const jobs = await store.read((tx) => tx.readyJobs(ENDPOINT, 10));
    expect(idsOf(jobs)).toEqual(['delayed', 'urgent', 'less urgent', 'running', 'early', 'late']);
  });

  it('keeps jobs that have outgrown a GPU type apart, in their order', async () => {
    const outgrew = (type: string) => ({
      history: [{ ...FAILURE, outgrownGpuType: type }, FAILURE],
      failures: 2,
    });
    await addJobs(store, [
      makeJob({ id: 'plain', position: 9 }),
      makeJob({ id: 'second', position: 4, queuedAt: 400, ...outgrew('L4') }),
      makeJob({ id: 'first', position: 7, priority: 2, queuedAt: 500, ...outgrew('L4') }),
      makeJob({ id: 'third', position: 5, queuedAt: 300, ...outgrew('L4') }),
      makeJob({ id: 'of another type', position: 1, queuedAt: 200, ...outgrew('L40S') }),
      makeJob({ id: 'waiting', position: 1, delayed: true, ...outgrew('L4') }),
      makeJob({ id: 'running', position: 1, status: 'IN_PROGRESS', ...outgrew('L4') }),
    ]);
    expect(idsOf(await store.read((tx) => tx.readyJobs(ENDPOINT, 10)))).toEqual(['plain']);
    expect(await store.read((tx) => tx.countReady(ENDPOINT, 10))).toBe(1);
    const loads = await store.read((tx) => tx.outgrownLoads(ENDPOINT));
    const [l4, l40s] = [numberGpuType('L4'), numberGpuType('L40S')];
    expect(new Set(loads)).toEqual(
      new Set([
        { gpuType: l4, waiting: 3, oldestQueuedAt: 300 },
        { gpuType: l40s, waiting: 1, oldestQueuedAt: 200 },
      ]),
    );
    const take = async (limit: number, accepted: number[]) => {
      const acceptsOutgrown = (type: number) => accepted.includes(type);
      const request = { endpointId: ENDPOINT, limit, now: 0, acceptsOutgrown };
      return idsOf((await store.write((tx) => tx.takeableJobs(request))).jobs);
    };
    expect(await take(10, [])).toEqual(['plain']);
    expect(await take(10, [l4])).toEqual(['first', 'second', 'third', 'plain']);
    expect(await take(2, [l4, l40s])).toEqual(['first', 'of another type']);
    const released = await readJob('running');
    if (!released) throw new Error('it was inserted');
    await save(released, { status: 'IN_QUEUE' });
    expect(await take(2, [l4])).toEqual(['first', 'running']);
    const [first, second] = [await readJob('first'), await readJob('of another type')];
    if (!first || !second) throw new Error('they were inserted');
    expect(first.delayed).toBe(false);
    await save(second, { status: 'IN_PROGRESS' });
    expect(await take(10, [l40s])).toEqual(['plain']);
    await save(first, { history: [] });
    expect(idsOf(await store.read((tx) => tx.readyJobs(ENDPOINT, 10)))).toEqual(['first', 'plain']);
  });

  it('finds a job of one GPU type behind many of another type whose group is at its limit', async () => {
    const types = ['L4', 'L40S'].sort((a, b) => numberGpuType(a) - numberGpuType(b));
    const [searchedFirst, searchedLast] = types.map((type) => [
      { ...FAILURE, outgrownGpuType: type },
    ]);
    await addJobs(store, [
      ...Array.from({ length: 1_100 }, (_, i) =>
        makeJob({ id: `a${i}`, group: 'a', position: i, history: searchedFirst ?? [] }),
      ),
      makeJob({ id: 'held', group: 'a', status: 'IN_PROGRESS', lease: makeLease() }),
      makeJob({ id: 'free', position: 2_000, history: searchedLast ?? [] }),
    ]);
    const request = {
      ...{ endpointId: ENDPOINT, limit: 4, now: 0, groupLimit: 1, acceptsOutgrown: () => true },
    };
    const found = await store.write((tx) => tx.takeableJobs(request));
    // With `hasMore` and without jobs, the take would search again at once, and again.
    expect(found).toMatchObject({ jobs: [{ id: 'free' }], isBlocked: true, hasMore: false });
  });

  it('leases jobs that have outgrown a GPU type within the limit of their groups', async () => {
    const history = [{ ...FAILURE, outgrownGpuType: 'L4' }];
    const many = Array.from({ length: 40 }, (_, i) =>
      makeJob({ id: `a${i}`, group: 'a', position: i, history }),
    );
    await addJobs(store, [
      ...many,
      makeJob({ id: 'b', group: 'b', position: 41, history }),
      makeJob({ id: 'ready', group: 'a', position: 90 }),
      makeJob({ id: 'held', group: 'a', status: 'IN_PROGRESS', lease: makeLease() }),
    ]);
    const take = (limit: number, groupLimit: number) =>
      store.write((tx) =>
        tx.takeableJobs({
          ...{ endpointId: ENDPOINT, limit, now: 0, groupLimit },
          acceptsOutgrown: () => true,
        }),
      );
    expect(await take(4, 1)).toMatchObject({ jobs: [{ id: 'b' }], isBlocked: true });
    expect(idsOf((await take(4, 3)).jobs)).toEqual(['a0', 'a1', 'b']);
    expect(idsOf((await take(7, 8)).jobs)).toEqual(['a0', 'a1', 'a2', 'a3', 'a4', 'a5', 'a6']);
  });

  it('returns the jobs that each worker has leased, running or ended', async () => {
    const lease = makeLease({ workerId: 'w1' });
    await addJobs(store, [
      makeJob({ id: 'live', position: 1, status: 'IN_PROGRESS', lease }),
      makeJob({ id: 'kept', position: 2, status: 'CANCELLED', lease }),
      makeJob({ id: 'lost', position: 3, lease: { ...lease, lost: 'failure' } }),
      makeJob({ id: 'of w2', status: 'IN_PROGRESS', lease: makeLease({ workerId: 'w2' }) }),
      makeJob({ id: 'free' }),
      { ...makeJob({ id: 'elsewhere', lease }), endpointId: 'ep_other' },
    ]);
    const jobs = await store.read((tx) => tx.jobsOfWorker(ENDPOINT, 'w1'));
    expect(idsOf(jobs)).toEqual(['live', 'kept', 'lost']);
    expect(idsOf(await store.read((tx) => tx.leasedJobs())).sort()).toEqual(
      ['live', 'kept', 'lost', 'of w2', 'elsewhere'].sort(),
    );
  });

  it('returns due jobs of all endpoints, and the next due time', async () => {
    expect(await store.read((tx) => tx.nextDueAt())).toBeUndefined();
    await addJobs(store, [
      makeJob({ id: 'c', dueAt: 30 }),
      makeJob({ id: 'a', dueAt: 10, status: 'COMPLETED' }),
      { ...makeJob({ id: 'b', dueAt: 20 }), endpointId: 'ep_other' },
    ]);
    const due = (now: number, limit: number) => store.read((tx) => tx.dueJobs(now, limit));
    expect(await due(9, 10)).toEqual([]);
    expect(idsOf(await due(20, 10))).toEqual(['a', 'b']);
    expect(idsOf(await due(99, 2))).toEqual(['a', 'b']);
    expect(await store.read((tx) => tx.nextDueAt())).toBe(10);
  });
}

export function describeList(): void {
  const jobs = JOB_STATUSES.flatMap((status, i) =>
    [0, 1, 2].map((n) => {
      const lease = status === 'IN_PROGRESS' ? makeLease() : null;
      return makeJob({ id: `${status}-${n}`, status, position: n * 10 + i, lease });
    }),
  );

  async function listPages(status: JobStatus | undefined, limit: number): Promise<StoredJob[][]> {
    const pages: StoredJob[][] = [];
    for (let before: number | undefined; ; ) {
      const listing = { endpointId: ENDPOINT, status, before, limit };
      const page = await store.read((tx) => tx.jobs(listing));
      if (page.length === 0) return pages;
      pages.push(page);
      before = page.at(-1)?.position;
    }
  }

  it('returns pages, newest first', async () => {
    await addJobs(store, [
      ...jobs,
      { ...makeJob({ id: 'elsewhere', position: 5 }), endpointId: 'ep_other' },
    ]);
    const pages = await listPages(undefined, 7);
    expect(pages.map((page) => page.length)).toEqual([7, 7, 4]);
    const newestFirst = jobs.toSorted((a, b) => b.position - a.position);
    expect(idsOf(pages.flat())).toEqual(idsOf(newestFirst));
  });

  it('finds those that match, and looks at a bounded number of them at a time', async () => {
    const error: JobError = { code: 'execution_timeout', message: 'late', attempts: [] };
    const failed = [{ ...FAILURE, message: 'it said \\"code\\":\\"released_too_often\\"' }];
    await addJobs(store, [
      makeJob({
        ...{ id: 'aa-1', position: 1, status: 'COMPLETED' as const, workerId: 'w1' },
        ...{ tags: ['customer_7'], webhook: 'https://x.example/?customer-8' },
      }),
      makeJob({ id: 'ab-2', position: 2, status: 'FAILED', workerId: 'w2', error }),
      makeJob({
        id: 'ab-3',
        position: 3,
        history: failed,
        workerId: 'w1',
        tags: ['customer-7', 'v'],
      }),
      makeJob({
        ...{ id: 'aa-4', position: 4, status: 'IN_PROGRESS' as const, workerId: 'w1' },
        lease: makeLease({ workerId: 'w2' }),
        tags: ['customer-7'],
      }),
      { ...makeJob({ id: 'aa-5', position: 5 }), endpointId: 'ep_other' },
    ]);
    const all = {
      ...{ endpointId: ENDPOINT, status: undefined, before: undefined, from: undefined },
      ...{ limit: 10, scan: 100 },
    };
    const find = async (search: Partial<JobSearch>) => {
      const { jobs, next } = await store.read((tx) => tx.findJobs({ ...all, ...search }));
      return [idsOf(jobs), next];
    };
    expect(await find({})).toEqual([['aa-4', 'ab-3', 'ab-2', 'aa-1'], undefined]);
    expect(await find({ from: 2, before: 4 })).toEqual([['ab-3', 'ab-2'], undefined]);
    expect(await find({ idPart: 'ab-' })).toEqual([['ab-3', 'ab-2'], undefined]);
    expect(await find({ workerId: 'w2' })).toEqual([['aa-4', 'ab-2'], undefined]);
    expect(await find({ workerId: 'w2', status: 'IN_PROGRESS' })).toEqual([['aa-4'], undefined]);
    expect(await find({ workerId: 'w1', status: 'IN_PROGRESS' })).toEqual([[], undefined]);
    expect(await find({ workerId: 'w1', status: 'COMPLETED' })).toEqual([['aa-1'], undefined]);
    expect(await find({ errorCode: 'execution_timeout' })).toEqual([['ab-2'], undefined]);
    expect(await find({ errorCode: 'gpu_out_of_memory' })).toEqual([['ab-3'], undefined]);
    expect(await find({ errorCode: 'released_too_often' })).toEqual([[], undefined]);
    expect(await find({ tags: ['customer-7'] })).toEqual([['aa-4', 'ab-3'], undefined]);
    expect(await find({ tags: ['v', 'customer-7'] })).toEqual([['ab-3'], undefined]);
    const running = { tags: ['customer-7'], status: 'IN_PROGRESS' } as const;
    expect(await find(running)).toEqual([['aa-4'], undefined]);
    expect(await find({ tags: ['customer_7'] })).toEqual([['aa-1'], undefined]);
    for (const tag of ['customer', 'Customer-7', 'customer-8', 'run', 'w1']) {
      expect(await find({ tags: [tag] })).toEqual([[], undefined]);
    }
    expect(await find({ limit: 1 })).toEqual([['aa-4'], 4]);
    expect(await find({ limit: 1, status: 'IN_PROGRESS' })).toEqual([['aa-4'], undefined]);
    expect(await find({ scan: 2, idPart: 'aa-1' })).toEqual([[], 3]);
    expect(await find({ scan: 2, idPart: 'aa-1', before: 3 })).toEqual([['aa-1'], 1]);
    expect(await find({ scan: 2, idPart: 'aa-1', before: 1 })).toEqual([[], undefined]);
  });

  it.each([null, makeLease()])(
    'omits errors, histories, progress and attachments, which may have hundreds of MB',
    async (lease) => {
      const status = lease ? ('IN_PROGRESS' as const) : ('IN_QUEUE' as const);
      const full = {
        ...makeJob({ id: 'full', position: 1, lease, status }),
        ...{ error: { code: 'handler_error', message: 'no', attempts: [] }, progress: '1' },
        history: [
          {
            attempt: 1,
            code: 'handler_error',
            message: 'no',
            workerId: 'w',
            startedAt: 0,
            endedAt: 1,
          },
        ],
        attachment: { format: null, handlerData: '{}' },
      } satisfies StoredJob;
      await addJobs(store, [full]);
      const [page = []] = await listPages(status, 1);
      const slim = { error: null, history: [], progress: null, attachment: null };
      expect(page).toEqual([{ ...full, ...slim }]);
    },
  );

  it.each(JOB_STATUSES)('returns only the jobs with the status %s on request', async (status) => {
    await addJobs(store, jobs);
    const pages = await listPages(status, 2);
    expect(pages.map(idsOf)).toEqual([[`${status}-2`, `${status}-1`], [`${status}-0`]]);
  });
}
