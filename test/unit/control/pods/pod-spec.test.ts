// The rules of mounts, one by one.
import { describe, expect, it } from 'vitest';
import { checkMounts, updateMounts } from '../../../../src/control/pods/pod-spec.ts';
import { ProblemError } from '../../../../src/wire/problem.ts';
import { type PodMounts, podMounts } from '../../../../src/wire/resources/pod.ts';

const persistent = { size: 10, path: '/data' };
const network = [{ volumeId: 'vol_1', path: '/shared' }];

function refusal(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    const paths = error.errors?.map((each) => each.split(': ', 1));
    return `${error.code} ${paths?.join()}`;
  }
  return 'let through';
}

function create(mounts: PodMounts, isGpuPod = true): string {
  return refusal(() => checkMounts({ mounts, isGpuPod }));
}

function update(mounts: PodMounts, change: PodMounts | undefined): string {
  return refusal(() => updateMounts({ mounts, isGpuPod: true }, change));
}

describe('a new pod', () => {
  it('may have no mounts, a persistent one or a network one', () => {
    expect([create({}), create({ persistent }), create({ network })]).toEqual(
      Array(3).fill('let through'),
    );
  });

  it('cannot have both kinds', () => {
    expect(create({ persistent, network })).toBe('rule_broken mounts');
  });

  it('cannot have empty network mounts', () => {
    expect(create({ network: [] })).toBe('rule_broken mounts.network');
  });

  it('cannot have a persistent mount on a CPU pod, but can have a network mount', () => {
    expect(create({ persistent }, false)).toBe('rule_broken mounts.persistent');
    expect(create({ network }, false)).toBe('let through');
  });
});

describe('an update', () => {
  it('leaves mounts unchanged without mounts or with empty ones', () => {
    for (const mounts of [{}, { persistent }, { network }]) {
      expect(updateMounts({ mounts, isGpuPod: true }, undefined)).toBe(mounts);
      expect(updateMounts({ mounts, isGpuPod: true }, {})).toBe(mounts);
    }
  });

  it('cannot have both kinds, whatever the pod has', () => {
    for (const mounts of [{}, { persistent }, { network }]) {
      expect(update(mounts, { persistent, network })).toBe('rule_broken mounts');
      expect(update(mounts, { persistent, network: [] })).toBe('rule_broken mounts');
    }
  });

  it('does not clear network mounts, whatever the pod has', () => {
    for (const mounts of [{}, { persistent }, { network }]) {
      expect(update(mounts, { network: [] })).toBe('rule_broken mounts.network');
    }
  });

  it.each<[string, PodMounts, PodMounts]>([
    ['persistent on a network pod', { network }, { persistent }],
    ['persistent on a pod without', {}, { persistent }],
    ['network on a persistent pod', { persistent }, { network }],
    ['network on a pod without', {}, { network }],
  ])('cannot add a kind that the pod was created without: %s', (_what, mounts, change) => {
    expect(update(mounts, change)).toBe(`rule_broken mounts.${Object.keys(change).join()}`);
  });

  it('cannot name another volume', () => {
    const other = [{ volumeId: 'vol_2', path: '/shared' }];
    expect(update({ network }, { network: other })).toBe('rule_broken mounts.network[0].volumeId');
  });

  it('moves either kind to another path', () => {
    const pod = { isGpuPod: true };
    const moved = { persistent: { size: 10, path: '/else' } };
    expect(updateMounts({ ...pod, mounts: { persistent } }, moved)).toEqual(moved);
    const movedNetwork = { network: [{ volumeId: 'vol_1', path: '/else' }] };
    expect(updateMounts({ ...pod, mounts: { network } }, movedNetwork)).toEqual(movedNetwork);
  });

  it('makes a persistent mount larger, and not smaller', () => {
    const pod = { mounts: { persistent: { size: 20, path: '/data' } }, isGpuPod: true };
    expect(updateMounts(pod, { persistent: { size: 30, path: '/data' } })).toMatchObject({
      persistent: { size: 30 },
    });
    expect(update(pod.mounts, { persistent: { size: 19, path: '/data' } })).toBe(
      'invalid mounts.persistent.size',
    );
  });
});

describe('the schema', () => {
  it.each([
    ['a persistent mount without a path', { persistent: { size: 10 } }],
    ['a persistent mount without a size', { persistent: { path: '/data' } }],
    ['a persistent mount below 10 GB', { persistent: { size: 9, path: '/data' } }],
    ['a network mount without a path', { network: [{ volumeId: 'vol_1' }] }],
    ['a network mount without a volume', { network: [{ path: '/data' }] }],
    ['two network mounts', { network: [network[0], network[0]] }],
    ['another member', { persistent: { ...persistent, kind: 'ssd' } }],
  ])('refuses %s', (_what, mounts) => {
    expect(podMounts.safeParse(mounts).success).toBe(false);
  });
});
