// When the plan for GPUs is made anew.
import { expect, it, vi } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { GpuTenants, type TenancyFacts } from '../../../../src/control/tenancy/gpu-tenants.ts';

const facts: TenancyFacts = {
  ...{ userId: 'u', name: 'e', workersMin: 0, hasWork: true, workers: [] },
  deployment: {
    ...{ gpuWeight: 1, minResidenceMs: 0, parkSeconds: 0, spareWorkers: 0, yields: false },
    ...{ preemptible: false, maxSuspensions: 20, maxSuspendedSeconds: 600 },
  },
  lacking: [{ gpuTypes: ['A'], count: 1 }],
  ...{ startMs: 0, wakeMs: 0, parkedBytes: 0 },
};

it('is kept while nothing changes, and for a short time only', async () => {
  const clock = new ManualClock();
  const listFree = vi.fn(() => new Map([['A', ['gpu']]]));
  const tenants = new GpuTenants({ pods: { all: () => [] }, listFree, clock });
  const countPlans = () => {
    listFree.mockClear();
    for (let n = 0; n < 100; n++) {
      tenants.note('e', { ...facts });
      tenants.plan();
    }
    return listFree.mock.calls.length;
  };
  expect(countPlans()).toBe(1);
  expect(countPlans()).toBe(0);
  tenants.noteChange();
  expect(countPlans()).toBe(1);
  await clock.advance(100);
  expect(countPlans()).toBe(1);
  tenants.note('e', { ...facts, lacking: [] });
  expect(tenants.plan().waits).toEqual([]);
});
