// `millrace templates`: manages templates of pods and workers.
import { resolve } from 'node:path';
import { TEMPLATE_FIELDS } from '../../wire/resources/fields.ts';
import type { CommandGroup } from '../command.ts';
import { type OptionValues, text } from '../options.ts';
import { defineDeletion, defineResourceVerbs } from './resource-command.ts';

const options = {
  handler: text({
    placeholder: 'PATH',
    help: "process engine: handler module of the workers, a path on the platform's machine; a relative path starts at the current folder",
  }),
};

/** The platform runs in another folder. */
function compose({ handler }: OptionValues<typeof options>): Record<string, unknown> {
  return { handler: handler === undefined ? undefined : resolve(handler) };
}

const verbs = defineResourceVerbs({
  name: 'templates',
  fields: TEMPLATE_FIELDS,
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VERSION: ({ version }) => String(version),
    IMAGE: ({ image }) => image,
    HANDLER: ({ handler }) => handler ?? '-',
  },
  create: {
    options,
    compose,
    examples: [
      'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
      'millrace templates create --file template.json',
    ],
  },
  update: {
    options,
    compose,
    effect:
      'A change of anything except the name replaces the workers of all endpoints that use the template, new ones ' +
      'ready first. Pods made from the template stay as they are.',
    examples: ['millrace templates update tpl_01912f4e-… --env LEVEL=debug'],
  },
});

export const templatesCommands: CommandGroup = {
  name: 'millrace templates',
  description: [
    'A template describes the containers of pods and workers: image, arguments, environment, ports, disk.',
    'To a key without the scope endpoints:write, the value of each variable is "***".',
  ],
  verbs: {
    ...verbs,
    delete: defineDeletion('templates', '; no endpoint may use it'),
  },
  examples: [
    'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
    'millrace templates update tpl_01912f4e-… --env LEVEL=debug',
  ],
};
