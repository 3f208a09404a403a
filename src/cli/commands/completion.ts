// `millrace completion`: prints a script that completes command lines in bash, zsh or fish. The script has the words of
// all commands, so that completion starts no process.
import { quoteWord } from '../../base/text/shell-words.ts';
import { type Command, type CommandGroup, defineCommand, EXIT } from '../command.ts';
import { flagName, type OptionTable, UsageError } from '../options.ts';
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
  return defineCommand({
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
    exitCodes: {
      ok: 'done',
    },
    async run({ positionals: words }) {
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
  });
}

interface CompletedWord {
  word: string;
  /** One line. */
  help: string;
}

interface CompletedOption extends CompletedWord {
  /** The option takes a value. */
  isValued: boolean;
  /** All values, if they are known; else a value may be a file. */
  choices: readonly string[];
}

interface CompletionContext {
  /** Words of the command: empty, `jobs`, `jobs list`. */
  path: string;
  commands: readonly CompletedWord[];
  options: readonly CompletedOption[];
  /** The command takes arguments, which may be files. */
  takesFiles: boolean;
}

export type CompletionTable = readonly CompletionContext[];

interface LoadedCommand {
  word: string;
  summary: string;
  command: Command | CommandGroup;
}

const HELP: CompletedOption = {
  word: '--help',
  help: 'show the help',
  isValued: false,
  choices: [],
};

export function composeTable(all: readonly LoadedCommand[]): CompletionTable {
  const top: CompletionContext = {
    path: '',
    commands: all.map(({ summary, word }) => ({ word, help: summary })),
    options: [HELP, { ...HELP, word: '--version', help: 'show the version' }],
    takesFiles: false,
  };
  return [top, ...all.flatMap(({ command, word }) => describe(word, command))];
}

function describe(path: string, command: Command | CommandGroup): CompletionContext[] {
  if (!('verbs' in command)) return [describeOne(path, command)];
  const verbs = Object.entries(command.verbs);
  const group: CompletionContext = {
    path,
    commands: verbs.map(([word, { summary }]) => ({ word, help: summary })),
    options: [HELP],
    takesFiles: false,
  };
  return [group, ...verbs.map(([word, verb]) => describeOne(`${path} ${word}`, verb))];
}

