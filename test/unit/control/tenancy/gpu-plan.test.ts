// Who gives way to whom, by cases. What holds in every course of events is in gpu-plan-laws.test.ts.
import { describe, expect, it } from 'vitest';
import {
  type GpuPlanInput,
  type GpuWaiter,
  MAX_TURN_MS,
  PATIENCE_MS,
  planGpus,
  type Tenant,
  type TenantEndpoint,
} from '../../../../src/control/tenancy/gpu-plan.ts';

const NOW = 10_000_000;

function endpoint(id: string, changes: Partial<TenantEndpoint> = {}): TenantEndpoint {
  return {
    ...{ id, userId: 'u', weight: 1, minResidenceMs: 1_000, kept: 0, hasWork: false, usedMs: 0 },
    ...{ startMs: 0, wakeMs: 0, parkMs: 60_000, spares: 0 },
    ...changes,
  };
}

/** Its ID is that of its endpoint with a number. */
function tenant(podId: string, changes: Partial<Tenant> = {}): Tenant {
  return {
    ...{ podId, endpointId: podId.slice(0, 1), node: null, gpuType: 'A', gpus: [`gpu-${podId}`] },
    ...{ state: 'resident', since: NOW - 600_000, idleSince: null, canPark: false, bytes: 1 },
    ...changes,
  };
}

const idle = (podId: string, idleMs: number, changes: Partial<Tenant> = {}) =>
  tenant(podId, { idleSince: NOW - idleMs, ...changes });
const busy = tenant;
const parked = (podId: string, ms: number, changes: Partial<Tenant> = {}) =>
  tenant(podId, { state: 'parked', since: NOW - ms, idleSince: NOW, ...changes });

function waiter(endpointId: string, changes: Partial<GpuWaiter> = {}): GpuWaiter {
  return { endpointId, gpuTypes: ['A'], count: 1, since: NOW, ...changes };
}

function plan({ endpoints = [], ...given }: Partial<GpuPlanInput>) {
  const known = ['a', 'b', 'w', 'x'].map(
    (id) => endpoints.find((each) => each.id === id) ?? endpoint(id),
  );
  const empty = {
    ...{ free: [], tenants: [], waiters: [], users: [] },
    memory: [{ node: null, bytes: 10 }],
  };
  const { moves, waits } = planGpus({ ...empty, ...given, now: NOW, endpoints: known });
  return {
    moves: moves.map(({ kind, podId }) => `${kind} ${podId}`),
    waits: waits.map(({ endpointId, granted, holder }) => ({
      ...{ endpointId, granted },
      holder: holder && { ...holder, until: holder.until === null ? null : holder.until - NOW },
    })),
  };
}

const nobody = { moves: [], waits: [] };

