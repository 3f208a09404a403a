// `millrace budgets`: limits what pods, endpoints and network volumes may cost.

import { connectBudgets } from '../../client/platform-client.ts';
import type { BudgetRecord } from '../../wire/resources/budget.ts';
import type { CommandGroup } from '../command.ts';
import { choice, decimal, type OptionValues, text } from '../options.ts';
import { bodyFileOption, composeBody, mark } from './request-body.ts';
import {
  type ApiRequest,
  defineApiVerb,
  defineDeletion,
  defineResourceVerbs,
  pageOptions,
  type ResourceCommandSpec,
  showList,
} from './resource-command.ts';

const updateOptions = {
  name: text({ placeholder: 'NAME', help: 'display name' }),
  limit: decimal({
    min: 0.01,
    max: 1_000_000_000,
    placeholder: 'USD',
    help: 'maximum cost in a period, USD',
  }),
  warnAt: decimal({
    min: 0.01,
    max: 1,
    placeholder: 'SHARE',
    help: 'share of the limit from which the state is `warning`; default of a new budget: 0.8',
  }),
  webhook: text({
    placeholder: 'URL',
    help: 'URL to which the platform posts a notice when the budget is nearly used up, and when it is',
  }),
  file: bodyFileOption,
};

const listOptions = {
  ...pageOptions,
  user: text({
    placeholder: 'USER',
    help: "budgets of this user, * for all; needs the operator's admin key",
  }),
};

const createOptions = {
  ...updateOptions,
  user: text({
    placeholder: 'USER',
    help: "user whose costs it limits; needs the operator's admin key; default: you",
  }),
  name: mark(updateOptions.name, 'required, here or in --file'),
  limit: mark(updateOptions.limit, 'required, here or in --file'),
  endpoint: text({
    placeholder: 'ID',
    help: 'only for this endpoint; default: all pods, endpoints and network volumes of the user',
  }),
  period: choice({
    choices: ['day', 'month'],
    help: 'period of the limit, in UTC; default: `month`',
  }),
};

const kind: ResourceCommandSpec<'budgets', typeof createOptions, typeof updateOptions> = {
  name: 'budgets',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    USER: ({ userId }) => userId,
    ENDPOINT: ({ endpointId, endpointName }) => endpointName ?? endpointId ?? 'all',
    PERIOD: ({ period }) => period,
    SPENT: ({ spent }) => spent,
    LIMIT: ({ limit }) => String(limit),
    STATE: ({ state }) => state,
    'SET BY': ({ setBy }) => setBy,
  },
  create: {
    options: createOptions,
    compose: ({
      endpoint,
      file,
      limit,
      name,
      period,
      user,
      warnAt,
      webhook,
    }: OptionValues<typeof createOptions>) =>
      composeBody(file, {
        name,
        limit,
        warnAt,
        webhook,
        period,
        endpointId: endpoint,
        userId: user,
      }),
    examples: [
      'millrace budgets create --name month --limit 500',
      'millrace budgets create --name month --limit 500 --user ada',
    ],
  },
  update: {
    options: updateOptions,
    compose: ({ file, limit, name, warnAt, webhook }: OptionValues<typeof updateOptions>) =>
      composeBody(file, { name, limit, warnAt, webhook }),
    effect: 'A higher limit lets new pods and workers start within 10 seconds.',
    examples: ['millrace budgets update month --limit 800'],
  },
  fields: { endpointId: 'endpoint', userId: 'user', warnAt: 'warn-at' },
};

export const budgetsCommands: CommandGroup = {
  name: 'millrace budgets',
  description: [
    'A budget limits what pods, endpoints and network volumes may cost in a day or a month.',
    'Once it is used up, no new pods and workers start, and no volumes are created or grown; running ones continue.',
  ],
  verbs: {
    ...defineResourceVerbs(kind),
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
  return showList<BudgetRecord>(listed, { plural: 'budgets', columns: kind.columns }, request);
}
