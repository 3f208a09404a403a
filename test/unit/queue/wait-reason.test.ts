// Why a queued job waits: each code, and which one is given if several hold.
import { describe, expect, it } from 'vitest';
import type { PresentWorker } from '../../../src/queue/leases/presence.ts';
import { countWorkers, describeWait, type WaitFacts } from '../../../src/queue/waits.ts';
import type { JobParent, StoredJob } from '../../../src/store/store.ts';
import { WAIT_CODES } from '../../../src/wire/job/job.ts';
import type { WaitReason } from '../../../src/wire/job/job-records.ts';
import type { ScalingFacts } from '../../../src/wire/resources/scaling.ts';
import { makeJob, NOW, T0 } from '../../support/store/job-states.ts';

const NONE: WaitFacts['workers'] = {
  ...{ alive: 0, freeSlots: 0, empty: 0, draining: 0, parked: 0, suspended: 0, silentSince: null },
};
const BUSY = { ...NONE, alive: 2 };
const FREE = { ...NONE, alive: 2, freeSlots: 1, empty: 1 };

function scalingOf(changes: Partial<ScalingFacts>): ScalingFacts {
  return {
    ...{ workersMax: 3, workers: 2, cause: 'enough', reason: '1 job waiting', since: T0 },
    crashes: { streak: 0, notBefore: 0, reason: null, isHandler: false },
    ...{ starting: null, unversioned: null, costPerHour: 1 },
    ...changes,
  };
}

const starting = { podId: 'pod_1', since: T0, isPulling: false, reason: null };
const crashes = { streak: 2, notBefore: NOW + 4_000, reason: 'out of luck', isHandler: false };
const failed = {
  attempt: 1,
  code: 'handler_error',
  message: 'no',
  workerId: 'w',
  startedAt: T0,
  endedAt: T0,
};

interface Case {
  job?: Partial<StoredJob>;
  facts?: Partial<WaitFacts>;
  is: Partial<WaitReason>;
}

const laterGpus = { outgrown: 'l4', types: ['h200'] };

function awaited(id: string, ended?: 'COMPLETED'): JobParent {
  const step = { name: `step ${id}`, digest: '' };
  return { endpointId: 'other', id, onFailure: 'run', step, ...(ended && { ended }) };
}

const UPSTREAM = {
  ...{ id: 'l', name: 'upstream', home: 0, key: null },
  ...{ rateLimit: { max: 500, perMs: 60_000 }, concurrency: 1 },
};

