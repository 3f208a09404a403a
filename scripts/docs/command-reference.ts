// The reference of the command line as Markdown: what `--help` prints, one page for each command or group.
import { listCommands, renderGroupHelp, renderHelp } from '../../src/cli/command.ts';
import { COMMANDS } from '../../src/cli/main.ts';
import type { Page } from './pages.ts';

export async function makeCommandReference(): Promise<Page[]> {
  const pages = await Promise.all(
    Object.entries(COMMANDS).map(async ([word, { load, summary }]) => {
      const command = await load();
      const helps =
        'verbs' in command
          ? [
              renderGroupHelp(command),
              ...listCommands(command).map((each) => `## ${each.name}\n\n${renderHelp(each)}`),
            ]
          : [renderHelp(command)];
      return toPage(word, summary, helps);
    }),
  );
  return [makeIndex(pages), ...pages];
}

function toPage(word: string, summary: string, helps: readonly string[]): Page {
  const title = `millrace ${word}`;
  const blocks = helps.map((help) => {
    const [, heading = '', text = ''] = /^(## [^\n]*\n\n)?([\s\S]*)$/.exec(help) ?? [];
    return `${heading}\`\`\`text\n${text}\`\`\``;
  });
  const text = [`# ${title}`, ...blocks].join('\n\n');
  return { ...COMMON, path: `commands/${word}`, title, summary, text: `${text}\n` };
}

const COMMON = { section: 'Commands', source: 'src/cli/main.ts' };

function makeIndex(pages: readonly Page[]): Page {
  const rows = pages.map(({ path, summary, title }) => {
    const file = path.replace('commands/', './');
    return `| [${title}](${file}.md) | ${summary} |`;
  });
  const summary = 'Every command of the program, with its options, examples and exit codes.';
  const text = ['# Commands', summary, ['| command | |', '|---|---|', ...rows].join('\n')];
  return {
    ...COMMON,
    path: 'commands/index',
    title: 'Commands',
    summary,
    text: `${text.join('\n\n')}\n`,
  };
}
