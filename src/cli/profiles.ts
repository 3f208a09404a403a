// Profiles: URL and key of each platform that its user has logged in to, in a file that only they can read.
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
import { CommandError } from './command.ts';
import { readVariable } from './config.ts';
import { UsageError } from './options.ts';

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