const CASES: Record<string, Case> = {
  'memory that was not enough, without a worker of a later GPU type': {
    job: { solo: true, queuedAt: T0 },
    facts: { laterGpus, scaling: scalingOf({ cause: 'next_gpu', reason: 'starting 1 worker' }) },
    is: {
      ...{ code: 'later_gpu_type', since: T0 },
      message:
        'The job ran out of memory on l4 and needs a worker of a later GPU type of the endpoint (h200). None is connected. Scaler: starting 1 worker.',
    },
  },
  'memory that was not enough, with a free worker of a later GPU type': {
    job: { solo: true },
    facts: { laterGpus, workers: FREE },
    is: { code: 'worker_ready' },
  },

  'a parent that has not ended, with a free worker': {
    job: {
      ...{ delayed: true, availableAt: NOW + 9_000 },
      links: {
        parents: [
          { endpointId: 'e', id: 'a', onFailure: 'fail', ended: 'COMPLETED' },
          { endpointId: 'other', id: 'b', onFailure: 'fail' },
        ],
        ...{ children: [], delayMs: 0 },
      },
    },
    facts: { workers: FREE },
    is: {
      ...{ code: 'waits_for_parent', since: T0 },
      message: 'The job waits for the end of job other/b; 1 of 2 have ended.',
    },
  },
  'a child of its handler that has not ended': {
    job: {
      ...{ delayed: true, availableAt: NOW + 9_000 },
      links: {
        parents: [
          { endpointId: 'e', id: 'a', onFailure: 'fail', ended: 'COMPLETED' },
          awaited('b', 'COMPLETED'),
          awaited('c'),
          awaited('d'),
        ],
        ...{ children: [], delayMs: 0, wait: { since: T0 + 5, leftMs: 1 } },
      },
    },
    facts: { workers: FREE },
    is: {
      ...{ code: 'waits_for_child', since: T0 + 5 },
      message:
        'The handler of the job waits for the end of child "step c", job other/c and 1 other child; 1 of 3 have ended.',
    },
  },
  'a handler that sleeps': {
    job: {
      ...{ delayed: true, availableAt: NOW + 9_000 },
      links: {
        ...{ parents: [], children: [], delayMs: 0 },
        wait: { since: T0 + 5, leftMs: 1, until: NOW + 9_000 },
      },
    },
    facts: { workers: FREE },
    is: {
      ...{ code: 'sleeping', since: T0 + 5, until: NOW + 9_000 },
      message: 'The handler of the job sleeps until 2026-01-01T00:01:14.000Z.',
    },
  },
  'a delay that is not over': {
    job: { delayed: true, availableAt: NOW + 9_000 },
    facts: { workers: FREE },
    is: {
      ...{ code: 'delayed', since: T0, until: NOW + 9_000 },
      message:
        'The job was submitted with a delay and starts at 2026-01-01T00:01:14.000Z at the earliest.',
    },
  },
  'a paused endpoint': {
    facts: { workers: FREE, paused: { group: null, since: T0, until: null, reason: null } },
    is: {
      ...{ code: 'paused', since: T0 },
      message: 'The endpoint is paused until someone resumes it.',
    },
  },
  'a paused group': {
    facts: {
      workers: FREE,
      paused: { group: 'a', since: T0, until: NOW + 9_000, reason: 'their quota is used up' },
    },
    is: {
      ...{ code: 'group_paused', since: T0, until: NOW + 9_000 },
      message: 'Group a is paused until 2026-01-01T00:01:14.000Z: their quota is used up.',
    },
  },
  'a rate limit of its group': {
    job: { group: 'a' },
    facts: {
      workers: FREE,
      rate: { limit: { max: 1, perMs: 500 }, until: NOW + 9_000, ofGroup: true },
    },
    is: {
      ...{ code: 'rate_limited', until: NOW + 9_000 },
      message:
        '1 job of group a (groupRateLimit) started in the last 500 ms, the most that may; the next one may at 2026-01-01T00:01:14.000Z.',
    },
  },
  'a shared limit that is used up': {
    facts: {
      workers: FREE,
      shared: { limit: UPSTREAM, isPaused: false, until: NOW + 9_000 },
    },
    is: {
      ...{ code: 'shared_limit', until: NOW + 9_000 },
      message:
        'The shared limit upstream (500 starts in 60 s and 1 running job over all its endpoints) is used up until 2026-01-01T00:01:14.000Z.',
    },
  },
  'a shared limit that a handler has paused for its group': {
    job: { group: 'a' },
    facts: {
      workers: FREE,
      shared: { limit: { ...UPSTREAM, key: 'group' }, isPaused: true, until: NOW + 9_000 },
    },
    is: {
      ...{ code: 'shared_limit', until: NOW + 9_000 },
      message:
        'A handler has paused the shared limit upstream for group a until 2026-01-01T00:01:14.000Z.',
    },
  },
  'a delay that is just over': {
    job: { delayed: true, availableAt: NOW },
    facts: { workers: FREE },
    is: { code: 'worker_ready' },
  },
  'a failed attempt': {
    job: {
      ...{ delayed: true, availableAt: NOW + 9_000, queuedAt: NOW, failures: 1 },
      history: [{ ...failed, code: 'handler_error' }],
    },
    is: {
      ...{ code: 'backing_off', since: NOW, until: NOW + 9_000 },
      message:
        'Attempt 1 failed with handler_error: no. The next attempt starts at 2026-01-01T00:01:14.000Z at the earliest.',
    },
  },
  'a group at its limit': {
    job: { group: 'a' },
    facts: { workers: FREE, group: { limit: 2, leases: 2 } },
    is: {
      code: 'group_at_limit',
      message: 'Group a has 2 running jobs, and groupConcurrency of the endpoint is 2.',
    },
  },
  'a group below its limit': {
    job: { group: 'a' },
    facts: { workers: FREE, group: { limit: 2, leases: 1 } },
    is: { code: 'worker_ready' },
  },
  'a job that runs alone, and busy workers': {
    job: { solo: true },
    facts: { workers: { ...FREE, empty: 0 } },
    is: { code: 'runs_alone' },
  },
  'a job that runs alone, and an empty worker': {
    job: { solo: true },
    facts: { workers: FREE },
    is: { code: 'worker_ready' },
  },
  'a job that runs alone, and no worker': {
    job: { solo: true },
    is: { code: 'no_worker' },
  },
  'no worker of the platform': {
    is: {
      code: 'no_worker',
      message: 'No worker is connected. Start one: millrace worker <handler> --endpoint e.',
    },
  },
  'a worker that is silent': {
    facts: { workers: { ...NONE, silentSince: T0 } },
    is: {
      ...{ code: 'no_worker', since: T0 },
      message:
        'No worker is connected; the last call came at 2026-01-01T00:00:00.000Z. Start one: millrace worker <handler> --endpoint e.',
    },
  },
  'only draining workers': {
    facts: { workers: { ...NONE, draining: 1 } },
    is: { code: 'no_worker', message: expect.stringContaining('1 connected worker draining') },
  },
  'workers without a free slot': {
    facts: { workers: BUSY },
    is: { code: 'workers_busy', message: 'All 2 workers run other jobs.' },
  },
  'a scaler that has not decided': {
    facts: { scaling: 'unknown' },
    is: {
      code: 'no_worker',
      message: 'No worker is connected. The scaler has not decided yet.',
    },
  },
  'a scaler that finds its workers enough': {
    facts: { workers: BUSY, scaling: scalingOf({}) },
    is: {
      code: 'workers_busy',
      message: 'All 2 workers run other jobs. Scaler: 1 job waiting.',
    },
  },
  'an endpoint that is switched off': {
    facts: { scaling: scalingOf({ workersMax: 0, workers: 0, cause: 'at_maximum' }) },
    is: {
      code: 'at_maximum',
      message: 'The endpoint is switched off: workersMax is 0.',
    },
  },
  'as many busy workers as are allowed': {
    facts: { workers: BUSY, scaling: scalingOf({ workersMax: 2 }) },
    is: {
      code: 'at_maximum',
      message: 'All 2 workers run other jobs. The endpoint has 2 workers; workersMax is 2.',
    },
  },
  'as many draining workers as are allowed': {
    facts: { workers: { ...NONE, draining: 1 }, scaling: scalingOf({ workersMax: 1, workers: 1 }) },
    is: {
      code: 'at_maximum',
      message:
        'No worker takes jobs. The endpoint has 1 worker, 1 of them draining; workersMax is 1.',
    },
  },
  'a worker that starts': {
    facts: { scaling: scalingOf({ workers: 1, starting }) },
    is: {
      ...{ code: 'worker_starting', since: T0 },
      message: 'A worker is starting (65 s so far).',
    },
  },
  'a parked worker that wakes': {
    facts: { scaling: scalingOf({ starting: { ...starting, isWaking: true } }) },
    is: {
      code: 'worker_starting',
      message: 'A parked worker is waking: its model returns to the GPU.',
    },
  },
  'a worker that starts beside busy ones': {
    facts: { workers: BUSY, scaling: scalingOf({ workers: 3, starting }) },
    is: { code: 'worker_starting' },
  },
  'an image that is being pulled': {
    facts: { scaling: scalingOf({ starting: { ...starting, isPulling: true, reason: 'slow' } }) },
    is: { code: 'image_pull', message: expect.stringMatching(/: slow\.$/) },
  },
  'a job that has just come to an endpoint without workers': {
    facts: { scaling: scalingOf({ workers: 0, reason: 'no load: no worker is needed' }) },
    is: { code: 'no_worker', message: 'No worker is connected; one is about to start.' },
  },
  'an idle worker of another endpoint with the only GPU': {
    facts: {
      scaling: scalingOf({
        ...{ cause: 'no_gpu', reason: '1 more worker needed, but no GPU is free', workers: 0 },
        holder: { endpoint: 'chat', until: NOW + 2_000, state: 'idle' },
      }),
    },
    is: {
      ...{ code: 'no_gpu', until: NOW + 2_000 },
      message:
        '1 more worker needed, but no GPU is free. An idle worker of endpoint chat holds one until 2026-01-01T00:01:07.000Z.',
    },
  },
  'such a worker that another user keeps': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: null, until: null, state: 'idle' },
      }),
    },
    is: {
      code: 'no_gpu',
      message: expect.stringContaining(
        'An idle worker of an endpoint of another user holds one and keeps it',
      ),
    },
  },
  'a busy worker of another endpoint, until its turn is over': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: 'chat', until: NOW + 2_000, state: 'busy' },
      }),
    },
    is: {
      ...{ code: 'no_gpu', until: NOW + 2_000 },
      message: expect.stringMatching(
        /A busy worker of endpoint chat holds one; its turn ends at 2026-01-01T00:01:07.000Z, and then it finishes its jobs\.$/,
      ),
    },
  },
  'a worker of another endpoint that gives way': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: 'chat', until: null, state: 'leaving' },
      }),
    },
    is: {
      code: 'no_gpu',
      message: expect.stringContaining(
        'A worker of endpoint chat gives one up as soon as its jobs have ended.',
      ),
    },
  },
  'a worker of another endpoint that is being suspended': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: 'batch', until: null, state: 'suspending' },
      }),
    },
    is: {
      code: 'no_gpu',
      message: expect.stringContaining(
        'Running jobs of endpoint batch are being suspended, and urgent jobs get their GPU.',
      ),
    },
  },
  'a worker whose jobs are suspended for urgent ones': {
    facts: {
      workers: { ...NONE, parked: 1, suspended: 1 },
      scaling: scalingOf({ workers: 0, workersMax: 1, cause: 'at_maximum', reason: 'full' }),
    },
    is: {
      code: 'workers_busy',
      message: '1 worker is suspended: urgent jobs of other endpoints have its GPU. Scaler: full.',
    },
  },
  'a busy worker of an endpoint with its share of GPUs': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: 'chat', until: null, state: 'sharing' },
      }),
    },
    is: {
      code: 'no_gpu',
      message: expect.stringContaining(
        'A busy worker of endpoint chat holds one; that endpoint has no more than its share of the GPUs.',
      ),
    },
  },
  'a pod that has the GPU': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: 'notebook', until: null, state: 'pod' },
      }),
    },
    is: {
      code: 'no_gpu',
      message: expect.stringContaining('Pod notebook holds one, and pods give way to nobody.'),
    },
  },
  'a worker of another endpoint that starts': {
    facts: {
      scaling: scalingOf({
        cause: 'no_gpu',
        holder: { endpoint: 'chat', until: null, state: 'starting' },
      }),
    },
    is: {
      code: 'no_gpu',
      message: expect.stringContaining('A worker of endpoint chat has one and is starting.'),
    },
  },
  'a cause that is older than the job': {
    job: { submittedAt: NOW - 5 },
    facts: { scaling: scalingOf({ cause: 'no_capacity', since: T0 }) },
    is: { code: 'no_capacity', since: NOW - 5 },
  },
  'workers that crash': {
    facts: { scaling: scalingOf({ crashes, cause: 'crashed' }) },
    is: {
      ...{ code: 'crashed', since: T0, until: NOW + 4_000 },
      message:
        '2 workers in a row; the last one failed before it was ready: out of luck. The next one starts at 2026-01-01T00:01:09.000Z at the earliest.',
    },
  },
  'a worker on trial after a crash': {
    facts: { scaling: scalingOf({ crashes: { ...crashes, streak: 1, notBefore: NOW }, starting }) },
    is: {
      code: 'crashed',
      message: 'A worker failed before it was ready: out of luck. The next one is being tried.',
    },
  },
  'workers that cannot load the handler': {
    facts: { scaling: scalingOf({ crashes: { ...crashes, isHandler: true }, cause: 'crashed' }) },
    is: { code: 'handler_not_loaded', message: expect.stringContaining('out of luck') },
  },
  'a worker that crashed beside others that run': {
    facts: { workers: BUSY, scaling: scalingOf({ crashes }) },
    is: { code: 'workers_busy' },
  },
  'workers that cannot load the handler, until it changes': {
    facts: { scaling: scalingOf({ crashes: { ...crashes, isHandler: true, notBefore: null } }) },
    is: {
      code: 'handler_not_loaded',
      message: expect.stringMatching(/The next one starts when the handler changes\.$/),
    },
  },
  'an endpoint without a version': {
    facts: { scaling: scalingOf({ unversioned: { rollout: null } }) },
    is: { code: 'no_version', message: expect.stringContaining('Deploy one') },
  },
  'a first version that did not load': {
    facts: {
      scaling: scalingOf({
        unversioned: { rollout: { version: 1, isFailed: true, reason: 'no such file' } },
      }),
    },
    is: {
      code: 'handler_not_loaded',
      message: 'Version 1 of the handler did not load, and no other one is deployed: no such file.',
    },
  },
  'a first version whose worker starts': {
    facts: {
      scaling: scalingOf({
        starting,
        unversioned: { rollout: { version: 1, isFailed: false, reason: null } },
      }),
    },
    is: { code: 'worker_starting' },
  },
  'a first version without a place for its worker': {
    facts: {
      scaling: scalingOf({
        unversioned: { rollout: { version: 1, isFailed: false, reason: 'no GPU is free' } },
      }),
    },
    is: { code: 'no_version', message: 'Version 1 is being deployed. No GPU is free.' },
  },
  'no free GPU': {
    facts: { scaling: scalingOf({ cause: 'no_gpu', reason: 'no GPU is free' }) },
    is: { code: 'no_gpu', message: 'No GPU is free.', since: T0 },
  },
  'a full machine': {
    facts: { workers: BUSY, scaling: scalingOf({ cause: 'no_capacity', reason: 'it is full' }) },
    is: { code: 'no_capacity', message: 'It is full.' },
  },
  'a budget that is used up': {
    facts: { workers: BUSY, scaling: scalingOf({ cause: 'budget', reason: 'it is used up' }) },
    is: { code: 'budget', message: 'It is used up.' },
  },
};

