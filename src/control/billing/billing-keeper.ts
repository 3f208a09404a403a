// Repeats what the bill needs while this process manages pods: looks at budgets, posts their notices, and removes old rows.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { Loop } from '../../base/loop.ts';
import { logLevelOf, type Store } from '../../store/store.ts';
import type { Billing } from './billing.ts';
import { BudgetNotices, type NoticeSender } from './budget-notices.ts';
import type { Budgets } from './budgets.ts';

/** Time between two looks at budgets, ms: by so much of its cost a budget may be passed before starts are refused. */
const OBSERVED_MS = 10_000;
/** Looks take long if the bill has many rows: this many times as long, nothing is looked at. */
const PAUSE_SHARE = 9;
const MAX_PAUSE_MS = 300_000;
const REMOVED_MS = 3_600_000;

export interface BillingKeeperOptions {
  store: Store;
  billing: Pick<Billing, 'removeOld'>;
  budgets: Pick<Budgets, 'observe' | 'webhookOf'>;
  /** Undefined: notices are not posted. */
  noticeSender: NoticeSender | undefined;
  clock: Clock;
  log: Log;
}

/** @returns the function that stops it */
export function keepBilling(options: BillingKeeperOptions): () => void {
  const { billing, budgets, clock, log } = options;
  const closing = new AbortController();
  let removesAt = clock.now();
  let notices: BudgetNotices | undefined;
  const loop = new Loop({
    clock,
    closing: closing.signal,
    pass: async () => {
      const beganAt = clock.now();
      const errors: unknown[] = [];
      try {
        notices ??= await openNotices(options, closing.signal);
        const found = await budgets.observe((error) => errors.push(error));
        await notices?.note(found);
      } finally {
        if (clock.now() >= removesAt) {
          await billing.removeOld();
          removesAt = clock.now() + REMOVED_MS;
        }
      }
      if (errors.length > 0) throw errors[0];
      const now = clock.now();
      const pauseMs = Math.max(OBSERVED_MS, (now - beganAt) * PAUSE_SHARE);
      return now + Math.min(pauseMs, MAX_PAUSE_MS);
    },
    onError: (err) => log[logLevelOf(err)]({ err }, 'keeping the bill failed, retrying'),
  });
  void loop.run();
  return () => closing.abort();
}

async function openNotices(
  { budgets, clock, log, noticeSender: sender, store }: BillingKeeperOptions,
  closing: AbortSignal,
): Promise<BudgetNotices | undefined> {
  if (!sender) return undefined;
  const webhookOf = (id: string) => budgets.webhookOf(id);
  const notices = new BudgetNotices({ store, clock, log, sender, webhookOf, closing });
  await notices.start();
  return notices;
}
