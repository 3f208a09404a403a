// `millrace templates`: templates from the command line.
import type { z } from 'zod';
import { connectResources } from '../../client/resources.ts';
import type { TemplateRecord, templateList } from '../../wire/resources/template.ts';
import { resourceRoutes } from '../../wire/routes.ts';
import type { Command } from '../command.ts';
import { type OptionValues, text } from '../options.ts';
import { connectCaller } from './client-options.ts';
import { containerOptions, readContainerFlags } from './container-flags.ts';
import {
  createDeletion,
  createResourceActions,
  describeActions,
  type ResourceActions,
  type ResourceKind,
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

const kind: ResourceKind<Values, TemplateRecord> = {
  plural: 'templates',
  singular: 'template',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VERSION: ({ version }) => String(version),
    IMAGE: ({ image }) => image,
    HANDLER: ({ handler }) => handler ?? '-',
  },
  connect: (caller) =>
    connectResources<z.infer<typeof templateList>, TemplateRecord, object, object>({
      ...{ caller, path: resourceRoutes.templates, pathOf: resourceRoutes.template },
      pick: ({ templates }) => templates,
    }),
  readFlags: (values) => ({ ...readContainerFlags(values), handler: values.handler }),
};

const actions: ResourceActions<Values> = {
  ...createResourceActions(kind),
  delete: createDeletion(kind, '; no endpoint may use it'),
};

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
