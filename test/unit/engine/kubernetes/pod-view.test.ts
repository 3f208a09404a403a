// How a container is read from its Secret and its Pod.
import { describe, expect, it } from 'vitest';
import type { ContainerSpec } from '../../../../src/engine/engine.ts';
import { readWarning } from '../../../../src/engine/kubernetes/kubernetes-engine.ts';
import { END_ANNOTATION, keepSpec, labelsOf } from '../../../../src/engine/kubernetes/names.ts';
import {
  type KubePod,
  podAnswer,
  viewContainer,
} from '../../../../src/engine/kubernetes/pod-view.ts';

const spec: ContainerSpec = {
  ...{ id: 'pod_1', generation: 3, labels: { a: 'b' }, image: 'i', args: '', handler: null },
  ...{ env: {}, diskGb: 1, registry: null, mounts: [], gpus: ['H200/0'], limits: null },
  ...{ ports: [{ private: 80, protocol: 'http' }], network: null },
};
const metadata = {
  ...{ name: 'p-pod-1-3', uid: 'u1', creationTimestamp: '2026-01-01T00:00:00Z' },
  ...{ labels: labelsOf('p', spec), annotations: keepSpec(spec) },
};
const startedAt = '2026-01-01T00:00:05Z';
const finishedAt = '2026-01-01T00:00:05Z';

const NOW = Date.parse('2026-01-01T00:00:10Z');

function view(status: KubePod['status'], extra: Partial<KubePod['metadata']> = {}, now = NOW) {
  const pod = { metadata: { ...metadata, ...extra }, status };
  return viewContainer('p', { record: { metadata }, pod }, now);
}

function withState(state: object): KubePod['status'] {
  return { phase: 'Pending', containerStatuses: [{ name: 'main', state }] };
}

