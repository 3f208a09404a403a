// `millrace notes`: notes from the command line.
import type { Command } from '../command.ts';
import { type OptionValues, text } from '../options.ts';
import { connectCaller } from './client-options.ts';
import {
  createResourceActions,
  describeActions,
  resourceOptions,
  runAction,
} from './resource-command.ts';

const options = {
  ...resourceOptions,
  name: text({ placeholder: 'NAME', help: 'name of the note, 1 to 200 characters' }),
  text: text({ placeholder: 'TEXT', help: 'text of the note, at most 10,000 characters' }),
} as const;

const actions = createResourceActions<OptionValues<typeof options>, 'notes'>({
  name: 'notes',
  columns: { ID: ({ id }) => id, NAME: ({ name }) => name, TEXT: (note) => note.text.slice(0, 60) },
  readFlags: ({ name, text: content }) => ({ name, text: content }),
  deletion: '',
});

const { exitCodes, lines, positionals } = describeActions(actions, 'note');

export const notesCommand: Command = {
  name: 'millrace notes',
  summary: 'create, list, update and delete notes',
  description: ['Calls a running platform.', ...lines],
  positionals,
  options,
  examples: ['millrace notes create --name runbook --text "Restart after a driver update."'],
  exitCodes,
  run: (args) => runAction({ options, actions, connect: connectCaller, args }),
};
