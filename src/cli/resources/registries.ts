// `millrace registries`: manages the logins with which private images are pulled.
import { readFileSync } from 'node:fs';
import { REGISTRY_FIELDS } from '../../wire/resources/fields.ts';
import type { CommandGroup } from '../command.ts';
import { type OptionValues, text, UsageError } from '../options.ts';
import { defineDeletion, defineResourceVerbs } from './resource-command.ts';

const options = {
  secretFile: text({
    placeholder: 'FILE',
    help: 'file with the password or token; - reads it from standard input; a line break at its end does not count',
  }),
};

const compose = ({ secretFile }: OptionValues<typeof options>) => ({
  secret: readSecret(secretFile),
});

const verbs = defineResourceVerbs({
  name: 'registries',
  fields: REGISTRY_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    SERVER: ({ server }) => server,
    USER: ({ username }) => username,
    DECLARED: ({ declared }) => (declared ? 'yes' : 'no'),
  },
  create: {
    options,
    compose,
    examples: [
      'millrace registries create --name own --server ghcr.io --username ci --secret-file token',
    ],
  },
  update: {
    options,
    compose,
    effect: 'The next pull uses the new login.',
    examples: ['millrace registries update own --secret-file token'],
  },
  flags: { secret: 'secretFile' },
});

export const registriesCommands: CommandGroup = {
  name: 'millrace registries',
  description: ['A registry is a login with which the engine pulls private images.'],
  verbs: {
    ...verbs,
    delete: defineDeletion('registries', '; no pod or template may use it'),
  },
  examples: [
    'millrace registries create --name own --server ghcr.io --username ci --secret-file token',
    'millrace registries delete own',
  ],
};

const STANDARD_INPUT = 0;

/** Not an option's value, which other users of the machine can see. @throws UsageError */
function readSecret(path: string | undefined): string | undefined {
  if (path === undefined) return undefined;
  try {
    const content = readFileSync(path === '-' ? STANDARD_INPUT : path, 'utf8');
    return content.replace(/\r?\n$/, '');
  } catch (error) {
    throw new UsageError(`--secret-file: ${error instanceof Error ? error.message : error}`);
  }
}