describe('for an endpoint that waits', () => {
  it.each<[when: string, given: Partial<GpuPlanInput>, moves: string[]]>([
    [
      'an idle one gives way',
      { tenants: [idle('a1', 5_000)], waiters: [waiter('w')] },
      ['drain a1'],
    ],
    [
      'the one that was idle for longest gives way',
      { tenants: [idle('a1', 5_000), idle('b1', 9_000)], waiters: [waiter('w')] },
      ['drain b1'],
    ],
    [
      'an idle one goes before a busy one',
      { tenants: [busy('b1'), idle('a1', 5_000)], waiters: [waiter('w')] },
      ['drain a1'],
    ],
    [
      'a spare one that starts goes before an idle one',
      {
        tenants: [idle('a1', 5_000), tenant('b1', { state: 'spare', canPark: true })],
        waiters: [waiter('w')],
      },
      ['drain b1'],
    ],
    [
      'a spare one that starts goes also within the minimum of its endpoint',
      {
        endpoints: [endpoint('a', { kept: 1 })],
        ...{ tenants: [tenant('a1', { state: 'spare' })], waiters: [waiter('w')] },
      },
      ['drain a1'],
    ],
    ['none of its own gives way', { tenants: [idle('w1', 5_000)], waiters: [waiter('w')] }, []],
    [
      'none of another type gives way',
      { tenants: [idle('a1', 5_000, { gpuType: 'B' })], waiters: [waiter('w')] },
      [],
    ],
    [
      'none within its minimum gives way',
      {
        ...{ endpoints: [endpoint('a', { kept: 1 })], tenants: [idle('a1', 1), idle('a2', 2)] },
        waiters: [waiter('w', { count: 2 })],
      },
      ['drain a2'],
    ],
    [
      'a free one is enough',
      {
        ...{ free: [{ gpuType: 'A', gpus: ['g'] }], tenants: [idle('a1', 5_000)] },
        waiters: [waiter('w')],
      },
      [],
    ],
    [
      'a free one does not help, if its worker waits for its machine',
      {
        ...{ free: [{ gpuType: 'A', gpus: ['g'] }], tenants: [idle('a1', 5_000)] },
        waiters: [waiter('w', { isPlaced: true })],
      },
      ['drain a1'],
    ],
    [
      'one that leaves is enough',
      {
        tenants: [idle('a1', 5_000, { state: 'leaving', since: NOW }), idle('b1', 5_000)],
        waiters: [waiter('w')],
      },
      [],
    ],
    [
      'an idle one that hangs while it leaves is not',
      {
        tenants: [
          idle('a1', 5_000, { state: 'parking', since: NOW - PATIENCE_MS }),
          idle('b1', 5_000),
        ],
        waiters: [waiter('w')],
      },
      ['drain b1'],
    ],
    [
      'one that is to be parked after its job is not, while another is idle',
      {
        tenants: [busy('a1', { state: 'parking', since: NOW }), idle('b1', 5_000)],
        waiters: [waiter('w')],
      },
      ['drain b1'],
    ],
    [
      'one that has been leaving for too long is not',
      {
        tenants: [busy('a1', { state: 'leaving', since: NOW - PATIENCE_MS }), busy('b1')],
        ...{ endpoints: [endpoint('b', { usedMs: 1_000 })], waiters: [waiter('w')] },
      },
      ['drain b1'],
    ],
    [
      'one that has just come stays',
      { tenants: [idle('a1', 100, { since: NOW - 500 })], waiters: [waiter('w')] },
      [],
    ],
    [
      'one whose switch costs much stays for a quarter of that',
      {
        ...{ endpoints: [endpoint('w', { startMs: 40_000 })], waiters: [waiter('w')] },
        tenants: [idle('a1', 100, { since: NOW - 9_000 })],
      },
      [],
    ],
    [
      'an idle one with jobs in its queue is not idle',
      {
        ...{ endpoints: [endpoint('a', { hasWork: true, startMs: 9_000 })] },
        ...{ tenants: [idle('a1', 1, { since: NOW - 9_000 })], waiters: [waiter('w')] },
      },
      [],
    ],
    [
      'a busy one gives way that has had more',
      {
        ...{ endpoints: [endpoint('a', { usedMs: 9_000, startMs: 1_000 })] },
        ...{ tenants: [busy('a1')], waiters: [waiter('w')] },
      },
      ['drain a1'],
    ],
    [
      'a busy one stays that has had less',
      {
        endpoints: [endpoint('a', { startMs: 10_000 }), endpoint('w', { usedMs: 9_000 })],
        ...{ tenants: [busy('a1')], waiters: [waiter('w')] },
      },
      [],
    ],
    [
      'a busy one gives way to one that has waited for too long, whoever had more',
      {
        endpoints: [endpoint('a', { startMs: 10_000 }), endpoint('w', { usedMs: 900_000 })],
        ...{ tenants: [busy('a1')], waiters: [waiter('w', { since: NOW - PATIENCE_MS })] },
      },
      ['drain a1'],
    ],
    [
      'a busy one stays if both have the same number',
      {
        endpoints: [endpoint('a', { usedMs: 9_000 }), endpoint('w')],
        ...{ tenants: [busy('a1'), busy('w1')], waiters: [waiter('w')] },
      },
      [],
    ],
    [
      'one that can be parked is parked',
      { tenants: [idle('a1', 5_000, { canPark: true })], waiters: [waiter('w')] },
      ['park a1'],
    ],
    [
      'one that is larger than the memory of the host is drained',
      { tenants: [idle('a1', 5_000, { canPark: true, bytes: 11 })], waiters: [waiter('w')] },
      ['drain a1'],
    ],
    [
      'the oldest parked ones end first, as many as it takes',
      {
        tenants: [
          ...[parked('b1', 10, { bytes: 4 }), parked('b2', 30, { bytes: 3 })],
          ...[parked('b3', 20, { bytes: 3 }), idle('a1', 5_000, { canPark: true, bytes: 5 })],
        ],
        waiters: [waiter('w')],
      },
      ['end b2', 'end b3', 'park a1'],
    ],
    [
      'its own parked one wakes as soon as its GPU is free',
      {
        free: [{ gpuType: 'A', gpus: ['other', 'gpu-w1'] }],
        ...{ tenants: [parked('w1', 10)], waiters: [waiter('w')] },
      },
      ['wake w1'],
    ],
    [
      'of the idle ones, the one on the GPU of its parked one gives way',
      {
        tenants: [
          ...[parked('w1', 10), idle('a1', 9_000)],
          idle('b1', 5_000, { gpus: ['gpu-w1'] }),
        ],
        waiters: [waiter('w')],
      },
      ['drain b1'],
    ],
  ])('%s', (_, given, moves) => {
    expect(plan(given).moves).toEqual(moves);
  });
});

