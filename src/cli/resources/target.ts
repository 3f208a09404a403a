// Chooses the platform and the key of a command: flags win over the environment, the environment over the profile.
import { readVariable } from '../config.ts';
import { cleanKey, readKeyOf, UsageError } from '../options.ts';
import { locateProfiles, type Profile, readProfiles } from '../profiles.ts';

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
    ...{ url: readVariable('MILLRACE_URL'), key: variable, profile: undefined },
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
