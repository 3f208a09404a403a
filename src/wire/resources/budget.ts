// Schemas of a budget, a limit on what a user's resources may cost in a day or a month; its operations.
import { z } from 'zod';
import { describeResource } from '../operations/resource.ts';
import { RESOURCES } from '../routes/routes.ts';
import { creationShape, recordShape, storedShape, updateShape } from './field-schemas.ts';
import { BUDGET_FIELDS } from './fields.ts';

/** Body of `POST /v1/budgets`. */
export const budgetCreation = z.strictObject(creationShape(BUDGET_FIELDS));
export type BudgetCreation = z.infer<typeof budgetCreation>;

/** Body of `PATCH /v1/budgets/{id}`; omitted members stay unchanged. */
export const budgetUpdate = z.strictObject(updateShape(BUDGET_FIELDS));
export type BudgetUpdate = z.infer<typeof budgetUpdate>;

const { userId: _userId, ...shown } = recordShape(BUDGET_FIELDS);
const ownBudget = z.object({
  id: z.string(),
  ...shown,
  webhook: z
    .string()
    .nullable()
    .describe('null: none, or the webhook of a budget that the operator has set for the caller'),
  setBy: z
    .enum(['user', 'operator'])
    .describe('`operator`: only the operator changes and deletes it'),
  createdAt: z.iso.datetime(),
});

const { userId: _ownerId, ...stored } = storedShape(BUDGET_FIELDS);
/** Without its user, which is a column. */
export const storedBudget = ownBudget.extend(stored);
export type StoredBudget = z.infer<typeof storedBudget>;

export const budgetRecord = ownBudget.extend({
  userId: z.string().describe('User whose costs it limits'),
  endpointName: z
    .string()
    .nullable()
    .describe('Name that the endpoint has now; null: no endpoint, or it is deleted'),
  spent: z.string().describe('USD of the current period, six decimals'),
  state: z
    .enum(['ok', 'warning', 'used_up'])
    .describe(
      '`used_up`: no new pods and workers start before the next period; running ones continue. If the budget is for all that ' +
        'the user has, no network volumes are created or grown',
    ),
});
export type BudgetRecord = z.infer<typeof budgetRecord>;

/** Values of `type` by state. */
export const noticeTypes = { warning: 'budget.warning', used_up: 'budget.used_up' } as const;

/** Body of a post to a budget's webhook. */
export interface BudgetNotice {
  type: (typeof noticeTypes)[keyof typeof noticeTypes];
  /** When the platform found it: ISO 8601, UTC. */
  timestamp: string;
  data: Omit<BudgetRecord, 'webhook'>;
}

const EXAMPLE: BudgetRecord = {
  id: 'bud_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d75',
  name: 'month',
  userId: 'ada',
  endpointId: null,
  endpointName: null,
  period: 'month',
  limit: 500,
  warnAt: 0.8,
  setBy: 'user',
  webhook: 'https://example.com/hooks/budget',
  createdAt: '2026-01-15T09:30:00.000Z',
  spent: '420.118200',
  state: 'warning',
};

export const budgets = describeResource({
  outline: RESOURCES.budgets,
  about: 'Limits on what resources may cost in a day or a month.',
  listQuery: [
    {
      name: 'userId',
      schema: z.string().exactOptional(),
      description:
        'budgets of this user, or of all users if it is `*`; for the operator of the platform only',
    },
  ],
  record: budgetRecord,
  creation: budgetCreation,
  update: budgetUpdate,
  texts: {
    create: {
      summary:
        'Create a budget for an endpoint, or for all pods, endpoints and network volumes of the user',
    },
    update: { summary: 'Update a budget; omitted fields keep their value' },
    delete: { summary: 'Delete a budget' },
  },
  examples: {
    record: EXAMPLE,
    creation: { name: 'month', limit: 500 },
    update: { limit: 800 },
  },
});
