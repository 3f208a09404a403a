// `millrace registries`: manages the logins with which private images are pulled.
import { readFileSync } from 'node:fs';
import type { CommandGroup } from '../command.ts';
import { type OptionValues, text, UsageError } from '../options.ts';
import { bodyFileOption, composeBody, mark } from './request-body.ts';
import {
  defineDeletion,
  defineResourceVerbs,
  type ResourceCommandSpec,
} from './resource-command.ts';

const updateOptions = {
  name: text({ placeholder: 'NAME', help: 'display name' }),
  username: text({ placeholder: 'USER', help: 'user of the registry' }),
  secretFile: text({
    placeholder: 'FILE',
    help: 'file with the password or token; - reads it from standard input; a line break at its end does not count',
  }),
  file: bodyFileOption,
};

const createOptions = {
  ...updateOptions,
  name: mark(updateOptions.name),
  server: mark(text({ placeholder: 'HOST', help: 'host of the registry, with its port if any' })),
  username: mark(updateOptions.username),
  secretFile: mark(updateOptions.secretFile),
};

const kind: ResourceCommandSpec<'registries', typeof createOptions, typeof updateOptions> = {
  name: 'registries',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    SERVER: ({ server }) => server,
    USER: ({ username }) => username,
    DECLARED: ({ declared }) => (declared ? 'yes' : 'no'),
  },
  create: {
    options: createOptions,
    compose: ({ file, name, secretFile, server, username }: OptionValues<typeof createOptions>) =>
      composeBody(file, { name, server, username, secret: readSecret(secretFile) }),
    examples: [
      'millrace registries create --name own --server ghcr.io --username ci --secret-file token',
    ],
  },
  update: {
    options: updateOptions,
    compose: ({ file, name, secretFile, username }: OptionValues<typeof updateOptions>) =>
      composeBody(file, { name, username, secret: readSecret(secretFile) }),
    effect: 'The next pull uses the new login.',
    examples: ['millrace registries update own --secret-file token'],
  },
  fields: { secret: 'secret-file' },
};

export const registriesCommands: CommandGroup = {
  name: 'millrace registries',
  description: ['A registry is a login with which the engine pulls private images.'],
  verbs: {
    ...defineResourceVerbs(kind),
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
