// `millrace limits`: shows the rate limits and quotas of the key's user, and their use.

import { connectLimits } from '../../client/platform-client.ts';
import type { LimitsRecord } from '../../wire/resources/limits.ts';
import type { Command } from '../command.ts';
import { formatTable } from '../output.ts';
import { defineApiVerb, showRecord } from './resource-command.ts';

const verb = defineApiVerb({
  summary: 'prints the rate limits and quotas of your user, and their use',
  options: {},
  examples: ['millrace limits', 'millrace limits --json | jq .quotas'],
  act: async ({ caller, json, width }) => {
    const limits = await connectLimits(caller).get();
    return json ? showRecord(limits, true) : describe(limits, width);
  },
});

const { examples, exitCodes, options, positionals, run } = verb;

export const limitsCommand: Command = {
  name: 'millrace limits',
  description: [
    'Prints the rate limits and quotas of the user of the key, and how much of each is used. The operator sets them with ' +
      '`millrace serve --rate-limit` and `--quota`.',
  ],
  positionals,
  options,
  examples,
  exitCodes,
  run,
};

function describe({ at, quotas, rates }: LimitsRecord, width: number): string {
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
