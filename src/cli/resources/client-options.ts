// How a command reaches its platform: options of URL, key and profile, the file of profiles, the client, and the errors that
// refusals become. Flags win over the environment, the environment over the profile.

import {
  chmodSync,
  closeSync,
  fstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { describeProxy, readProxies } from '../../base/net/outgoing-proxy.ts';
import { loadUndici, openProxy } from '../../base/net/undici.ts';
import { ApiCaller } from '../../client/api-caller.ts';
import {
  ApiError,
  type Client,
  createClient,
  createPlatform,
  type Platform,
  UnreachableError,
} from '../../client.ts';
import { CommandError } from '../command.ts';
import { inheritEnvironment, readVariable } from '../config.ts';
import {
  cleanKey,
  flagName,
  keyOption,
  type OptionTable,
  readKeyOf,
  text,
  UsageError,
} from '../options.ts';

/** Retries of a command; fewer than for programs, because a person waits. */
const REPEATS = 2;
const UNAUTHORIZED = 401;

export const clientOptions = {
  url: text({
    placeholder: 'URL',
    env: 'MILLRACE_URL',
    help: 'URL of the platform; default: that of the profile, else http://127.0.0.1:8000; for https with your own certificate authorities set NODE_EXTRA_CA_CERTS=FILE',
  }),
  key: keyOption(
    text({
      placeholder: 'KEY',
      env: 'MILLRACE_KEY',
      help: 'API key; default: that of the profile; not needed for `millrace dev` on this machine',
    }),
  ),
  profile: text({
    placeholder: 'NAME',
    help: 'profile of `millrace login`; default: MILLRACE_PROFILE, else the current one',
  }),
};

interface ClientTarget extends GivenTarget {
  endpoint: string;
}

/** @throws UsageError, CommandError */
export function connect({ endpoint, ...given }: ClientTarget): Client {
  const target = chooseTarget(given);
  return checkUrl(() =>
    createClient({ endpoint, ...target, repeats: REPEATS, ...throughProxy(target.url) }),
  );
}

/** Returns a caller for operations that belong to no endpoint. @throws UsageError */
export function connectCaller(given: GivenTarget): ApiCaller {
  const target = chooseTarget(given);
  return checkUrl(
    () => new ApiCaller({ ...target, repeats: REPEATS, ...throughProxy(target.url) }),
  );
}

interface PlatformTarget {
  platform: Platform;
  url: string;
  key: string | undefined;
}

/** Returns the client of a platform, and how to reach it. @throws UsageError, CommandError */
export function connectPlatform(given: GivenTarget): PlatformTarget {
  const { key, url } = chooseTarget(given);
  const platform = checkUrl(() =>
    createPlatform({ key, url, repeats: REPEATS, ...throughProxy(url) }),
  );
  return { platform, key, url };
}

/** The client's option that sends its calls through a proxy, if the environment names one for the URL. @throws TypeError */
export function throughProxy(url: string): { fetch?: typeof fetch } {
  const proxy = readProxies(inheritEnvironment({}))(new URL(url));
  return proxy ? { fetch: fetchThrough(proxy) } : {};
}

/** All requests of a command go to one platform, so one proxy serves the process. */
function fetchThrough(proxy: URL): typeof fetch {
  loadUndici().setGlobalDispatcher(openProxy(proxy));
  return async (input, init) => {
    try {
      return await fetch(input, init);
    } catch (error) {
      const { cause = error } = error instanceof Error ? error : {};
      const reason = cause instanceof Error ? cause.message : String(cause);
      throw new TypeError('fetch failed', { cause: new Error(reason + describeProxy(proxy)) });
    }
  };
}

function checkUrl<T>(connectTo: () => T): T {
  try {
    return connectTo();
  } catch (error) {
    throw new UsageError(`--url: ${error instanceof Error ? error.message : String(error)}`);
  }
}

interface BodyFlags {
  options?: OptionTable;
  /** Options of members of the body that have another name. */
  fields?: Readonly<Record<string, string>> | undefined;
}

/** Turns refusals and outages into errors without a stack, which name the flags of members of the body. */
export async function callPlatform<T>(call: () => Promise<T>, flags: BodyFlags = {}): Promise<T> {
  try {
    return await call();
  } catch (error) {
    if (error instanceof UnreachableError) throw new CommandError(error.message);
    if (!(error instanceof ApiError)) throw error;
    const { detail, errors = [], status, title } = error.problem;
    if (status === UNAUTHORIZED && error.sent) throw new CommandError(explainKey(error.sent));
    // The detail of a failed validation may repeat its first error, or all of them.
    const isRepeated = errors.some((each) => detail.includes(each));
    const first = isRepeated ? `${title} (${status}):` : error.message;
    throw new CommandError(
      [first, ...errors.map((each) => `  ${nameFlag(each, flags)}`)].join('\n'),
    );
  }
}

function explainKey({ hasKey, url }: { url: string; hasKey: boolean }): string {
  const found = hasKey
    ? 'refuses the API key, which is invalid, unknown or expired'
    : 'needs an API key';
  return `${url} ${found}: set MILLRACE_KEY, pass --key, or run \`millrace login\``;
}

/** `workersMax: must be …` becomes `--workers-max: must be …`. */
function nameFlag(error: string, { fields = {}, options = {} }: BodyFlags): string {
  const [path = '', field = ''] = /^([A-Za-z]+)[^:\s]*(?=: )/.exec(error) ?? [];
  const name = Object.hasOwn(fields, field) ? (fields[field] ?? '') : field;
  if (!Object.hasOwn(options, name)) return error;
  const flag = flagName(name);
  return path === name
    ? flag + error.slice(path.length)
    : `${flag} (${path})${error.slice(path.length)}`;
}

export const DEFAULT_URL = 'http://127.0.0.1:8000';

/** Flags or variables; undefined if neither is given. */
export interface GivenTarget {
  url: string | undefined;
  key: string | undefined;
  profile: string | undefined;
}

export interface Target {
  url: string;
  key: string | undefined;
}

/**
 * A profile that a flag names wins over the environment too. The key of a profile goes to the URL of the profile only:
 * with another URL, no key is sent. Nor does a key without a URL go to the URL of a profile that nobody named: it goes
 * to the default URL. @throws UsageError, CommandError
 */
export function chooseTarget({ key, profile: named, url }: GivenTarget): Target {
  const isNamed = named !== undefined;
  const own = {
    url: isNamed && url === readVariable('MILLRACE_URL') ? undefined : url,
    key: isNamed && key === cleanKey(readVariable('MILLRACE_KEY') ?? '') ? undefined : key,
  };
  if (own.url !== undefined && own.key !== undefined) return { url: own.url, key: own.key };
  const name = named ?? readVariable('MILLRACE_PROFILE');
  if (name === undefined && own.key !== undefined) {
    return { url: own.url ?? DEFAULT_URL, key: own.key };
  }
  const profile = findProfile(name);
  const target = own.url ?? profile?.url ?? DEFAULT_URL;
  const isOfProfile = profile !== undefined && isSame(target, profile.url);
  const stored = isOfProfile ? readKeyOf(locateProfiles(), profile.key) : undefined;
  return { url: target, key: own.key ?? stored };
}

interface SpelledTarget {
  /** The key, inside double quotes; undefined if calls need none. */
  bearer: string | undefined;
  /** Options for `millrace`. */
  flags: string[];
}

/**
 * Spells URL and key for commands that a person pastes into a shell. The key is shown only to a person who has written it
 * into the command line.
 */
export function spellTarget({ profile }: GivenTarget, { key, url }: Target): SpelledTarget {
  const variable = cleanKey(readVariable('MILLRACE_KEY') ?? '') || undefined;
  const usual = chooseTarget({
    url: readVariable('MILLRACE_URL'),
    key: variable,
    profile: undefined,
  });
  const isUsual = profile !== undefined || isSame(url, usual.url);
  const flags = [...(profile ? ['--profile', profile] : []), ...(isUsual ? [] : ['--url', url])];
  if (key === undefined) return { bearer: undefined, flags };
  if (key === variable) return { bearer: '$MILLRACE_KEY', flags };
  const stored = findProfile(profile ?? readVariable('MILLRACE_PROFILE'))?.key;
  if (stored !== undefined && cleanKey(stored) === key) {
    return { bearer: `$(${['npx millrace profiles key', profile].join(' ').trim()})`, flags };
  }
  return process.stdout.isTTY
    ? { bearer: key, flags: [...flags, '--key', key] }
    : { bearer: '$MILLRACE_KEY', flags };
}

/** Without a name, the current one, if any. @throws UsageError if no profile has the name */
function findProfile(name: string | undefined): Profile | undefined {
  const { byName, current } = readProfiles();
  if (name === undefined) return current === undefined ? undefined : byName.get(current);
  const profile = byName.get(name);
  if (profile) return profile;
  const known = [...byName.keys()].join(', ');
  const what = known === '' ? `${locateProfiles()} has no profiles` : `known are ${known}`;
  throw new UsageError(`--profile: no profile ${name}; ${what}; log in with \`millrace login\``);
}

function isSame(one: string, other: string): boolean {
  if (!URL.canParse(one) || !URL.canParse(other)) return false;
  const [first, second] = [new URL(one), new URL(other)];
  const trim = ({ origin, pathname }: URL) => origin + pathname.replace(/\/+$/, '');
  return trim(first) === trim(second);
}

/** The URL with which a profile is stored. @throws UsageError */
export function checkPlatformUrl(url: string): string {
  const parsed = URL.canParse(url) ? new URL(url) : undefined;
  const isPlain = parsed && /^https?:$/.test(parsed.protocol) && !parsed.search && !parsed.hash;
  if (!isPlain || parsed.username || parsed.password) {
    throw new UsageError('--url: must be an http or https URL without a query or a password');
  }
  return url.replace(/\/+$/, '');
}

/** Whether a key sent to it can be read on the way. */
export function isReadable(url: string): boolean {
  const { hostname, protocol } = new URL(url);
  return protocol === 'http:' && !/^(localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname);
}

export interface Profile {
  url: string;
  key: string;
}

interface Profiles {
  /** Of commands that name none; undefined without one. */
  current: string | undefined;
  byName: ReadonlyMap<string, Profile>;
}

export const DEFAULT_PROFILE = 'default';
const NAME_FORM = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** Enough for thousands of profiles. */
const MAX_BYTES = 1_048_576;
/** Bits of a mode that let other users read or change the file. */
const OTHERS = 0o077;

/** `$XDG_CONFIG_HOME/millrace/profiles.json`, by default below ~/.config. */
export function locateProfiles(): string {
  const folder = readVariable('XDG_CONFIG_HOME') ?? join(homedir(), '.config');
  return join(folder, 'millrace', 'profiles.json');
}

/** @throws UsageError */
export function checkProfileName(name: string): string {
  if (NAME_FORM.test(name)) return name;
  const form = '1 to 64 letters, digits, ".", "_" or "-"';
  throw new UsageError(`--profile: must be ${form}, got ${JSON.stringify(name)}`);
}

/** None without a file. @throws CommandError if the file is damaged or other users can read it */
export function readProfiles(path = locateProfiles()): Profiles {
  const text = readPrivate(path);
  if (text === undefined) return { current: undefined, byName: new Map() };
  const profiles = parseProfiles(text);
  if (profiles) return profiles;
  throw new CommandError(`${path} is damaged; remove it and log in again`);
}

/** Replaces the file as a whole, so that a reader never sees half of it. @throws CommandError */
export function writeProfiles({ byName, current }: Profiles, path = locateProfiles()): void {
  const body = { current, profiles: Object.fromEntries(byName) };
  const temporary = `${path}.${process.pid}`;
  try {
    mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
    writeFileSync(temporary, `${JSON.stringify(body, null, 2)}\n`, { mode: 0o600 });
    // A file of this name that was left here keeps its mode.
    chmodSync(temporary, 0o600);
    renameSync(temporary, path);
  } catch (error) {
    throw new CommandError(`${path} cannot be written: ${describe(error)}`);
  }
}

/** Undefined without a file. @throws CommandError */
function readPrivate(path: string): string | undefined {
  try {
    const file = openSync(path, 'r');
    try {
      const { mode, size } = fstatSync(file);
      if (size > MAX_BYTES) throw new CommandError(`${path} is larger than ${MAX_BYTES} bytes`);
      if (process.platform !== 'win32' && (mode & OTHERS) !== 0) {
        throw new CommandError(`${path} has keys, and other users can read it; chmod 600 ${path}`);
      }
      return readFileSync(file, 'utf8');
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if (error instanceof CommandError) throw error;
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw new CommandError(`${path} cannot be read: ${describe(error)}`);
  }
}

function parseProfiles(text: string): Profiles | undefined {
  const file = parseObject(text);
  const profiles = file && asObject(file['profiles']);
  if (!file || !profiles) return undefined;
  const byName = new Map<string, Profile>();
  for (const [name, given] of Object.entries(profiles)) {
    const { key, url } = asObject(given) ?? {};
    if (typeof key !== 'string' || typeof url !== 'string') return undefined;
    byName.set(name, { url, key });
  }
  const { current } = file;
  return { byName, current: typeof current === 'string' ? current : undefined };
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    return asObject(JSON.parse(text));
  } catch {
    return undefined;
  }
}

function asObject(value: unknown): Record<string, unknown> | undefined {
  const isObject = typeof value === 'object' && value !== null && !Array.isArray(value);
  return isObject ? Object.fromEntries(Object.entries(value)) : undefined;
}

function describe(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
