// Following a rollout: what ends it, what it shows, and which version a command chooses.
import { describe, expect, it } from 'vitest';
import { chooseEarlier, formatVersions } from '../../../../src/cli/deploy/deploy.ts';
import {
  chooseSame,
  describeProgress,
  findEnd,
  followRollout,
} from '../../../../src/cli/deploy/rollout.ts';
import {
  ENDPOINT_EXAMPLE,
  type EndpointRecord,
  type Rollout,
} from '../../../../src/wire/resources/endpoint.ts';

const startedAt = '2026-01-15T09:31:00.000Z';
const goal = { version: 3, startedAt };

function rollout(changes: Partial<Rollout>): Rollout {
  return {
    ...{ version: 3, from: 2, state: 'CHECKING', reason: null, startedAt, endedAt: null },
    ...{ workersReady: 0, workersTotal: 1 },
    ...changes,
  };
}

const endpoint = (changes: Partial<Rollout>, version: number | null = 2): EndpointRecord => ({
  ...ENDPOINT_EXAMPLE,
  version,
  rollout: rollout(changes),
});

describe('findEnd', () => {
  it.each([
    [{ state: 'CHECKING' }, undefined],
    [{ state: 'ROLLING' }, undefined],
    [{ state: 'DONE' }, { kind: 'done' }],
    [
      { state: 'FAILED', reason: 'no model' },
      { kind: 'failed', reason: 'no model' },
    ],
    [
      { state: 'DONE', version: 4 },
      { kind: 'replaced', version: 4 },
    ],
    [
      { state: 'DONE', startedAt: 'later' },
      { kind: 'replaced', version: 3 },
    ],
  ] as const)('reads %j as %j', (changes, end) => {
    expect(findEnd({ rollout: rollout(changes) }, goal)).toEqual(end);
  });

  it('fails without a rollout', () => {
    expect(findEnd({ rollout: null }, goal)).toMatchObject({ kind: 'failed' });
  });
});

describe('followRollout', () => {
  it('shows each state until the end', async () => {
    const states = [
      endpoint({}),
      endpoint({ state: 'ROLLING', workersReady: 1, workersTotal: 2 }),
      endpoint({ state: 'DONE' }, 3),
    ];
    const shown: string[] = [];
    const end = await followRollout({
      goal,
      read: async () => states.shift() ?? endpoint({ state: 'FAILED' }),
      show: (text) => shown.push(text),
      interrupted: new Promise(() => {}),
    });
    expect(end).toEqual({ kind: 'done' });
    expect(shown).toEqual([
      'version 3: a worker loads the handler',
      'version 3: 1 of 2 workers ready',
    ]);
  });

  it('ends when it is interrupted, and passes errors on', async () => {
    const more = { goal, show: () => {} };
    const interrupted = Promise.resolve();
    const never = () => new Promise<EndpointRecord>(() => {});
    expect(await followRollout({ ...more, read: never, interrupted })).toEqual({
      kind: 'interrupted',
    });
    const read = () => Promise.reject(new Error('refused'));
    const failing = followRollout({ ...more, read, interrupted: new Promise(() => {}) });
    await expect(failing).rejects.toThrow('refused');
  });
});

it('says what the rollout waits for', () => {
  expect(describeProgress(rollout({ reason: 'no GPU is free' }))).toBe(
    'version 3: a worker loads the handler (no GPU is free)',
  );
});

describe('chooseSame', () => {
  it.each([
    [
      'the running version',
      endpoint({ state: 'DONE' }, 3),
      [1, 3],
      { kind: 'running', version: 3 },
    ],
    ['a rollout under way', endpoint({}), [3], { kind: 'followed', version: 3 }],
    ['an earlier version', endpoint({ state: 'DONE' }, 3), [1, 2], { kind: 'kept', version: 2 }],
    ['the running version while another rolls', endpoint({}, 2), [2], { kind: 'kept', version: 2 }],
    ['a failed version', endpoint({ state: 'FAILED' }, 2), [3], { kind: 'kept', version: 3 }],
    ['none', endpoint({ state: 'DONE' }, 3), [], undefined],
  ])('finds %s', (_, record, same, choice) => {
    expect(chooseSame(record, same)).toEqual(choice);
  });
});

describe('a rollback without a number', () => {
  it.each([
    ['the version before', endpoint({ state: 'DONE', from: 1 }, 3), [3, 2, 1], 1],
    ['the version that a rollout replaces', endpoint({ state: 'ROLLING' }, 2), [3, 2, 1], 2],
    ['a smaller number after a failure', endpoint({ state: 'FAILED' }, 2), [3, 2, 1], 1],
  ])('chooses %s', (_, record, known, version) => {
    expect(chooseEarlier(record, known)).toBe(version);
  });

  it.each([
    ['no version ran before', endpoint({ state: 'DONE', from: null }, 3), [3, 2]],
    ['none has a smaller number', endpoint({ state: 'FAILED' }, 2), [3, 2]],
    ['none runs', endpoint({ state: 'FAILED', from: null }, null), [1]],
  ])('is refused if %s', (_, record, known) => {
    expect(() => chooseEarlier(record, known)).toThrow(/no version/);
  });
});

it('says in the list of versions which one runs and which one failed', () => {
  const version = {
    ...{ endpointId: 'ep_1', entry: 'handler.ts', message: null, sha256: 'f'.repeat(64) },
    ...{ bytes: 2_048, unpackedBytes: 4_096, files: 2, createdAt: startedAt, createdBy: null },
  };
  const versions = [3, 2, 1].map((number) => ({ ...version, version: number }));
  const failed = { state: 'FAILED', reason: 'no\nmodel', endedAt: startedAt } as const;
  const lines = formatVersions(endpoint(failed), versions).split('\n');
  expect(lines.slice(4)).toEqual(['', `version 3 failed at ${startedAt}: no\\nmodel`]);
  expect(formatVersions(endpoint({ state: 'DONE' }, 3), versions)).not.toContain('failed');
  expect(lines.slice(0, 4).map((line) => line.split(/ {2,}/).slice(0, 2))).toEqual([
    ...[
      ['VERSION', 'STATE'],
      ['3', 'failed'],
      ['2', 'running'],
      ['1', '-'],
    ],
  ]);
  expect(lines[1]).toContain('2.0 KB');
});
