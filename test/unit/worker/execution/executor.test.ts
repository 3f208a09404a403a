// What an execution reports of an attempt whose thread was killed.
import { expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { ManagedExecution } from '../../../../src/worker/execution/executor.ts';
import { makeLease } from '../../../support/workers/leases.ts';

it('leaves the wait for a model process out of the run time of a killed attempt', async () => {
  const clock = new ManualClock();
  const held: boolean[] = [];
  const execution = new ManagedExecution({
    ...{ lease: makeLease({}), timeoutMs: 60_000, graceMs: 2_000, clock },
    sink: {
      chunks: () => {},
      progress: () => {},
      log: () => {},
      held: (isHeld) => held.push(isHeld),
    },
    onAbandoned: () => {},
  });
  execution.begin({
    stop: () => {},
    grant: () => {},
    kept: () => {},
    kill: () => execution.settleStopped('thread'),
  });
  await clock.advance(100);
  execution.takeHold(true);
  await clock.advance(5_000);
  execution.takeHold(false);
  await clock.advance(300);
  execution.takeHold(true);
  await clock.advance(1_000);
  execution.stop('cancelled');
  await clock.advance(2_000);
  const { outcome } = await execution.end;
  expect(outcome).toEqual({ kind: 'cancelled', executionMs: 400, stopped: 'thread' });
  expect(held).toEqual([true, false, true]);
});
