// `millrace completion`: prints a script that completes command lines in bash, zsh or fish. The script has the words of
// all commands, so that completion starts no process.
import { type Command, type CommandGroup, EXIT } from '../command.ts';
import { renderBash } from '../completion/bash.ts';
import { type CompletionTable, composeTable } from '../completion/completion-table.ts';
import { renderFish } from '../completion/fish.ts';
import { renderZsh } from '../completion/zsh.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import { UsageError } from '../options.ts';
import { print } from '../output.ts';

const SHELLS: Readonly<Record<string, (table: CompletionTable) => string>> = {
  bash: renderBash,
  zsh: renderZsh,
  fish: renderFish,
};

const positionals = [{ name: '<shell>', help: 'shell: bash, zsh or fish' }];

/** A command of the program, which is loaded only if it is needed. */
interface LazyCommand {
  summary: string;
  load: () => Promise<Command | CommandGroup>;
}

export function createCompletionCommand(all: Readonly<Record<string, LazyCommand>>): Command {
  return {
    name: 'millrace completion',
    description: [
      'Prints a script that completes commands, options and their values. Write it to the place where your shell looks ' +
        'for it, and again after an update of Millrace. For zsh, the folder must be in fpath before compinit runs.',
    ],
    positionals,
    options: {},
    examples: [
      'millrace completion bash > ~/.local/share/bash-completion/completions/millrace',
      'millrace completion zsh > ~/.zfunc/_millrace',
      'millrace completion fish > ~/.config/fish/completions/millrace.fish',
    ],
    exitCodes: [
      { code: EXIT.ok, meaning: 'done' },
      { code: EXIT.usage, meaning: 'wrong usage' },
    ],
    async run(args) {
      const { positionals: words } = parseOptions({}, args);
      checkArguments(positionals, words);
      const [shell = ''] = words;
      const render = Object.hasOwn(SHELLS, shell) ? SHELLS[shell] : undefined;
      if (!render) {
        const known = Object.keys(SHELLS).join(', ');
        throw new UsageError(`${shell}: unknown shell; give one of ${known}`);
      }
      const loaded = await Promise.all(
        Object.entries(all).map(async ([word, { load, summary }]) => {
          return { word, summary, command: await load() };
        }),
      );
      await print(render(composeTable(loaded)));
      return EXIT.ok;
    },
  };
}
