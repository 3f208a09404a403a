// `millrace limits` and `millrace billing`: what a user may use, and what the use cost.
import { connectBilling, connectLimits } from '../../client/platform-client.ts';
import {
  BILLED_KINDS,
  BILLING_GROUPS,
  BILLING_STEPS,
  type BillingPage,
} from '../../wire/resources/billing.ts';
import type { LimitsRecord } from '../../wire/resources/limits.ts';
import { choice, integer, text } from '../options.ts';
import { formatTable } from '../output.ts';
import { defineApiCommand, pageOptions, showRecord } from './resource-command.ts';

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
