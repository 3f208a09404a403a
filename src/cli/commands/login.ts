// `millrace login` and `logout`: store and remove the URL and the key of a platform.
import { ApiError } from '../../client/api-caller.ts';
import { RESOURCES } from '../../wire/routes/routes.ts';
import { type Command, CommandError, EXIT } from '../command.ts';
import { readVariable } from '../config.ts';
import { checkArguments, parseOptions } from '../option-parser.ts';
import { text, UsageError } from '../options.ts';
import { print, printNote } from '../output.ts';
import {
  checkProfileName,
  DEFAULT_PROFILE,
  locateProfiles,
  readProfiles,
  writeProfiles,
} from '../profiles.ts';
import { readKey } from '../prompt.ts';
import { callPlatform, connectCaller } from '../resources/client-options.ts';
import { checkPlatformUrl, isReadable } from '../resources/target.ts';

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

export const loginCommand: Command = {
  name: 'millrace login',
  description: [
    'Asks for an API key, checks it at the platform, and stores URL and key as a profile in ' +
      '~/.config/millrace/profiles.json (or below XDG_CONFIG_HOME), which only you can read. Without a terminal, the key ' +
      'is read from standard input.',
    'The profile becomes the current one: commands that call a platform use it, unless flags or the variables ' +
      'MILLRACE_URL and MILLRACE_KEY say otherwise. The key of a profile is only sent to the URL of the profile.',
  ],
  positionals: [],
  options: loginOptions,
  examples: [
    'millrace login --url https://queue.example.com',
    'millrace login --profile staging --url https://staging.example.com < key.txt',
  ],
  exitCodes: [
    { code: EXIT.ok, meaning: 'logged in' },
    {
      code: EXIT.failed,
      meaning: 'the platform refused the key or did not respond, or the profile cannot be stored',
    },
    { code: EXIT.usage, meaning: 'wrong usage, or no key' },
    { code: EXIT.interrupted, meaning: 'interrupted' },
  ],
  async run(args) {
    const { positionals, values } = parseOptions(loginOptions, args);
    checkArguments([], positionals);
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
};

const logoutOptions = {
  profile: text({
    placeholder: 'NAME',
    env: 'MILLRACE_PROFILE',
    help: 'profile to remove; default: the current one',
  }),
};

export const logoutCommand: Command = {
  name: 'millrace logout',
  description: [
    'Removes a profile with its key from this machine. The key stays valid; `millrace keys revoke` ends it.',
  ],
  positionals: [],
  options: logoutOptions,
  examples: ['millrace logout', 'millrace logout --profile staging'],
  exitCodes: [
    { code: EXIT.ok, meaning: 'removed' },
    { code: EXIT.failed, meaning: 'no such profile, or the file cannot be changed' },
    { code: EXIT.usage, meaning: 'wrong usage' },
  ],
  async run(args) {
    const { positionals, values } = parseOptions(logoutOptions, args);
    checkArguments([], positionals);
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
};

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
