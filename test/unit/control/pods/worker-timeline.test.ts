// The timeline of a worker: where the time of its starts went.
import { expect, it } from 'vitest';
import {
  isNewStart,
  noteParked,
  noteStart,
  noteWaking,
  noteWoken,
} from '../../../../src/control/pods/worker-timeline.ts';
import type { WorkerStart } from '../../../../src/wire/link/worker-link.ts';
import { NOW, states } from '../../../support/containers/pod-states.ts';

const pod = { ...states.runningGpu, endpointId: 'ep_1' };
const parts = {
  queueMs: 400,
  installMs: 2_000,
  interpreterMs: 90,
  importMs: 3_000,
  setupMs: 5_000,
};
const first: WorkerStart = { of: 'worker', at: NOW, parts };

it('keeps a start once, and adds its first call', () => {
  const started = noteStart(pod, first);
  expect(isNewStart(pod, first)).toBe(true);
  expect(isNewStart(started, first)).toBe(false);
  const called = { ...first, parts: { ...parts, firstCallMs: 70 } };
  expect(isNewStart(started, called)).toBe(true);
  const noted = noteStart(started, called);
  expect(noted.timeline).toEqual([{ at: NOW, event: 'started', parts: called.parts }]);
  expect(isNewStart(noted, called)).toBe(false);
});

it('gives the time in the queue to the first start of the pod only', () => {
  const again = noteStart(noteStart(pod, first), { ...first, at: NOW + 60_000 });
  expect(again.timeline?.[1]).toEqual({
    ...{ at: NOW + 60_000, event: 'started' },
    parts: { interpreterMs: 90, importMs: 3_000, setupMs: 5_000 },
  });
});

it('lists the start of a model process as one of its own, and keeps the first event and the last 19', () => {
  let noted = noteStart(pod, first);
  for (let index = 1; index <= 30; index += 1) {
    noted = noteStart(noted, { of: 'model', at: NOW + index, parts: { setupMs: index } });
  }
  expect(noted.timeline).toHaveLength(20);
  expect(noted.timeline?.[0]).toMatchObject({ event: 'started', parts });
  expect(noted.timeline?.[1]).toMatchObject({ at: NOW + 12 });
  expect(noted.timeline?.at(-1)).toEqual({
    ...{ at: NOW + 30, event: 'model_started', parts: { setupMs: 30 } },
  });
});

it('leaves out models that start soon after one another: a handler may start one for each job', () => {
  const modelAt = (at: number): WorkerStart => ({ of: 'model', at, parts: { setupMs: 1 } });
  const noted = noteStart(pod, modelAt(NOW));
  expect(isNewStart(noted, modelAt(NOW + 9_999))).toBe(false);
  expect(isNewStart(noted, modelAt(NOW + 10_000))).toBe(true);
  expect(isNewStart(noted, { ...first, at: NOW + 1 })).toBe(true);
});

it('does not note a start again that later events have displaced', () => {
  const again = { ...first, at: NOW + 1 };
  const model: WorkerStart = { of: 'model', at: NOW + 2, parts: { setupMs: 1 } };
  let noted = noteStart(noteStart(noteStart(pod, first), again), model);
  for (let turn = 1; turn <= 10; turn += 1) {
    noted = noteParked(
      noted,
      { since: NOW + turn * 100, bytes: 1, way: 'hooks' },
      NOW + turn * 100,
    );
  }
  expect(isNewStart(noted, again)).toBe(false);
  expect(isNewStart(noted, model)).toBe(false);
  expect(isNewStart(noted, { ...again, at: NOW + 5_000 })).toBe(true);
});

it('says that a model that had to end starts cold', () => {
  const parked = noteParked(pod, { since: NOW, bytes: 0, way: 'hooks' }, NOW + 40);
  const woken = noteWoken(noteWaking(parked, NOW + 100), NOW + 900);
  expect(woken.timeline?.at(-1)).toEqual({
    ...{ at: NOW + 900, event: 'woken', ms: 800, bytes: 0, way: 'cold' },
  });
});
