// The budgets API: users see the budgets of their costs and change their own; the operator sets budgets for everybody.
import { ProblemError } from '../../wire/problem.ts';
import type { BudgetCreation, BudgetRecord, BudgetUpdate } from '../../wire/resources/budget.ts';
import { isOperator, maySee, type Rights } from '../keys/rights.ts';
import type { CallerResources, ResourcePage, UserListing } from '../user-resources.ts';
import type { Budgets } from './budgets.ts';

const ALL_USERS = '*';

/** A caller who may not see a budget gets the same answer as for a missing one. */
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
