// Budgets of users and endpoints: reads what was spent in the current period, and refuses new pods and workers once a
// budget is used up. Running ones go on, because ending them could lose work.
import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import type { Store } from '../../store/store.ts';
import { ProblemError } from '../../wire/problem.ts';
import {
  type BudgetCreation,
  type BudgetRecord,
  type BudgetUpdate,
  type StoredBudget,
  storedBudget,
} from '../../wire/resources/budget.ts';
import type { Quotas } from '../limits/quotas.ts';
import type { UseSource } from '../limits/use.ts';
import type { NamedRecords } from '../name-index.ts';
import { StoredResources } from '../stored-resources.ts';
import type { ResourcePage, UserListing, UserResources } from '../user-resources.ts';
import { formatUsd, STEP_MS } from './bill-rows.ts';
import type { Billing } from './billing.ts';
import { startPeriod } from './period.ts';

/** Units of the bill in a USD: millionths of a USD per hour times ms. */
const UNITS_PER_USD = 1_000_000 * 3_600_000;

export interface BudgetsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  quotas?: Quotas | undefined;
  /** Set before the first call. */
  billing: () => Pick<Billing, 'spent'>;
  /** ID of the user's endpoint with this ID or name; undefined: there is none. */
  findEndpoint: (userId: string, idOrName: string) => string | undefined;
  /** Why the platform may not call the webhook. Default: it may. */
  judgeWebhook?: ((url: string) => string | undefined) | undefined;
}

type Kept = StoredResources<BudgetCreation, BudgetUpdate, StoredBudget>;
type State = BudgetRecord['state'];

/** What was found of a budget. */
interface Judged {
  record: BudgetRecord;
  userId: string;
}

export class Budgets
  implements UserResources<BudgetCreation, BudgetUpdate, BudgetRecord>, NamedRecords, UseSource
{
  readonly #options: BudgetsOptions;
  readonly #kept: Kept;
  /** What the last pass found, by budget. */
  readonly #judged = new Map<string, Judged>();

  private constructor(options: BudgetsOptions, kept: Kept) {
    this.#options = options;
    this.#kept = kept;
  }

  static async open(options: BudgetsOptions): Promise<Budgets> {
    const { clock, judgeWebhook, quotas, store } = options;
    const kept = await StoredResources.open<BudgetCreation, BudgetUpdate, StoredBudget>({
      ...{ store, clock, quotas, name: 'budgets', prefix: 'bud', record: storedBudget },
      rules: {
        compose: (made, creation) => ({ ...made, ...creation }),
        admit: (_, { webhook }) => refuseWebhook(webhook, judgeWebhook),
      },
    });
    return new Budgets(options, kept);
  }

  /** Reads all of them again: another process may have changed them. */
  reload(): Promise<void> {
    return this.#kept.reload();
  }

  resolve(userId: string, idOrName: string): string {
    return this.#kept.resolve(userId, idOrName);
  }

  countOf(userId: string): number {
    return this.#kept.countOf(userId);
  }

  async list(listing: UserListing): Promise<ResourcePage<BudgetRecord>> {
    const { next, records } = await this.#kept.list(listing);
    const shown = await Promise.all(records.map((each) => this.#judge(listing.userId, each)));
    return { records: shown, next };
  }

  async create(userId: string, creation: BudgetCreation): Promise<BudgetRecord> {
    const endpointId = this.#requireEndpoint(userId, creation.endpointId);
    return this.#judge(userId, await this.#kept.create(userId, { ...creation, endpointId }));
  }

  async get(userId: string, id: string): Promise<BudgetRecord> {
    return this.#judge(userId, this.#kept.get(userId, id));
  }

  async update(userId: string, id: string, update: BudgetUpdate): Promise<BudgetRecord> {
    return this.#judge(userId, await this.#kept.update(userId, id, update));
  }

  async remove(userId: string, id: string): Promise<void> {
    await this.#kept.remove(userId, id);
    this.#judged.delete(id);
  }

  /** Undefined: the budget does not exist or has none. */
  webhookOf(id: string): string | undefined {
    const kept = this.#kept.entries().find(({ item }) => item.id === id);
    return kept?.item.webhook ?? undefined;
  }

  /** Reads what was spent of all budgets. `onError` is called for each that cannot be read. */
  async observe(onError: (error: unknown) => void): Promise<readonly Judged[]> {
    const all = this.#kept.entries();
    const ids = new Set(all.map(({ item }) => item.id));
    for (const id of this.#judged.keys()) if (!ids.has(id)) this.#judged.delete(id);
    for (const { item, userId } of all) {
      try {
        await this.#look(userId, item);
      } catch (error) {
        onError(error);
      }
    }
    return [...this.#judged.values()];
  }

  async #look(userId: string, budget: StoredBudget): Promise<void> {
    const before = this.#judged.get(budget.id)?.record.state ?? 'ok';
    const { limit, name, spent, state } = await this.#judge(userId, budget);
    if (state === before || state === 'ok') return;
    const note = { budget: budget.id, user: userId, name, spent, limit };
    if (state === 'warning') this.#options.log.warn(note, 'budget is nearly used up');
    else this.#options.log.warn(note, 'budget is used up');
  }

  /** Why the user may start no pod, or no worker of the endpoint; undefined: they may. Up to the last pass. */
  findObstacle(userId: string, endpointId: string | null): string | undefined {
    const used = [...this.#judged.values()].find(
      ({ record, userId: owner }) =>
        owner === userId &&
        record.state === 'used_up' &&
        (record.endpointId === null || record.endpointId === endpointId),
    );
    if (!used) return undefined;
    const { limit, name, period, spent } = used.record;
    return `the budget ${JSON.stringify(name)} is used up: ${spent} of ${limit} USD of this ${period} are spent`;
  }

  /** @throws ProblemError `invalid` */
  #requireEndpoint(userId: string, idOrName: string | null): string | null {
    if (idOrName === null) return null;
    const id = this.#options.findEndpoint(userId, idOrName);
    if (id !== undefined) return id;
    const fault = `endpointId: endpoint ${JSON.stringify(idOrName)} not found`;
    throw new ProblemError('invalid', fault, { errors: [fault] });
  }

  async #judge(userId: string, budget: StoredBudget): Promise<BudgetRecord> {
    const { billing, clock } = this.#options;
    const now = clock.now();
    const units = await billing().spent({
      ...{ userId, step: 'day', from: startPeriod(budget.period, now) },
      to: startPeriod('day', now) + STEP_MS.day,
      ...(budget.endpointId !== null && { kind: 'endpoint', id: budget.endpointId }),
    });
    const record = { ...budget, spent: formatUsd(units), state: judgeState(budget, units) };
    this.#judged.set(budget.id, { record, userId });
    return record;
  }
}

export function judgeState(
  { limit, warnAt }: Pick<StoredBudget, 'limit' | 'warnAt'>,
  units: bigint,
): State {
  const share = Number(units) / (limit * UNITS_PER_USD);
  if (share >= 1) return 'used_up';
  return share >= warnAt ? 'warning' : 'ok';
}

/** @throws ProblemError `invalid` */
function refuseWebhook(
  webhook: string | null | undefined,
  judge: BudgetsOptions['judgeWebhook'],
): void {
  const reason = webhook == null ? undefined : judge?.(webhook);
  if (reason === undefined) return;
  const errors = [`webhook: ${reason}`];
  throw new ProblemError('invalid', `the webhook cannot be called: ${reason}`, { errors });
}
