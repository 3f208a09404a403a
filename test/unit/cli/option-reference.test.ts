// docs/operations/options.md lists every option of `serve` and `worker`. It is made of the tables that arguments are
// parsed by: `npm run options` writes it anew.
import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { serveCommand } from '../../../src/cli/commands/serve.ts';
import { flagName, type Option, type OptionTable } from '../../../src/cli/options.ts';
import { workerCommand } from '../../../src/cli/worker/worker.ts';

const PAGE = resolve(import.meta.dirname, '../../../docs/operations/options.md');

const HEAD = `# Options of serve and worker

<!-- Made by \`npm run options\` from the options in src/cli; do not edit. -->

Each option is a flag and a variable of the environment. The flag wins. An option without a value is on if its variable is
set, unless the variable is \`0\` or \`false\`. A variable has all values of a repeatable option, separated by commas.
\`millrace <command> --help\` prints the same.
`;

function renderCommand(name: string, options: OptionTable): string {
  const shown = Object.entries(options).filter(([, { section }]) => section !== 'internal');
  const groups = Object.entries(Object.groupBy(shown, ([, { group }]) => group ?? ''));
  return [`## ${name}`, ...groups.map(([group, own]) => renderGroup(group, own ?? []))].join(
    '\n\n',
  );
}

function renderGroup(group: string, options: readonly [string, Option<unknown>][]): string {
  const rows = options.map(([name, option]) => `| ${describe(name, option).join(' | ')} |`);
  return [
    `### ${group}\n`,
    '| option | variable | values | meaning |',
    '|---|---|---|---|',
    ...rows,
  ].join('\n');
}

function describe(name: string, option: Option<unknown>): string[] {
  const { defaultText, env, help, kind, placeholder, rangeText, required } = option;
  const values = [
    required && 'required',
    kind === 'list' && 'repeatable',
    rangeText,
    defaultText !== undefined && `default \`${defaultText}\``,
  ].filter(Boolean);
  const cells = [
    `\`${`${flagName(name)} ${placeholder}`.trim()}\``,
    `\`${env}\``,
    values.join('; '),
    help,
  ];
  return cells.map((cell) => cell.replaceAll(/[|<]/g, String.raw`\$&`));
}

it('lists every option of serve and worker as the program has it', async () => {
  const commands = [serveCommand, workerCommand].map(({ name, options }) =>
    renderCommand(name, options),
  );
  await expect(`${[HEAD, ...commands].join('\n')}\n`).toMatchFileSnapshot(PAGE);
});

it('gives every option a heading and a variable', () => {
  const options = [serveCommand, workerCommand].flatMap((each) => Object.entries(each.options));
  const bare = options.filter(
    ([, { env, group, section }]) => section !== 'internal' && !(env && group),
  );
  expect(bare.map(([name]) => name)).toEqual([]);
});
