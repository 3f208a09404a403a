// `millrace shared-limits`: limits that hold for the jobs of several endpoints together.
import { spellRate } from '../../wire/resources/field.ts';
import { SHARED_LIMIT_FIELDS } from '../../wire/resources/fields.ts';
import type { CommandGroup } from '../command.ts';
import { defineDeletion, defineResourceVerbs } from './resource-command.ts';

export const sharedLimitsCommands: CommandGroup = {
  name: 'millrace shared-limits',
  description: [
    'A shared limit bounds how many jobs of several endpoints start in a time, and how many run at once: the quota of a service ' +
      'that their handlers call.',
  ],
  verbs: {
    ...defineResourceVerbs({
      name: 'sharedLimits',
      fields: SHARED_LIMIT_FIELDS,
      columns: {
        ID: ({ id }) => id,
        NAME: ({ name }) => name,
        'PER TIME': ({ rateLimit }) => (rateLimit ? spellRate(rateLimit) : 'no limit'),
        'AT ONCE': ({ concurrency }) => String(concurrency ?? 'no limit'),
        FOR: ({ key }) => (key === null ? 'all jobs' : 'each group'),
      },
      create: {
        examples: [
          'millrace shared-limits create --name upstream --rate-limit 500/1m --concurrency 20',
          'millrace shared-limits create --name customers --concurrency 2 --key group',
        ],
      },
      update: {
        effect: 'It holds for new starts; running jobs go on.',
        examples: ['millrace shared-limits update upstream --concurrency 10'],
      },
    }),
    delete: defineDeletion('sharedLimits', '; no endpoint may use it'),
  },
  examples: [
    'millrace shared-limits create --name upstream --rate-limit 500/1m --concurrency 20',
    'millrace endpoints update echo --shared-limit upstream',
  ],
};
