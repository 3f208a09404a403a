import { describe, expect, it } from 'vitest';
import { splitCreation } from '../../../../src/control/endpoints/endpoint-records.ts';
import {
  beginRollout,
  type CheckInput,
  type CheckVerdict,
  candidateOf,
  failCheck,
  failRoll,
  hasRollFailed,
  judgeCheck,
  noteProgress,
  passCheck,
  type RolloutProgress,
} from '../../../../src/control/versions/rollout.ts';
import {
  type EndpointDeployment,
  endpointCreation,
  type StoredRollout,
} from '../../../../src/wire/resources/endpoint.ts';

const NOW = 1_000_000;

function makeDeployment(given: Partial<EndpointDeployment> = {}): EndpointDeployment {
  const creation = endpointCreation.parse({ name: 'e', templateId: 't', source: 'VERSION' });
  return { ...splitCreation(creation).deployment, ...given };
}

const begin = (given?: Partial<EndpointDeployment>, version = 2) =>
  beginRollout(makeDeployment(given), { version, timeoutMs: 60_000, now: NOW });

function rolloutOf({ rollout }: EndpointDeployment): StoredRollout {
  if (!rollout) throw new Error('it has no rollout');
  return rollout;
}

describe('a deployment', () => {
  it('leaves the running version and waits for the check worker', () => {
    const deployment = begin({ version: 1 });
    expect(deployment).toMatchObject({ version: 1, rollout: { version: 2, from: 1 } });
    expect(rolloutOf(deployment)).toMatchObject({ state: 'CHECKING', checkUntil: NOW + 60_000 });
    expect(candidateOf(deployment)).toBe(2);
  });

  it('needs no check of the running version', () => {
    const deployment = begin({ version: 2 });
    expect(rolloutOf(deployment).state).toBe('ROLLING');
    expect(candidateOf(deployment)).toBeUndefined();
  });

  it('replaces one under way', () => {
    const deployment = beginRollout(begin({ version: 1 }), {
      ...{ version: 3, timeoutMs: 5_000, now: NOW + 1 },
    });
    expect(deployment).toMatchObject({ version: 1, rollout: { version: 3, from: 1 } });
  });

  it('changes the version when the check worker has connected, and not when it failed', () => {
    const checking = begin({ version: 1, source: 'TEMPLATE' });
    expect(passCheck(checking)).toMatchObject({
      ...{ version: 2, source: 'VERSION', rollout: { state: 'ROLLING', endedAt: null } },
    });
    const failed = failCheck(checking, { now: NOW, reason: 'no' });
    expect(failed).toMatchObject({ version: 1, source: 'TEMPLATE' });
    expect(rolloutOf(failed)).toMatchObject({ state: 'FAILED', reason: 'no' });
    expect(rolloutOf(failed).endedAt).not.toBeNull();
  });

  it('changes no more once it has ended', () => {
    const ended = [
      failCheck(begin({ version: 1 }), { now: NOW, reason: 'no' }),
      noteProgress(passCheck(begin()), { ...QUIET, ready: 1 }),
    ];
    for (const deployment of ended) {
      expect(passCheck(deployment)).toBe(deployment);
      expect(failCheck(deployment, { now: NOW, reason: 'late' })).toBe(deployment);
      expect(noteProgress(deployment, QUIET)).toBe(deployment);
    }
  });
});

