// `millrace profiles`, `login` and `logout`: store and remove the URL and the key of a platform, list profiles, choose the
// current one.
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { ApiError } from '../../client/api-caller.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import {
  CommandError,
  type CommandGroup,
  defineCommand,
  defineVerb,
  EXIT,
  type ExitMeanings,
} from '../command.ts';
import { readVariable } from '../config.ts';
import { cleanKey, flag, readKeyOf, text, UsageError } from '../options.ts';
import { formatTable, print, printNote, readTableWidth } from '../output.ts';
import {
  callPlatform,
  checkPlatformUrl,
  checkProfileName,
  connectCaller,
  DEFAULT_PROFILE,
  isReadable,
  locateProfiles,
  readProfiles,
  writeProfiles,
} from '../resources/client-options.ts';
import { rejectOnInterrupt } from '../resources/resource-command.ts';

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

const exitCodes: ExitMeanings = {
  ok: 'done',
  failed: 'no such profile, or the file cannot be read or changed',
};

export const profilesCommands: CommandGroup = {
  name: 'millrace profiles',
  description: [
    'A profile has the URL and the key of one platform; `millrace login` stores it. Commands use the profile of ' +
      '--profile, else of MILLRACE_PROFILE, else the current one.',
  ],
  verbs: {
    list: defineVerb({
      summary: 'lists the profiles of this machine; * marks the current one',
      options: listOptions,
      exitCodes,
      examples: ['millrace profiles list'],
      async run({ values }) {
        void print(`${values.json ? describeJson() : describeTable(readTableWidth(values))}\n`);
        return EXIT.ok;
      },
    }),
    use: defineVerb({
      summary: 'makes a profile the current one',
      positionals,
      options: {},
      exitCodes,
      examples: ['millrace profiles use staging'],
      async run({ positionals: words }) {
        const [name = ''] = words;
        const { byName } = readProfiles();
        const profile = byName.get(name);
        if (!profile) throw new CommandError(`no profile has the name ${name}`);
        writeProfiles({ byName, current: name });
        void print(`${name}  ${profile.url}\n`);
        return EXIT.ok;
      },
    }),
    key: defineVerb({
      summary: 'prints the key of a profile, for a command such as curl',
      options: {},
      exitCodes,
      positionals: optionalName,
      examples: [
        'curl -H "authorization: Bearer $(millrace profiles key)" https://millrace.example.com/v1/endpoints',
      ],
      async run({ positionals: words }) {
        const { byName, current } = readProfiles();
        const name = words[0] ?? readVariable('MILLRACE_PROFILE') ?? current;
        if (name === undefined) throw new CommandError('no profile is current; give a name');
        const profile = byName.get(name);
        if (!profile) throw new CommandError(`no profile has the name ${name}`);
        void print(`${readKeyOf(locateProfiles(), profile.key)}\n`);
        return EXIT.ok;
      },
    }),
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

const UNAUTHORIZED = 401;
const FORBIDDEN = 403;

const loginOptions = {
  url: text({
    placeholder: 'URL',
    help: 'URL of the platform; required unless the profile exists',
  }),
  profile: text({
    placeholder: 'NAME',
    env: 'MILLRACE_PROFILE',
    help: `profile to store, 1 to 64 letters, digits, ".", "_" or "-"; without it, the profile named "${DEFAULT_PROFILE}"`,
  }),
};

export const loginCommand = defineCommand({
  name: 'millrace login',
  description: [
    'Asks for an API key, checks it at the platform, and stores URL and key as a profile in ' +
      '~/.config/millrace/profiles.json (or below XDG_CONFIG_HOME), which only you can read. Without a terminal, the key ' +
      'is read from standard input.',
    'The profile becomes the current one: commands that call a platform use it, unless flags or the variables ' +
      'MILLRACE_URL and MILLRACE_KEY say otherwise. The key of a profile is only sent to the URL of the profile.',
  ],
  options: loginOptions,
  examples: [
    'millrace login --url https://queue.example.com',
    'millrace login --profile staging --url https://staging.example.com < key.txt',
  ],
  exitCodes: {
    ok: 'logged in',
    failed: 'the platform refused the key or did not respond, or the profile cannot be stored',
    usage: 'wrong usage, or no key',
    interrupted: 'interrupted',
  },
  async run({ values }) {
    const name = checkProfileName(values.profile ?? DEFAULT_PROFILE);
    const { byName } = readProfiles();
    const given = values.url ?? byName.get(name)?.url;
    if (given === undefined)
      throw new UsageError(`--url URL is required for the new profile ${name}`);
    const url = checkPlatformUrl(given);
    const key = await readKey(`API key for ${url}: `);
    await checkKey(url, key);
    writeProfiles({ byName: new Map(byName).set(name, { url, key }), current: name });
    if (isReadable(url)) {
      printNote('Warning: the URL is not https, so others on the network can read the key.\n');
    }
    void print(`Logged in to ${url}; profile ${name} is stored in ${locateProfiles()}.\n`);
    return EXIT.ok;
  },
});

const logoutOptions = {
  profile: text({
    placeholder: 'NAME',
    env: 'MILLRACE_PROFILE',
    help: 'profile to remove; default: the current one',
  }),
};

export const logoutCommand = defineCommand({
  name: 'millrace logout',
  description: [
    'Removes a profile with its key from this machine. The key stays valid; `millrace keys revoke` ends it.',
  ],
  options: logoutOptions,
  examples: ['millrace logout', 'millrace logout --profile staging'],
  exitCodes: {
    ok: 'removed',
    failed: 'no such profile, or the file cannot be changed',
  },
  async run({ values }) {
    const { byName, current } = readProfiles();
    const name = values.profile ?? current;
    if (name === undefined)
      throw new CommandError('no profile is current; name one with --profile');
    const left = new Map(byName);
    if (!left.delete(name)) throw new CommandError(`no profile has the name ${name}`);
    writeProfiles({ byName: left, current: current === name ? undefined : current });
    void print(`Removed the profile ${name}.\n`);
    if (readVariable('MILLRACE_KEY') !== undefined) {
      printNote('MILLRACE_KEY is still set, and commands use it.\n');
    }
    return EXIT.ok;
  },
});

/** A key may lack the scope of this read and still be good. @throws CommandError */
async function checkKey(url: string, key: string): Promise<void> {
  const caller = connectCaller({ url, key, profile: undefined });
  const { path } = RESOURCES.endpoints;
  await callPlatform(async () => {
    try {
      await caller.answer({ path, query: { limit: 1 } });
    } catch (error) {
      const status = error instanceof ApiError ? error.status : undefined;
      if (status === UNAUTHORIZED) {
        throw new CommandError(`${url} does not know this key; nothing is stored`);
      }
      if (status !== FORBIDDEN) throw error;
    }
  });
}

const KEY_FORM = /^mr_[A-Za-z0-9_-]{43}$/;
/** Far more than a key with white space around it. */
const MAX_CHARS = 4_096;

/** Asks at a terminal, without an echo; else the key is the whole standard input. @throws UsageError, without the text, if it is no key */
async function readKey(prompt: string): Promise<string> {
  const given = process.stdin.isTTY ? await ask(prompt) : await readInput();
  const key = cleanKey(given);
  if (KEY_FORM.test(key)) return key;
  const found = key === '' ? 'standard input has no key' : 'that is not an API key';
  throw new UsageError(`${found}; a key is "mr_" and 43 letters, digits, "-" or "_"`);
}

function ask(prompt: string): Promise<string> {
  // The terminal is in raw mode, so only readline could echo, and it writes to nowhere.
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({ input: process.stdin, output: nowhere, terminal: true });
  printNote(prompt);
  return new Promise<string>((resolve, reject) => {
    lines.once('line', resolve);
    rejectOnInterrupt(lines, reject);
    lines.once('close', () => resolve(''));
  }).finally(() => {
    lines.close();
    printNote('\n');
  });
}

async function readInput(): Promise<string> {
  let text = '';
  for await (const chunk of process.stdin.setEncoding('utf8')) {
    text += chunk;
    if (text.length > MAX_CHARS) break;
  }
  return text;
}
