// Repeats what the bill needs while this process manages pods: looks at budgets, and removes old rows.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { Loop } from '../../base/loop.ts';
import { logLevelOf } from '../../store/store.ts';
import type { Billing } from './billing.ts';
import type { Budgets } from './budgets.ts';

/** Time between two looks at budgets, ms: by so much of its cost a budget may be passed before starts are refused. */
const OBSERVED_MS = 10_000;
const REMOVED_MS = 3_600_000;

export interface BillingKeeperOptions {
  billing: Pick<Billing, 'removeOld'>;
  budgets: Pick<Budgets, 'observe'>;
  clock: Clock;
  log: Log;
}

/** @returns the function that stops it */
export function keepBilling({ billing, budgets, clock, log }: BillingKeeperOptions): () => void {
  const closing = new AbortController();
  let removesAt = clock.now();
  const loop = new Loop({
    clock,
    closing: closing.signal,
    pass: async () => {
      await budgets.observe();
      if (clock.now() >= removesAt) {
        await billing.removeOld();
        removesAt = clock.now() + REMOVED_MS;
      }
      return clock.now() + OBSERVED_MS;
    },
    onError: (err) => log[logLevelOf(err)]({ err }, 'keeping the bill failed, retrying'),
  });
  void loop.run();
  return () => closing.abort();
}
