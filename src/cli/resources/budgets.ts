// `millrace budgets`: limits what pods, endpoints and network volumes may cost.
import { connectBudgets } from '../../client/platform-client.ts';
import type { BudgetRecord } from '../../wire/resources/budget.ts';
import { BUDGET_FIELDS } from '../../wire/resources/fields.ts';
import type { CommandGroup } from '../command.ts';
import { text } from '../options.ts';
import {
  type ApiRequest,
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  type ListKind,
  pageOptions,
  showList,
} from './resource-command.ts';

const listOptions = {
  ...pageOptions,
  user: text({
    placeholder: 'USER',
    help: "budgets of this user, * for all; needs the operator's admin key",
  }),
};

const columns: ListKind<BudgetRecord>['columns'] = {
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

const verbs = defineResourceVerbs({
  name: 'budgets',
  fields: BUDGET_FIELDS,
  columns,
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
    ...verbs,
    list: defineApiVerb({
      summary: 'lists your budgets, newest first',
      options: listOptions,
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

async function listBudgets(request: ApiRequest<typeof listOptions>): Promise<string> {
  const budgets = connectBudgets(request.caller);
  const { user } = request.values;
  const listed = user === undefined ? budgets : budgets.ofUser(user);
  return showList(listed, { plural: 'budgets', columns }, request);
}
