// Every command and group of commands.
import { listCommands } from '../../src/cli/command.ts';
import { COMMANDS } from '../../src/cli/main.ts';

const loaded = await Promise.all(Object.values(COMMANDS).map(({ load }) => load()));

export const groups = loaded.filter((each) => 'verbs' in each);

export const commands = [
  ...loaded.filter((each) => 'run' in each),
  ...groups.flatMap(listCommands),
];
