// `millrace templates`: manages templates of pods and workers.
import type { CommandGroup } from '../command.ts';
import { type OptionValues, text } from '../options.ts';
import { bodyFileOption, composeBody } from './body-file.ts';
import { containerOptions, readContainerFlags } from './container-flags.ts';
import {
  defineDeletion,
  defineResourceVerbs,
  type ResourceCommandSpec,
} from './resource-command.ts';

const options = {
  ...containerOptions,
  handler: text({
    placeholder: 'PATH',
    help: "process engine: handler module of the workers, a path on the platform's machine",
  }),
  file: bodyFileOption,
};

function compose(values: OptionValues<typeof options>): object {
  return composeBody(values.file, { ...readContainerFlags(values), handler: values.handler });
}

const kind: ResourceCommandSpec<'templates', typeof options, typeof options> = {
  name: 'templates',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VERSION: ({ version }) => String(version),
    IMAGE: ({ image }) => image,
    HANDLER: ({ handler }) => handler ?? '-',
  },
  create: {
    ...{ options, compose },
    examples: [
      'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
      'millrace templates create --file template.json',
    ],
  },
  update: {
    ...{ options, compose },
    examples: ['millrace templates update tpl_01912f4e-… --env LEVEL=debug'],
  },
};

export const templatesCommands: CommandGroup = {
  name: 'millrace templates',
  description: [
    'A template describes the containers of pods and workers: image, arguments, environment, ports, disk.',
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
