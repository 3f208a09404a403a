// `millrace profiles`: lists profiles and chooses the current one.
import { CommandError, type CommandGroup, EXIT, type ExitCode } from '../command.ts';
import { readVariable } from '../config.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import { flag, readKeyOf } from '../options.ts';
import { formatTable, print, readTableWidth } from '../output.ts';
import { locateProfiles, readProfiles, writeProfiles } from '../profiles.ts';

/** Enough to tell keys apart, and far too little to guess one. */
const SHOWN_OF_KEY = 7;

const listOptions = {
  json: flag({ help: 'print one line of JSON, without the keys' }),
  wide: flag({ help: 'do not truncate table cells' }),
};

const positionals = [{ name: '<name>', help: 'profile' }];
const optionalName = [
  { name: '[name]', help: 'profile; default: MILLRACE_PROFILE, else the current one' },
];

const exitCodes: readonly ExitCode[] = [
  { code: EXIT.ok, meaning: 'done' },
  { code: EXIT.failed, meaning: 'no such profile, or the file cannot be read or changed' },
  { code: EXIT.usage, meaning: 'wrong usage' },
];

export const profilesCommands: CommandGroup = {
  name: 'millrace profiles',
  description: [
    'A profile has the URL and the key of one platform; `millrace login` stores it. Commands use the profile of ' +
      '--profile, else of MILLRACE_PROFILE, else the current one.',
  ],
  verbs: {
    list: {
      summary: 'lists the profiles of this machine; * marks the current one',
      ...{ description: [], positionals: [], options: listOptions, exitCodes },
      examples: ['millrace profiles list'],
      async run(args) {
        const { positionals: words, values } = parseOptions(listOptions, args);
        checkArguments([], words);
        void print(`${values.json ? describeJson() : describeTable(readTableWidth(values))}\n`);
        return EXIT.ok;
      },
    },
    use: {
      summary: 'makes a profile the current one',
      ...{ description: [], positionals, options: {}, exitCodes },
      examples: ['millrace profiles use staging'],
      async run(args) {
        const { positionals: words } = parseOptions({}, args);
        checkArguments(positionals, words);
        const [name = ''] = words;
        const { byName } = readProfiles();
        const profile = byName.get(name);
        if (!profile) throw new CommandError(`no profile has the name ${name}`);
        writeProfiles({ byName, current: name });
        void print(`${name}  ${profile.url}\n`);
        return EXIT.ok;
      },
    },
    key: {
      summary: 'prints the key of a profile, for a command such as curl',
      ...{ description: [], options: {}, exitCodes },
      positionals: optionalName,
      examples: [
        'curl -H "authorization: Bearer $(millrace profiles key)" https://millrace.example.com/v1/endpoints',
      ],
      async run(args) {
        const { positionals: words } = parseOptions({}, args);
        checkArguments(optionalName, words);
        const { byName, current } = readProfiles();
        const name = words[0] ?? readVariable('MILLRACE_PROFILE') ?? current;
        if (name === undefined) throw new CommandError('no profile is current; give a name');
        const profile = byName.get(name);
        if (!profile) throw new CommandError(`no profile has the name ${name}`);
        void print(`${readKeyOf(locateProfiles(), profile.key)}\n`);
        return EXIT.ok;
      },
    },
  },
  examples: ['millrace profiles list', 'millrace profiles use staging'],
};

function describeTable(width: number): string {
  const { byName, current } = readProfiles();
  if (byName.size === 0) return 'no profiles';
  const rows = [...byName].map(([name, { key, url }]) => {
    return [name === current ? `* ${name}` : `  ${name}`, url, `${key.slice(0, SHOWN_OF_KEY)}…`];
  });
  return formatTable(['  NAME', 'URL', 'KEY'], rows, width);
}

function describeJson(): string {
  const { byName, current = null } = readProfiles();
  const profiles = [...byName].map(([name, { url }]) => ({ name, url }));
  return JSON.stringify({ current, profiles });
}
