// `millrace limits`, `millrace billing` and `millrace budgets`: what a user may use, what the use costs, and what it may cost.
import { connectBilling, connectBudgets, connectLimits } from '../../client/platform-client.ts';
import {
  BILLED_KINDS,
  BILLING_GROUPS,
  BILLING_STEPS,
  type BillingPage,
} from '../../wire/resources/billing.ts';
import type { BudgetRecord } from '../../wire/resources/budget.ts';
import { BUDGET_FIELDS } from '../../wire/resources/fields.ts';
import type { LimitsRecord } from '../../wire/resources/limits.ts';
import type { CommandGroup } from '../command.ts';
import { choice, integer, text } from '../options.ts';
import { formatTable } from '../output.ts';
import {
  type ApiRequest,
  defineApiCommand,
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  type ListKind,
  pageOptions,
  showList,
  showRecord,
} from './resource-command.ts';

export const limitsCommand = defineApiCommand({
  name: 'millrace limits',
  description: [
    'Prints the rate limits and quotas of the user of the key, and how much of each is used. The operator sets them with ' +
      '`millrace serve --rate-limit` and `--quota`.',
  ],
  options: {},
  examples: ['millrace limits', 'millrace limits --json | jq .quotas'],
  act: async ({ caller, json, width }) => {
    const limits = await connectLimits(caller).get();
    return json ? showRecord(limits, true) : describeLimits(limits, width);
  },
});

function describeLimits({ at, quotas, rates }: LimitsRecord, width: number): string {
  const ofRates = rates.map(({ endsAt, limit, used, window }) => [
    `calls per ${window}`,
    String(used),
    String(limit),
    `for ${Math.max(0, Math.ceil((endsAt - at) / 1_000))} s more`,
  ]);
  const ofQuotas = quotas.map(({ limit, name, of, used }) => [
    name,
    used === null ? '' : String(used),
    String(limit),
    of === 'user' ? '' : `each ${of}`,
  ]);
  const shown = formatTable(['LIMIT', 'USED', 'AT MOST', 'NOTE'], [...ofRates, ...ofQuotas], width);
  return rates.length > 0 ? shown : `${shown}\ncalls are not limited`;
}

const STEP_MS = { hour: 3_600_000, day: 86_400_000 } as const;

export const billingCommand = defineApiCommand({
  name: 'millrace billing',
  description: [
    'Prints how long the containers of pods and endpoints ran and network volumes existed, and what they cost at the prices of the catalog.',
  ],
  options: {
    step: choice({ choices: BILLING_STEPS, default: 'day', help: 'in UTC' }),
    last: integer({
      min: 1,
      max: 744,
      placeholder: 'N',
      help: 'number of steps up to now; default: 24 hours or 30 days',
    }),
    group: choice({
      choices: BILLING_GROUPS,
      default: 'resource',
      help: 'one row for each resource and step, for each resource, or for each step',
    }),
    kind: choice({ choices: BILLED_KINDS, help: 'only resources of this kind' }),
    id: text({ placeholder: 'ID', help: 'only this resource' }),
    user: text({ placeholder: 'USER', help: 'for the operator: another user, or `*` for all' }),
    ...pageOptions,
  },
  examples: [
    'millrace billing',
    'millrace billing --step hour --group step',
    'millrace billing --json | jq .total.cost',
  ],
  act: async ({ caller, json, values, width }) => {
    const { cursor, group, id, kind, last, limit, step, user } = values;
    const from = last === undefined ? undefined : Date.now() - (last - 1) * STEP_MS[step];
    const query = { step, group, kind, id, from, userId: user, limit, cursor };
    const page = await connectBilling(caller).get(query);
    return json ? showRecord(page, true) : describeBill(page, width);
  },
});

function describeBill({ cursor, records, total }: BillingPage, width: number): string {
  const rows = records.map(({ at, id, kind, name, ...amount }) => [
    at === null ? '' : new Date(at).toISOString().slice(0, 16),
    ...[kind ?? 'all', name ?? id ?? ''],
    ...describeAmount(amount),
  ]);
  const sum = ['', 'total', '', ...describeAmount(total)];
  const titles = ['FROM', 'KIND', 'RESOURCE', 'HOURS', 'GPU HOURS', 'BUSY GPU HOURS', 'USD'];
  const table = formatTable(titles, [...rows, sum], width);
  return cursor === undefined ? table : `${table}\nnext page: --cursor ${cursor}`;
}

function describeAmount({
  busyGpuSeconds,
  cost,
  gpuSeconds,
  seconds,
}: BillingPage['total']): string[] {
  return [hours(seconds), hours(gpuSeconds), hours(busyGpuSeconds), cost];
}

function hours(seconds: number): string {
  return (seconds / 3_600).toFixed(3);
}

const budgetListOptions = {
  ...pageOptions,
  user: text({
    placeholder: 'USER',
    help: "budgets of this user, * for all; needs the operator's admin key",
  }),
};

const budgetColumns: ListKind<BudgetRecord>['columns'] = {
  ID: ({ id }) => id,
  NAME: ({ name }) => name,
  USER: ({ userId }) => userId,
  ENDPOINT: ({ endpointId, endpointName }) => endpointName ?? endpointId ?? 'all',
  PERIOD: ({ period }) => period,
  SPENT: ({ spent }) => spent,
  LIMIT: ({ limit }) => String(limit),
  STATE: ({ state }) => state,
  'SET BY': ({ setBy }) => setBy,
};

const budgetVerbs = defineResourceVerbs({
  name: 'budgets',
  fields: BUDGET_FIELDS,
  columns: budgetColumns,
  create: {
    examples: [
      'millrace budgets create --name month --limit 500',
      'millrace budgets create --name month --limit 500 --user ada',
    ],
  },
  update: {
    effect: 'A higher limit lets new pods and workers start within 10 seconds.',
    examples: ['millrace budgets update month --limit 800'],
  },
});

export const budgetsCommands: CommandGroup = {
  name: 'millrace budgets',
  description: [
    'A budget limits what pods, endpoints and network volumes may cost in a day or a month.',
    'Once it is used up, no new pods and workers start, and no volumes are created or grown; running ones continue.',
  ],
  verbs: {
    ...budgetVerbs,
    list: defineApiVerb({
      summary: 'lists your budgets, newest first',
      options: budgetListOptions,
      examples: ['millrace budgets list', 'millrace budgets list --user ada'],
      act: listBudgets,
    }),
    delete: defineDeletion('budgets', ''),
  },
  examples: [
    'millrace budgets create --name month --limit 500',
    'millrace budgets create --name sdxl --endpoint sdxl --period day --limit 20',
  ],
};

async function listBudgets(request: ApiRequest<typeof budgetListOptions>): Promise<string> {
  const budgets = connectBudgets(request.caller);
  const { user } = request.values;
  const listed = user === undefined ? budgets : budgets.ofUser(user);
  return showList(listed, { plural: 'budgets', columns: budgetColumns }, request);
}