describe('a container on Kubernetes', () => {
  it('is created while it has only a record', () => {
    expect(viewContainer('p', { record: { metadata }, pod: undefined }, NOW)).toMatchObject({
      ...{ id: 'pod_1', generation: 3, labels: { a: 'b' }, gpus: ['H200/0'], state: 'created' },
    });
  });

  it('is not shown on another platform', () => {
    const objects = { record: { metadata }, pod: undefined };
    expect(viewContainer('other', objects, NOW)).toBeUndefined();
  });

  it('runs at the address of its Pod', () => {
    const running = view({
      ...{ phase: 'Running', podIP: '10.0.0.9' },
      containerStatuses: [{ name: 'main', state: { running: { startedAt } } }],
    });
    expect(running).toMatchObject({ state: 'running', exitCode: null });
    expect(running?.ports).toEqual([{ private: 80, public: 80, type: 'http', ip: '10.0.0.9' }]);
  });

  it('waits with a text of bounded length, although the error of a registry quotes its answer', () => {
    const message = `failed to pull: unexpected status: ${'x'.repeat(1_000_000)}`;
    const status = withState({ waiting: { reason: 'ErrImagePull', message } });
    const pod = podAnswer.parse({ metadata, status });
    const seen = viewContainer('p', { record: { metadata }, pod }, NOW);
    expect(seen?.waiting?.message).toMatch(/unexpected status: x+… \(998035 more characters\)$/);
  });

  it('tells runs of one second apart', () => {
    const status = withState({ running: { startedAt } });
    expect(view(status)?.startedAt).not.toBe(view(status, { uid: 'u2' })?.startedAt);
  });

  it('waits for capacity while no node fits', () => {
    const conditions = [
      { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message: '0/3 nodes' },
    ];
    expect(view({ phase: 'Pending', conditions })).toMatchObject({
      state: 'starting',
      waiting: { cause: 'capacity', message: expect.stringContaining('0/3 nodes'), isFinal: false },
    });
  });

  it.each([
    ['ErrImagePull', 'pull access denied', true],
    ['ImagePullBackOff', 'manifest unknown', true],
    ['InvalidImageName', '', true],
    ['ErrImagePull', 'dial tcp: lookup r.test: no such host, not found', false],
    ['ImagePullBackOff', 'Back-off pulling image', false],
  ])('waits for its image: %s %s', (reason, message, isFinal) => {
    expect(view(withState({ waiting: { reason, message } }))).toMatchObject({
      state: 'starting',
      waiting: { cause: 'image', isFinal },
    });
  });

  it.each([
    [
      { exitCode: 3, reason: 'Error' },
      { exitCode: 3, outOfMemory: false },
    ],
    [
      { exitCode: 137, reason: 'OOMKilled' },
      { exitCode: 137, outOfMemory: true },
    ],
    [
      { exitCode: 128, reason: 'StartError', message: 'exec: "x": executable file not found' },
      { exitCode: 127 },
    ],
  ])('has exited: %o', (terminated, expected) => {
    const ended = view(withState({ terminated: { ...terminated, startedAt, finishedAt } }));
    expect(ended).toMatchObject({ state: 'exited', ...expected });
    expect(ended?.endedAt).toBeGreaterThanOrEqual(ended?.startedAt ?? Number.NaN);
  });

  it('has exited with the reason if the cluster evicted it', () => {
    expect(view({ phase: 'Failed', reason: 'Evicted', message: 'low on disk' })).toMatchObject({
      ...{ state: 'exited', exitCode: 137, endReason: 'the cluster ended it: low on disk' },
    });
  });

  it('runs until it is gone if somebody else deletes its Pod', () => {
    const deletionTimestamp = '2026-01-01T00:00:09Z';
    expect(view({ phase: 'Succeeded' }, { deletionTimestamp })).toMatchObject({
      ...{ state: 'running', leaving: 'somebody deleted its Pod' },
    });
  });

  it('is leaving as soon as the cluster announces its end', () => {
    const disruption = {
      ...{ type: 'DisruptionTarget', reason: 'EvictionByEvictionAPI' },
      message: 'Eviction API: evicting',
    };
    const state = { running: { startedAt } };
    const viewOf = (status: string) =>
      view({ ...withState(state), phase: 'Running', conditions: [{ ...disruption, status }] });
    const leaving = 'the cluster ends it: Eviction API: evicting';
    expect(viewOf('True')).toMatchObject({ state: 'running', leaving });
    // The cluster has given it up.
    expect(viewOf('False')).not.toHaveProperty('leaving');
    const conditions = [{ ...disruption, status: 'True' }];
    const ended = { phase: 'Failed', reason: 'Terminated', conditions };
    expect(view(ended)).toMatchObject({ state: 'exited', exitCode: 137, leaving });
  });

  it('is lost when nobody has ended it a minute after its grace period', () => {
    const deletionTimestamp = '2026-01-01T00:00:09Z';
    const running = { ...withState({ running: { startedAt } }), phase: 'Running' };
    const at = (ms: number) => view(running, { deletionTimestamp }, NOW - 1_000 + ms);
    expect(at(59_999)).toMatchObject({ state: 'running' });
    expect(at(60_000)).toMatchObject({
      ...{ state: 'exited', exitCode: 137, leaving: 'its node does not answer any more' },
      endedAt: Date.parse(deletionTimestamp),
    });
  });
});

it('has no start if its Pod is deleted, or was stopped, while it waited for a node', () => {
  const deletionTimestamp = '2026-01-01T00:00:09Z';
  expect(view({ phase: 'Pending' }, { deletionTimestamp })).toMatchObject({ startedAt: null });
  const end = { uid: 'u1', exitCode: 143, startedAt: null, endedAt: 9_000 };
  const annotations = { ...metadata.annotations, [END_ANNOTATION]: JSON.stringify(end) };
  const record = { metadata: { ...metadata, annotations } };
  const stopped = viewContainer('p', { record, pod: undefined }, NOW);
  expect(stopped).toMatchObject({ state: 'exited', startedAt: null, endedAt: 9_000 });
});

it('gives the newest warning about a Pod as its reason', () => {
  const old = { type: 'Warning', reason: 'FailedMount', message: 'no volume' };
  const events = [
    { ...old, lastTimestamp: '2026-01-01T00:00:00Z' },
    { ...{ type: 'Normal', reason: 'Pulled' }, lastTimestamp: '2026-01-01T00:00:09Z' },
    {
      ...{ type: 'Warning', reason: 'FailedScheduling', message: '0/1 nodes' },
      lastTimestamp: '2026-01-01T00:00:05Z',
    },
  ];
  expect(readWarning(events)).toMatchObject({ cause: 'capacity' });
  expect(readWarning([old])).toMatchObject({
    cause: 'other',
    message: expect.stringContaining('no volume'),
  });
  expect(readWarning([])).toBeUndefined();
});