describe('a queued job waits because of', () => {
  it.each(Object.entries(CASES))('%s', (_, { facts, is, job }) => {
    const all: WaitFacts = { workers: NONE, scaling: 'none', group: undefined, ...facts };
    expect(describeWait(makeJob(job), all, NOW)).toMatchObject(is);
  });

  it('each code of the list', () => {
    const given = Object.values(CASES).map(({ is }) => is.code);
    expect(WAIT_CODES.filter((code) => !given.includes(code))).toEqual([]);
  });
});

describe('the workers of an endpoint', () => {
  const lease = { endpointId: 'e', id: 'job', token: 't', takeId: 'k', deadlineAt: 0 };
  const times = { startedAt: 0, suspendedAt: null, suspendedMs: 0, suspensions: 0 };
  const run = { priority: 0, status: 'IN_PROGRESS', ...times } as const;
  const held = { ...lease, solo: false, delivering: false, lost: false, run };

  const parking = { way: 'driver', change: 2, vramBytes: 1, hostLimitBytes: 9 } as const;

  function worker(changes: Partial<PresentWorker>) {
    return { draining: false, leases: new Map(), seenAt: NOW, slots: 2, ...changes };
  }

  it('are counted by what they can take', () => {
    const all = [
      worker({}),
      worker({ leases: new Map([['t', held]]) }),
      worker({ leases: new Map([['t', { ...held, solo: true }]]) }),
      worker({ draining: true }),
      worker({ parking: { ...parking, state: 'parked' } }),
      worker({ parking: { ...parking, state: 'parked', suspended: true } }),
      worker({ seenAt: NOW - 20_000 }),
      worker({ seenAt: NOW - 30_000, draining: true }),
    ];
    expect(countWorkers(all, NOW - 15_000)).toEqual({
      ...{ alive: 3, freeSlots: 3, empty: 1, draining: 1, parked: 2, suspended: 1 },
      silentSince: NOW - 20_000,
    });
  });

  it('cannot take less than nothing', () => {
    const leases = new Map(['a', 'b', 'c'].map((token) => [token, held]));
    expect(countWorkers([worker({ leases })], 0)).toMatchObject({ alive: 1, freeSlots: 0 });
  });
});
