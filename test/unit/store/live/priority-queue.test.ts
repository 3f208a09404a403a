// What a group may have saved while others ran.
import { expect, it } from 'vitest';
import { GroupQueue } from '../../../../src/store/live/group-queue.ts';
import { PriorityQueue } from '../../../../src/store/live/priority-queue.ts';

const NOW = 10_000;
const USED = 1_000_000;

it.each([1, 8])('forgets a long run by the GPU time of the runs after it, with %i GPUs', (gpus) => {
  const all = new PriorityQueue(0);
  const [others, running] = [makeQueue('others'), makeQueue('running')];
  const run = { queue: others, gpus, startedAt: 0, chargedMs: 10_000 };
  all.begin(run, NOW);
  all.end(run, 10_000, NOW);
  // 100 s, ten times as long as the first one.
  for (let runs = 0; runs < 100; runs++) all.noteRun(others, gpus, 1_000);
  others.used = USED;
  all.settle(others);
  all.admit(NOW, () => {});
  all.begin({ queue: running, gpus: 1, startedAt: NOW, chargedMs: 0 }, NOW);
  running.used = 0;
  all.settle(running);
  all.admit(NOW, () => {});
  expect(USED - running.used).toBeLessThan(1_000);
});

function makeQueue(group: string): GroupQueue {
  return new GroupQueue(0, group, { hasAll: false });
}
