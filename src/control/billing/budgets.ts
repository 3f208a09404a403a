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
import { isOperator, maySee, type Rights } from '../keys/rights.ts';
import { DEFAULT_QUOTAS, type Quotas, requireBelow, type UseSource } from '../limits/quotas.ts';
import { StoredResources } from '../stored-resources.ts';
import type {
  CallerResources,
  NamedRecords,
  ResourcePage,
  UserListing,
  UserResources,
} from '../user-resources.ts';
import { type BudgetFindings, BudgetJudge, type Judged, type UserBudget } from './budget-judge.ts';
import type { Spending } from './spending.ts';

export interface BudgetsOptions {
  store: Store;
  clock: Clock;
  log: Log;
  quotas?: Quotas | undefined;
  /** What is found of them, for those who ask before they start something. */
  findings: BudgetFindings;
  spending: Pick<Spending, 'read'>;
  /** ID of the user's endpoint with this ID or name; undefined: there is none. */
  findEndpoint: (userId: string, idOrName: string) => string | undefined;
  /** Undefined: it is deleted, or it was never there. Default: no name is known. */
  nameOfEndpoint?: ((id: string) => string | undefined) | undefined;
  /** Why the platform may not call the webhook. Default: it may. */
  judgeWebhook?: ((url: string) => string | undefined) | undefined;
}

/** What the caller's rights have decided. */
export type NewBudget = Omit<BudgetCreation, 'userId'> & Pick<StoredBudget, 'setBy'>;

type Kept = StoredResources<NewBudget, BudgetUpdate, StoredBudget>;

