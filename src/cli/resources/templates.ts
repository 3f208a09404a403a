// `millrace templates`: manages templates of pods and workers.
import { resolve } from 'node:path';
import type { CommandGroup } from '../command.ts';
import { type OptionValues, text } from '../options.ts';
import {
  bodyFileOption,
  composeBody,
  containerOptions,
  mark,
  readContainerFlags,
  replacedListOptions,
} from './request-body.ts';
import {
  defineDeletion,
  defineResourceVerbs,
  type ResourceCommandSpec,
} from './resource-command.ts';

const updateOptions = {
  ...containerOptions,
  ...replacedListOptions,
  handler: text({
    placeholder: 'PATH',
    help: "process engine: handler module of the workers, a path on the platform's machine; a relative path starts at the current folder",
  }),
  file: bodyFileOption,
};

const createOptions = {
  ...updateOptions,
  ...containerOptions,
  name: mark(containerOptions.name),
  image: mark(containerOptions.image, 'required, here or in --file; the process engine ignores it'),
  disk: mark(containerOptions.disk, 'default: 20'),
};

function compose(values: OptionValues<typeof updateOptions>): object {
  // The platform runs in another folder.
  const handler = values.handler === undefined ? undefined : resolve(values.handler);
  return composeBody(values.file, { ...readContainerFlags(values), handler });
}

const kind: ResourceCommandSpec<'templates', typeof createOptions, typeof updateOptions> = {
  name: 'templates',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VERSION: ({ version }) => String(version),
    IMAGE: ({ image }) => image,
    HANDLER: ({ handler }) => handler ?? '-',
  },
  create: {
    options: createOptions,
    compose,
    examples: [
      'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
      'millrace templates create --file template.json',
    ],
  },
  update: {
    options: updateOptions,
    compose,
    effect:
      'A change of anything except the name replaces the workers of all endpoints that use the template, new ones ' +
      'ready first. Pods made from the template stay as they are.',
    examples: ['millrace templates update tpl_01912f4e-… --env LEVEL=debug'],
  },
  fields: { ports: 'port' },
};

export const templatesCommands: CommandGroup = {
  name: 'millrace templates',
  description: [
    'A template describes the containers of pods and workers: image, arguments, environment, ports, disk.',
    'To a key without the scope endpoints:write, the value of each variable is "***".',
  ],
  verbs: {
    ...defineResourceVerbs(kind),
    delete: defineDeletion('templates', '; no endpoint may use it'),
  },
  examples: [
    'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
    'millrace templates update tpl_01912f4e-… --env LEVEL=debug',
  ],
};