function describeOne(
  path: string,
  { options, positionals }: Pick<Command, 'options' | 'positionals'>,
): CompletionContext {
  const takesFiles = positionals.some(({ name }) => !/^[<[](id|name|shell)/.test(name));
  return { path, commands: [], options: [...listOptions(options), HELP], takesFiles };
}

function listOptions(options: OptionTable): CompletedOption[] {
  return Object.entries(options)
    .filter(([, { section }]) => section !== 'internal')
    .map(([name, { choices = [], help, kind }]) => ({
      word: flagName(name),
      help: help.split(/[;:(]/, 1)[0]?.trim() ?? '',
      isValued: kind !== 'flag',
      choices,
    }));
}

/** For fish, where a backslash escapes within quotes. */
function quoteFish(text: string): string {
  return `'${text.replaceAll(/['\\]/g, String.raw`\$&`)}'`;
}

export function renderBash(table: CompletionTable): string {
  const paths = table.flatMap(({ path }) => (path === '' ? [] : [quoteWord(path)]));
  const words = table.map(({ commands, options, path }) => {
    const names = commands.map(({ word }) => word).join(' ');
    const flags = options.map(({ word }) => word).join(' ');
    const valued = options.filter(({ isValued }) => isValued).map(({ word }) => word);
    const values = `commands=${quoteWord(names)} flags=${quoteWord(flags)} valued=${quoteWord(` ${valued.join(' ')} `)}`;
    return `    ${quoteWord(path)}) ${values} ;;`;
  });
  const choices = table.flatMap(({ options, path }) =>
    options
      .filter((option) => option.choices.length > 0)
      .map((option) => {
        const key = quoteWord(`${path} ${option.word}`);
        return `      ${key}) choices=${quoteWord(option.choices.join(' '))} ;;`;
      }),
  );
  return `# bash completion of millrace; made by \`millrace completion bash\`
_millrace() {
  local current=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]}
  local at= next i commands= flags= valued= choices=
  # bash splits --flag=value at the equals sign.
  if [[ $current == = ]]; then
    current=
  elif [[ $before == = ]]; then
    before=\${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="\${at:+$at }\${COMP_WORDS[i]}"
    case "$next" in
      ${paths.join(' | ')}) at=$next ;;
    esac
  done
  case "$at" in
${words.join('\n')}
  esac
  if [[ $valued == *" $before "* ]]; then
    case "$at $before" in
${choices.join('\n')}
    esac
    # Without known values, bash completes files.
    [[ -n $choices ]] && COMPREPLY=($(compgen -W "$choices" -- "$current"))
    return
  fi
  [[ $current == -* ]] && commands=$flags
  COMPREPLY=($(compgen -W "$commands" -- "$current"))
}
complete -o default -F _millrace millrace
`;
}

export function renderZsh(table: CompletionTable): string {
  const paths = table.flatMap(({ path }) => (path === '' ? [] : [quoteWord(path)]));
  const contexts = table.map(({ commands, options, path, takesFiles }) => {
    const valued = options.filter(({ isValued }) => isValued).map(({ word }) => quoteWord(word));
    return `    (${quoteWord(path)})
      commands=(${commands.map(describeForZsh).join(' ')})
      flags=(${options.map(describeForZsh).join(' ')})
      valued=(${valued.join(' ')})
      files=${takesFiles ? 1 : 0}
      ;;`;
  });
  const choices = table.flatMap(({ options, path }) =>
    options
      .filter((option) => option.choices.length > 0)
      .map((option) => {
        const words = option.choices.map(quoteWord).join(' ');
        return `      (${quoteWord(`${path} ${option.word}`)}) compadd -- ${words} ;;`;
      }),
  );
  return `#compdef millrace
# zsh completion of millrace; made by \`millrace completion zsh\`
_millrace() {
  local at= next before=$words[CURRENT-1] i files=0
  local -a commands flags valued
  for ((i = 2; i < CURRENT; i++)); do
    next="\${at:+$at }$words[i]"
    case "$next" in
      (${paths.join('|')}) at=$next ;;
    esac
  done
  case "$at" in
${contexts.join('\n')}
  esac
  if ((\${valued[(Ie)$before]})); then
    case "$at $before" in
${choices.join('\n')}
      (*) _files ;;
    esac
    return
  fi
  if [[ $words[CURRENT] == -* ]]; then
    _describe 'option' flags
  elif ((\${#commands})); then
    _describe 'command' commands
  elif ((files)); then
    _files
  fi
}
if [[ $funcstack[1] == _millrace ]]; then
  _millrace "$@"
else
  compdef _millrace millrace
fi
`;
}

/** `word:help`, in which colons of the word would have to be escaped; it has none. */
function describeForZsh({ help, word }: CompletedWord): string {
  return quoteWord(`${word}:${help}`);
}

export function renderFish(table: CompletionTable): string {
  const paths = table.flatMap(({ path }) => (path === '' ? [] : [quoteFish(path)]));
  return `# fish completion of millrace; made by \`millrace completion fish\`
function __millrace_at
    set -l at ''
    for word in (commandline -opc)[2..-1]
        set -l next (string trim -- "$at $word")
        if contains -- "$next" ${paths.join(' ')}
            set at $next
        end
    end
    test "$at" = "$argv[1]"
end
complete -c millrace -f
${table.flatMap(describeForFish).join('\n')}
`;
}

function describeForFish({ commands, options, path, takesFiles }: CompletionContext): string[] {
  const at = `complete -c millrace -n ${quoteFish(`__millrace_at '${path}'`)}`;
  return [
    ...(takesFiles ? [`${at} -F`] : []),
    ...commands.map(({ help, word }) => `${at} -a ${word} -d ${quoteFish(help)}`),
    ...options.map(({ choices, help, isValued, word }) => {
      const value = choices.length > 0 ? ` -x -a ${quoteFish(choices.join(' '))}` : ' -r -F';
      return `${at} -l ${word.slice(2)}${isValued ? value : ''} -d ${quoteFish(help)}`;
    }),
  ];
}
