// `millrace templates`: templates from the command line.
import type { Command } from '../command.ts';
import { type OptionValues, text } from '../options.ts';
import { connectCaller } from './client-options.ts';
import { containerOptions, readContainerFlags } from './container-flags.ts';
import {
  createResourceActions,
  describeActions,
  resourceOptions,
  runAction,
} from './resource-command.ts';

const options = {
  ...resourceOptions,
  ...containerOptions,
  handler: text({
    placeholder: 'PATH',
    help: "process engine: handler module of the workers, a path on the platform's machine",
  }),
} as const;

type Values = OptionValues<typeof options>;

const actions = createResourceActions<Values, 'templates'>({
  name: 'templates',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VERSION: ({ version }) => String(version),
    IMAGE: ({ image }) => image,
    HANDLER: ({ handler }) => handler ?? '-',
  },
  readFlags: (values) => ({ ...readContainerFlags(values), handler: values.handler }),
  deletion: '; no endpoint may use it',
});

const { exitCodes, lines, positionals } = describeActions(actions, 'template');

export const templatesCommand: Command = {
  name: 'millrace templates',
  summary: 'create, list, update and delete templates of pods and workers',
  description: ['Calls a running platform.', ...lines],
  positionals,
  options,
  examples: [
    'millrace templates create --name echo --image millrace-worker --handler /srv/echo.ts',
    'millrace templates update tpl_01912f4e-… --env LEVEL=debug',
  ],
  exitCodes,
  run: (args) => runAction({ options, actions, connect: connectCaller, args }),
};
