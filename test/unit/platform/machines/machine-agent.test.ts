// Messages between nodes keep what the leader needs.
import { describe, expect, it } from 'vitest';
import { workLoad } from '../../../../src/platform/machines/machine-agent.ts';

describe('the load of an endpoint, from its owner to the leader', () => {
  const plain = { waiting: 2, running: 0, oldestQueuedAt: 5, workers: [] };

  it('names the jobs that need a later GPU type', () => {
    const outgrown = [{ gpuType: 'l4', waiting: 1, oldestQueuedAt: 5 }];
    expect(workLoad.parse({ ...plain, outgrown })).toEqual({ ...plain, outgrown });
  });

  it('may name none', () => {
    expect(workLoad.parse(plain)).toEqual(plain);
  });
});