describe('against the endpoint of another user', () => {
  const others = endpoint('a', { userId: 'v', minResidenceMs: 3_600_000 });

  it('a long residence counts for a minute at most', () => {
    const given = { endpoints: [others], waiters: [waiter('w')] };
    const since = NOW - MAX_TURN_MS;
    expect(plan({ ...given, tenants: [idle('a1', 1, { since: since + 1 })] }).moves).toEqual([]);
    expect(plan({ ...given, tenants: [idle('a1', 1, { since })] }).moves).toEqual(['drain a1']);
    const own = [{ ...others, userId: 'u' }];
    expect(plan({ ...given, endpoints: own, tenants: [idle('a1', 1, { since })] }).moves).toEqual(
      [],
    );
  });

  it('GPUs of all endpoints of a user count together, by type', () => {
    const endpoints = [others, endpoint('b', { kept: 1 })];
    const given = { endpoints, waiters: [waiter('w')] };
    const b1 = busy('b1', { since: NOW });
    expect(plan({ ...given, tenants: [busy('a1'), b1] }).waits).toMatchObject([
      { holder: { podId: 'a1', state: 'sharing' } },
    ]);
    const ofTypeB = [busy('a1'), { ...b1, gpuType: 'B' }];
    expect(plan({ ...given, tenants: ofTypeB }).waits).toMatchObject([
      { holder: { podId: 'a1', state: 'busy' } },
    ]);
  });
});

describe('a parked tenant', () => {
  it('ends when its time is over', () => {
    expect(plan({ tenants: [parked('a1', 59_999), parked('b1', 60_000)] }).moves).toEqual([
      'end b1',
    ]);
  });

  it('ends when the host has too little memory, and stays while nobody knows how much it has', () => {
    const tenants = [parked('a1', 20, { bytes: 9 }), parked('b1', 10, { bytes: 9 })];
    expect(plan({ tenants }).moves).toEqual(['end a1']);
    expect(plan({ tenants, memory: [] })).toEqual(nobody);
  });
});