describe('a rollout whose workers crash', () => {
  const end = { now: NOW, reason: 'crashed' };

  it('fails after three crashes, unless more of its workers are ready', () => {
    expect(hasRollFailed({ crashes: 2, ready: 0 })).toBe(false);
    expect(hasRollFailed({ crashes: 3, ready: 2 })).toBe(true);
    expect(hasRollFailed({ crashes: 3, ready: 3 })).toBe(false);
    expect(hasRollFailed({ crashes: 40, ready: 50 })).toBe(false);
  });

  it('brings back what ran before', () => {
    const failed = failRoll(passCheck(begin({ version: 1 })), end);
    expect(failed).toMatchObject({ version: 1, source: 'VERSION' });
    expect(rolloutOf(failed)).toMatchObject({ state: 'FAILED', reason: 'crashed', version: 2 });
    expect(rolloutOf(failed).endedAt).not.toBeNull();
    const first = failRoll(passCheck(begin()), end);
    expect(first.version).toBeUndefined();
    expect(first.source).toBe('VERSION');
    const ofTemplate = failRoll(passCheck(begin({ source: 'TEMPLATE' })), end);
    expect(ofTemplate.version).toBeUndefined();
    expect(ofTemplate.source).toBe('TEMPLATE');
  });

  it('does not fail before its check, nor after its end', () => {
    const checking = begin({ version: 1 });
    expect(failRoll(checking, end)).toBe(checking);
    const done = noteProgress(passCheck(begin()), { ...QUIET, ready: 1 });
    expect(failRoll(done, end)).toBe(done);
  });
});

const waiting: CheckInput = {
  now: NOW,
  rollout: rolloutOf(begin()),
  worker: undefined,
  obstacle: undefined,
};
const worker = { podId: 'p', isConnected: false, fault: undefined };
const late = NOW + 60_000;

const VERDICTS: [string, Partial<CheckInput>, CheckVerdict][] = [
  ['no worker', {}, { step: 'start' }],
  ['no place', { obstacle: 'full' }, { step: 'wait', reason: 'full' }],
  ['no worker in time', { now: late }, fail('no worker could be started within 60 s')],
  [
    'no place in time',
    { now: late, obstacle: 'full' },
    fail('no worker could be started within 60 s: full'),
  ],
  ['a starting worker', { worker }, { step: 'wait', reason: null }],
  [
    'a starting worker, and no further place',
    { worker, obstacle: 'full' },
    { step: 'wait', reason: null },
  ],
  ['a worker that is late', { worker, now: late }, fail('the worker did not connect within 60 s')],
  ['a dead worker', { worker: { ...worker, fault: 'code 1' } }, fail('code 1')],
  ['a connected worker', { worker: { ...worker, isConnected: true } }, { step: 'pass' }],
  [
    'a worker that connected at the last moment',
    { worker: { ...worker, isConnected: true }, now: late },
    { step: 'pass' },
  ],
  [
    'a worker that connected and ended',
    { worker: { ...worker, isConnected: true, fault: 'drained' } },
    { step: 'pass' },
  ],
];

function fail(reason: string): CheckVerdict {
  return { step: 'fail', reason };
}

describe('the check', () => {
  it.each(VERDICTS)('of %s', (_what, given, verdict) => {
    expect(judgeCheck({ ...waiting, ...given })).toEqual(verdict);
  });
});

const QUIET: RolloutProgress = {
  ...{ now: NOW, ready: 0, starting: 0, outdated: 0, draining: 0, reason: null },
};

const PROGRESS: [string, Partial<RolloutProgress>, string][] = [
  ['without any worker', {}, 'DONE'],
  ['with a ready one', { ready: 1 }, 'DONE'],
  ['while others drain', { ready: 1, draining: 2 }, 'DONE'],
  ['while further ones start', { ready: 1, starting: 2 }, 'DONE'],
  ['with only starting ones', { starting: 1 }, 'ROLLING'],
  ['with outdated ones', { ready: 2, outdated: 1 }, 'ROLLING'],
];

describe('a rollout', () => {
  it.each(PROGRESS)('%s', (_what, given, state) => {
    const rolling = passCheck(begin({ version: 1 }));
    const progress = { ...QUIET, ...given };
    const after = rolloutOf(noteProgress(rolling, progress));
    expect(after.state).toBe(state);
    expect(after.workersReady).toBe(progress.ready);
    expect(after.workersTotal).toBe(
      progress.ready + progress.starting + progress.outdated + progress.draining,
    );
    expect(after.endedAt === null).toBe(state === 'ROLLING');
  });

  it('is not done without workers while it waits for its check worker', () => {
    const after = rolloutOf(noteProgress(begin({ version: 1 }), { ...QUIET, reason: 'full' }));
    expect(after).toMatchObject({ state: 'CHECKING', reason: 'full', endedAt: null });
  });
});