export class Budgets
  implements UserResources<NewBudget, BudgetUpdate, BudgetRecord>, NamedRecords, UseSource
{
  readonly #options: BudgetsOptions;
  readonly #kept: Kept;
  readonly #judge: BudgetJudge;

  private constructor(options: BudgetsOptions, kept: Kept) {
    this.#options = options;
    this.#kept = kept;
    this.#judge = new BudgetJudge(options);
  }

  static async open(options: BudgetsOptions): Promise<Budgets> {
    const { clock, judgeWebhook, quotas, store } = options;
    const kept = await StoredResources.open<NewBudget, BudgetUpdate, StoredBudget>({
      store,
      clock,
      quotas,
      name: 'budgets',
      prefix: 'bud',
      record: storedBudget,
      rules: {
        compose: (made, creation) => ({ ...made, ...creation }),
        // Those of the operator leave the user's own quota alone.
        isCounted: ({ setBy }) => setBy === 'user',
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
    const { userId } = listing;
    const { next, records } = await this.#kept.list(listing);
    return { records: await this.#show(records.map((budget) => ({ budget, userId }))), next };
  }

  /** Newest first, of all users. */
  async listAll(page: Omit<UserListing, 'userId'>): Promise<ResourcePage<BudgetRecord>> {
    const { next, records } = this.#kept.listAll(page);
    const budgets = records.map(({ item, userId }) => ({ budget: item, userId }));
    return { records: await this.#show(budgets), next };
  }

  /** Undefined: the budget does not exist. */
  ownerOf(id: string): string | undefined {
    return this.#kept.ownerOf(id);
  }

  /** As it is stored. @throws ProblemError `not_found` */
  find(userId: string, id: string): StoredBudget {
    return this.#kept.get(userId, id);
  }

  async create(userId: string, creation: NewBudget): Promise<BudgetRecord> {
    if (creation.setBy === 'operator') this.#admitOneMore(userId);
    const endpointId = this.#requireEndpoint(userId, creation.endpointId);
    return this.#showOne(userId, await this.#kept.create(userId, { ...creation, endpointId }));
  }

  async get(userId: string, id: string): Promise<BudgetRecord> {
    return this.#showOne(userId, this.#kept.get(userId, id));
  }

  async update(userId: string, id: string, update: BudgetUpdate): Promise<BudgetRecord> {
    return this.#showOne(userId, await this.#kept.update(userId, id, update));
  }

  async remove(userId: string, id: string): Promise<void> {
    await this.#kept.remove(userId, id);
    this.#options.findings.forget(userId, id);
  }

  /** Undefined: the budget does not exist or has none. */
  webhookOf(id: string): string | undefined {
    const kept = this.#kept.entries().find(({ item }) => item.id === id);
    return kept?.item.webhook ?? undefined;
  }

  /** Reads what was spent of all budgets. `onError` is called for each that cannot be read. */
  async observe(onError: (error: unknown) => void): Promise<readonly Judged[]> {
    const all = this.#kept.entries().map(({ item, userId }) => ({ budget: item, userId }));
    const { findings } = this.#options;
    findings.retain(new Set(all.map(({ budget }) => budget.id)));
    const before = all.map(({ budget, userId }) => findings.find(userId, budget.id));
    const found = await this.#judge.judge(all);
    for (const [index, judged] of found.entries()) {
      if (judged instanceof Error) onError(judged);
      else this.#note(judged, before[index]?.record.state);
    }
    return findings.all();
  }

  #note({ record, userId }: Judged, before: BudgetRecord['state'] = 'ok'): void {
    const { log } = this.#options;
    const { id, limit, name, spent, state } = record;
    if (state === before || state === 'ok') return;
    const note = { budget: id, user: userId, name, spent, limit };
    if (state === 'warning') log.warn(note, 'budget is nearly used up');
    else log.warn(note, 'budget is used up');
  }

  /** Why the user may start no pod, or no worker of the endpoint; undefined: they may. Up to the last look. */
  findObstacle(userId: string, endpointId: string | null): string | undefined {
    return this.#options.findings.findObstacle(userId, endpointId);
  }

  /** The operator has the same bound for each user as the user. @throws ProblemError `quota_exceeded` */
  #admitOneMore(userId: string): void {
    const { quotas = DEFAULT_QUOTAS } = this.#options;
    const own = this.#kept.entries().filter((entry) => entry.userId === userId);
    const set = own.filter(({ item }) => item.setBy === 'operator');
    requireBelow('budgets', quotas.budgets, set.length);
  }

  /** @throws ProblemError `invalid` */
  #requireEndpoint(userId: string, idOrName: string | null): string | null {
    if (idOrName === null) return null;
    const id = this.#options.findEndpoint(userId, idOrName);
    if (id !== undefined) return id;
    const fault = `endpointId: endpoint ${JSON.stringify(idOrName)} not found`;
    throw new ProblemError('invalid', fault, { errors: [fault] });
  }

  async #showOne(userId: string, budget: StoredBudget): Promise<BudgetRecord> {
    const [record] = await this.#show([{ userId, budget }]);
    if (!record) throw new Error('nothing was found of a budget');
    return record;
  }

  /** @throws the first error of those that cannot be read */
  async #show(budgets: readonly UserBudget[]): Promise<BudgetRecord[]> {
    const found = await this.#judge.judge(budgets);
    return found.map((judged) => {
      if (judged instanceof Error) throw judged;
      return judged.record;
    });
  }
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

const ALL_USERS = '*';

/**
 * The budgets API: users see the budgets of their costs and change their own; the operator sets budgets for everybody. A
 * caller who may not see a budget gets the same answer as for a missing one.
 */
export class CallerBudgets implements CallerResources<BudgetCreation, BudgetUpdate, BudgetRecord> {
  readonly #budgets: Budgets;

  constructor(budgets: Budgets) {
    this.#budgets = budgets;
  }

  async list(
    caller: Rights,
    listing: Omit<UserListing, 'userId'> & { userId: string | undefined },
  ): Promise<ResourcePage<BudgetRecord>> {
    const { userId = caller.userId, ...page } = listing;
    requireUser(caller, userId);
    if (userId === ALL_USERS && isOperator(caller)) return this.#budgets.listAll(page);
    const { next, records } = await this.#budgets.list({ userId, ...page });
    return { records: records.map((budget) => showTo(caller, budget)), next };
  }

  async create(caller: Rights, given: BudgetCreation): Promise<BudgetRecord> {
    const { userId = caller.userId, ...creation } = given;
    requireUser(caller, userId);
    const setBy = userId === caller.userId ? 'user' : 'operator';
    return this.#budgets.create(userId, { ...creation, setBy });
  }

  async get(caller: Rights, id: string): Promise<BudgetRecord> {
    return showTo(caller, await this.#budgets.get(this.#requireSeen(caller, id), id));
  }

  async update(caller: Rights, id: string, update: BudgetUpdate): Promise<BudgetRecord> {
    return this.#budgets.update(this.#requireOwn(caller, id), id, update);
  }

  async remove(caller: Rights, id: string): Promise<void> {
    await this.#budgets.remove(this.#requireOwn(caller, id), id);
  }

  /** @returns the budget's user. @throws ProblemError `not_found` */
  #requireSeen(caller: Rights, id: string): string {
    const userId = this.#budgets.ownerOf(id);
    if (userId !== undefined && maySee(caller, userId)) return userId;
    throw new ProblemError('not_found', `budget ${id} not found`);
  }

  /** @returns the budget's user. @throws ProblemError `not_found`, `forbidden` */
  #requireOwn(caller: Rights, id: string): string {
    const userId = this.#requireSeen(caller, id);
    const { name, setBy } = this.#budgets.find(userId, id);
    if (setBy === 'user' || isOperator(caller)) return userId;
    const detail = `the operator of the platform has set the budget ${JSON.stringify(name)}; only the operator can change or delete it`;
    throw new ProblemError('forbidden', detail);
  }
}

/** The path of a webhook is often a secret, and a budget that the operator sets has a webhook of the operator's. */
function showTo(caller: Rights, budget: BudgetRecord): BudgetRecord {
  return budget.setBy === 'user' || isOperator(caller) ? budget : { ...budget, webhook: null };
}

/** @throws ProblemError `forbidden` */
function requireUser(caller: Rights, userId: string): void {
  if (userId === caller.userId || isOperator(caller)) return;
  throw new ProblemError(
    'forbidden',
    'only the operator manages budgets of other users; use an admin key of the operator',
  );
}