describe('those that wait', () => {
  it('come in the order of what they have had, then of their waits', () => {
    const endpoints = [endpoint('x', { usedMs: 1 })];
    const waiters = [
      waiter('x', { since: NOW - 5_000 }),
      waiter('w'),
      waiter('b', { since: NOW - 9 }),
    ];
    const free = [{ gpuType: 'A', gpus: ['g'] }];
    const { waits } = plan({ endpoints, free, waiters });
    expect(waits).toMatchObject([
      { endpointId: 'b', granted: ['A'] },
      { endpointId: 'w', granted: [] },
      { endpointId: 'x', granted: [] },
    ]);
  });

  it('come in the order of what their users have had, also when they have waited for too long', () => {
    const endpoints = [endpoint('x', { userId: 'v' }), endpoint('w', { usedMs: 9 })];
    const users = [
      { userId: 'u', gpuType: 'A', usedMs: 1 },
      { userId: 'u', gpuType: 'B', usedMs: 9 },
      { userId: 'v', gpuType: 'A', usedMs: 2 },
    ];
    const waiters = [waiter('x', { since: NOW - PATIENCE_MS }), waiter('w'), waiter('b')];
    const { waits } = plan({ endpoints, users, waiters });
    expect(waits.map(({ endpointId }) => endpointId)).toEqual(['b', 'w', 'x']);
  });

  it('come first if they have waited for too long without any GPU', () => {
    const endpoints = [endpoint('x', { usedMs: 900_000 })];
    const waiters = [waiter('w'), waiter('x', { since: NOW - PATIENCE_MS })];
    expect(plan({ endpoints, waiters }).waits[0]).toMatchObject({ endpointId: 'x' });
  });

  it('get a free GPU of the first type of their list', () => {
    const free = [
      { gpuType: 'A', gpus: ['g'] },
      { gpuType: 'B', gpus: ['h', 'i'] },
    ];
    const { waits } = plan({ free, waiters: [waiter('w', { gpuTypes: ['B', 'A'], count: 3 })] });
    expect(waits[0]?.granted).toEqual(['B', 'B', 'A']);
  });

  it.each<[when: string, given: Partial<GpuPlanInput>, holder: object | undefined]>([
    ['nobody, if no GPU of the type exists', {}, undefined],
    [
      'an idle one, until its residence is over',
      { tenants: [idle('a1', 1, { since: NOW - 400 })] },
      { podId: 'a1', state: 'idle', until: 600 },
    ],
    [
      'an idle one of a minimum',
      { endpoints: [endpoint('a', { kept: 1 })], tenants: [idle('a1', 1)] },
      { state: 'idle', until: null },
    ],
    [
      'a busy one of a minimum',
      { endpoints: [endpoint('a', { kept: 1 })], tenants: [busy('a1')] },
      { state: 'busy', until: null },
    ],
    [
      'a busy one, until its turn is over',
      {
        endpoints: [endpoint('a', { startMs: 10_000, usedMs: 900_000 })],
        tenants: [busy('a1', { since: NOW - 10_000 })],
      },
      { state: 'busy', until: 30_000 },
    ],
    [
      'a busy one for the longest turn at most',
      {
        endpoints: [endpoint('a', { startMs: 900_000, usedMs: 900_000 })],
        tenants: [busy('a1', { since: NOW })],
      },
      { state: 'busy', until: MAX_TURN_MS },
    ],
    [
      'a busy one, until the shares are even',
      { endpoints: [endpoint('a', { startMs: 1_000 })], tenants: [busy('a1')] },
      { state: 'busy', until: 2_000 },
    ],
    [
      'a spare one, until now',
      { tenants: [busy('a1', { state: 'spare', since: NOW })] },
      { podId: 'a1', state: 'idle', until: 0 },
    ],
    ['one that starts', { tenants: [busy('a1', { state: 'starting' })] }, { state: 'starting' }],
    ['one that wakes', { tenants: [busy('a1', { state: 'waking' })] }, { state: 'starting' }],
    ['one that leaves', { tenants: [busy('a1', { state: 'leaving' })] }, { state: 'leaving' }],
    [
      'one on its way to the host',
      { tenants: [idle('a1', 1, { state: 'parking' })] },
      { state: 'leaving' },
    ],
    [
      'one that is being suspended',
      { tenants: [busy('a1', { state: 'suspending' })] },
      { state: 'suspending', until: null },
    ],
    [
      'one whose endpoint has no more than its share',
      { tenants: [busy('a1'), busy('w1')] },
      { podId: 'a1', state: 'sharing', until: null },
    ],
  ])('hear who has the GPU: %s', (_, given, holder) => {
    const [wait] = plan({ ...given, waiters: [waiter('w')] }).waits;
    if (holder) expect(wait?.holder).toMatchObject(holder);
    else expect(wait?.holder).toBeUndefined();
  });
});

