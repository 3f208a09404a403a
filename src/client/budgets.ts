// Client of budgets.
import type { BudgetRecord } from '../wire/resources/budget.ts';
import { RESOURCES } from '../wire/routes/routes.ts';
import type { ApiCaller } from './api-caller.ts';
import { connectList, connectResources, type Listed, type ResourcesOf } from './resource-calls.ts';

export interface BudgetsClient extends ResourcesOf<'budgets'> {
  /** Lists the budgets of another user, or of all users if it is `*`; only for the operator's keys. */
  ofUser(userId: string): Listed<BudgetRecord>;
}

export function connectBudgets(caller: ApiCaller): BudgetsClient {
  const { path, plural: member } = RESOURCES.budgets;
  return {
    ...connectResources(caller, 'budgets'),
    ofUser: (userId) => connectList({ caller, path, member, query: { userId } }),
  };
}