describe('an urgent job', () => {
  const urgent = endpoint('w', { urgentPriority: 5, hasWork: true });
  const waits = waiter('w', { urgent: 1 });
  const low = (podId: string, priority: number, startedMs: number, changes: Partial<Tenant> = {}) =>
    busy(podId, {
      ...{ attempts: { priority, startedAt: NOW - startedMs }, canSuspend: true },
      ...changes,
    });
  const away = (podId: string, changes: Partial<Tenant> = {}) =>
    low(podId, 1, 60_000, { state: 'suspended', since: NOW - 5_000, ...changes });
  const free = [{ gpuType: 'A', gpus: ['g'] }];
  const freed = [{ gpuType: 'A', gpus: ['gpu-a1'] }];

  it.each<[what: string, given: Partial<GpuPlanInput>, moves: string[]]>([
    ['suspends a running attempt', { tenants: [low('a1', 1, 1_000)] }, ['suspend a1']],
    [
      'suspends the lowest priority',
      { tenants: [low('a1', 2, 1_000), low('b1', 1, 9_000)] },
      ['suspend b1'],
    ],
    [
      'suspends the youngest attempt of a priority',
      { tenants: [low('a1', 1, 9_000), low('b1', 1, 1_000)] },
      ['suspend b1'],
    ],
    ['suspends none of its own priority', { tenants: [low('a1', 5, 1_000)] }, []],
    ['suspends none that cannot be', { tenants: [busy('a1'), low('b1', 5, 1)] }, []],
    [
      "suspends none of another user's",
      { endpoints: [endpoint('a', { userId: 'v' }), urgent], tenants: [low('a1', 1, 1_000)] },
      [],
    ],
    [
      'suspends none whose memory the host cannot hold',
      { tenants: [low('a1', 1, 1_000, { bytes: 11 })] },
      [],
    ],
    [
      'suspends none while an idle one gives way',
      { tenants: [low('a1', 1, 1_000), idle('b1', 5_000)] },
      ['drain b1'],
    ],
    [
      'suspends none for an idle one that has just become ready',
      { tenants: [low('a1', 1, 1_000), idle('b1', 500, { since: NOW - 500 })] },
      [],
    ],
    ['takes a free one first', { free, tenants: [low('a1', 1, 1_000)] }, []],
    [
      'waits for the one that is being suspended',
      { tenants: [low('a1', 1, 1_000), low('b1', 1, 1, { state: 'suspending' })] },
      [],
    ],
    [
      'suspends as many as it needs, and no more than urgent jobs wait',
      {
        ...{ tenants: [low('a1', 1, 3), low('a2', 1, 2), low('b1', 1, 1)] },
        waiters: [waiter('w', { count: 3, urgent: 2 })],
      },
      ['suspend b1', 'suspend a2'],
    ],
    [
      'does not wait for a busy one whose turn is over',
      { tenants: [low('a1', 1, 600_000, { since: NOW - 600_000 })] },
      ['suspend a1'],
    ],
    ['gets the GPU of a suspended one', { free: freed, tenants: [away('a1')] }, []],
    [
      'does not get it from one that is more urgent',
      { free: freed, tenants: [away('a1', { attempts: { priority: 7, startedAt: NOW } })] },
      ['resume a1'],
    ],
    [
      'does not get it from one that was suspended for long enough',
      { free: freed, tenants: [away('a1', { suspendedUntil: NOW })] },
      ['resume a1'],
    ],
  ])('%s', (_, given, moves) => {
    const found = plan({ endpoints: [urgent], waiters: [waits], ...given });
    expect(found.moves).toEqual(moves);
  });

  it('hears that it gets the GPU of one that is suspended for it', () => {
    const [wait] = plan({
      endpoints: [urgent],
      waiters: [waits],
      tenants: [low('a1', 1, 1_000)],
    }).waits;
    expect(wait?.holder).toMatchObject({ podId: 'a1', state: 'suspending' });
  });

  it('has the GPU of a suspended one kept for it', () => {
    const found = plan({
      endpoints: [urgent],
      waiters: [waits],
      free: freed,
      tenants: [away('a1')],
    });
    expect(found.waits).toEqual([{ endpointId: 'w', granted: ['A'], holder: undefined }]);
  });

  it('of another user, or a job that is not urgent, does not get that GPU', () => {
    const stranger = endpoint('x', { userId: 'v', urgentPriority: 9 });
    const waiters = [waiter('x', { urgent: 1 }), waiter('b')];
    const users = [
      { userId: 'u', gpuType: 'A', usedMs: 1_000_000 },
      { userId: 'v', gpuType: 'A', usedMs: 0 },
    ];
    const given = { endpoints: [stranger], waiters, users, free: freed, tenants: [away('a1')] };
    const found = plan(given);
    expect(found.moves).toEqual(['resume a1']);
    expect(found.waits.flatMap(({ granted }) => granted)).toEqual([]);
  });

  it.each<[what: string, holder: Tenant, changes: Partial<TenantEndpoint>, moves: string[]]>([
    ['an idle one', idle('w1', 1, { gpus: ['gpu-a1'] }), {}, ['drain w1']],
    [
      'an idle one within its minimum',
      idle('w1', 1, { gpus: ['gpu-a1'] }),
      { kept: 1 },
      ['drain w1'],
    ],
    ['none that works, while nothing waits', busy('w1', { gpus: ['gpu-a1'] }), {}, []],
    [
      'one that works, if its next job is not urgent',
      busy('w1', { gpus: ['gpu-a1'] }),
      { hasWork: true },
      ['drain w1'],
    ],
    [
      'none whose next job is urgent',
      busy('w1', { gpus: ['gpu-a1'] }),
      { hasWork: true, urgentPriority: 5 },
      [],
    ],
    ['none that starts', busy('w1', { gpus: ['gpu-a1'], state: 'starting' }), {}, []],
  ])('gives the GPU back: %s', (_, holder, changes, moves) => {
    const found = plan({ endpoints: [endpoint('w', changes)], tenants: [away('a1'), holder] });
    expect(found.moves).toEqual(moves);
  });

  it('is not held off by one that it would suspend', () => {
    const endpoints = [
      endpoint('a', { urgentPriority: 5, hasWork: true, usedMs: 9_000_000 }),
      endpoint('w', { isPreemptible: true }),
    ];
    const given = { endpoints, tenants: [busy('a1')] };
    const due = (sinceMs: number) =>
      plan({ ...given, waiters: [waiter('w', { since: NOW - sinceMs })] }).moves;
    expect(due(PATIENCE_MS - 1)).toEqual([]);
    expect(due(PATIENCE_MS)).toEqual(['drain a1']);
  });
});
