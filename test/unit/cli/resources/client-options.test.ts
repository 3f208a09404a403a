// How a command finds its platform, and what it says when the platform refuses a call.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  callPlatform,
  chooseTarget,
  type GivenTarget,
  locateProfiles,
  readProfiles,
  spellTarget,
  writeProfiles,
} from '../../../../src/cli/resources/client-options.ts';
import { ApiCaller } from '../../../../src/client/api-caller.ts';

const HOME = { url: 'https://home.example', key: 'mr_home' };
const WORK = { url: 'https://work.example/base', key: 'mr_work' };

beforeEach(() => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-profiles-'));
  onTestFinished(() => {
    rmSync(folder, { recursive: true });
    vi.unstubAllEnvs();
  });
  vi.stubEnv('XDG_CONFIG_HOME', folder);
  for (const name of ['URL', 'KEY', 'PROFILE']) vi.stubEnv(`MILLRACE_${name}`, '');
});

/** As the options are read: flags, else variables. */
const choose = (flags: Partial<GivenTarget> = {}) =>
  chooseTarget({
    url: flags.url ?? (process.env['MILLRACE_URL'] || undefined),
    key: flags.key ?? (process.env['MILLRACE_KEY'] || undefined),
    profile: flags.profile,
  });

function store(current: string | undefined = 'home'): void {
  writeProfiles({
    current,
    byName: new Map([
      ['home', HOME],
      ['work', WORK],
    ]),
  });
}

describe('the platform of a command', () => {
  it('is the one on this machine without flags, variables and profiles', () => {
    expect(choose()).toEqual({ url: 'http://127.0.0.1:8000', key: undefined });
    store(undefined);
    writeProfiles({ current: undefined, byName: new Map([['home', HOME]]) });
    expect(choose()).toEqual({ url: 'http://127.0.0.1:8000', key: undefined });
  });

  it('is that of the current profile, or of another that a variable or a flag names', () => {
    store();
    expect(choose()).toEqual(HOME);
    vi.stubEnv('MILLRACE_PROFILE', 'work');
    expect(choose()).toEqual(WORK);
    expect(choose({ profile: 'home' })).toEqual(HOME);
  });

  it('is that of the variables before the current profile, and of a named profile before them', () => {
    store();
    vi.stubEnv('MILLRACE_URL', 'https://other.example');
    vi.stubEnv('MILLRACE_KEY', 'mr_other');
    expect(choose()).toEqual({ url: 'https://other.example', key: 'mr_other' });
    expect(choose({ profile: 'work' })).toEqual(WORK);
    expect(choose({ profile: 'work', key: 'mr_flag' })).toEqual({ ...WORK, key: 'mr_flag' });
  });

  it('never gets the key of another platform', () => {
    store();
    const elsewhere = { url: 'https://elsewhere.example', key: undefined };
    expect(choose({ url: elsewhere.url })).toEqual(elsewhere);
    expect(choose({ url: elsewhere.url, profile: 'home' })).toEqual(elsewhere);
    expect(choose({ url: 'https://work.example/other', profile: 'work' }).key).toBeUndefined();
    expect(choose({ url: 'http://home.example' }).key).toBeUndefined();
    vi.stubEnv('MILLRACE_URL', elsewhere.url);
    expect(choose()).toEqual(elsewhere);
    expect(choose({ url: `${WORK.url}/`, profile: 'work' }).key).toBe(WORK.key);
  });

  it('is the one on this machine for a key without a URL, unless a profile is named', () => {
    store();
    vi.stubEnv('MILLRACE_KEY', 'mr_other');
    expect(choose()).toEqual({ url: 'http://127.0.0.1:8000', key: 'mr_other' });
    vi.stubEnv('MILLRACE_PROFILE', 'work');
    expect(choose()).toEqual({ url: WORK.url, key: 'mr_other' });
  });

  it('is unknown for a profile that does not exist', () => {
    store();
    expect(() => choose({ profile: 'wrok' })).toThrow(/no profile wrok; known are home, work/);
  });
});

describe('the file of profiles', () => {
  it('may have a key with what copying has added, but no other one', () => {
    const save = (key: string) =>
      writeProfiles({ current: 'home', byName: new Map([['home', { ...HOME, key }]]) });
    save('\u200bmr_home\n');
    expect(choose()).toEqual(HOME);
    save('mr_\u200bhome');
    expect(() => choose()).toThrow(`${locateProfiles()}: character 4 of the key is U+200B`);
  });

  it('can be read by its user only', () => {
    store();
    expect(statSync(locateProfiles()).mode & 0o777).toBe(0o600);
    expect(statSync(dirname(locateProfiles())).mode & 0o777).toBe(0o700);
    chmodSync(locateProfiles(), 0o644);
    expect(() => readProfiles()).toThrow(/other users can read it; chmod 600 /);
    store();
    expect(readProfiles().byName.get('work')).toEqual(WORK);
  });

  it.each(['', '{', '[]', '{"profiles":{"a":{"url":1,"key":"k"}}}', '{"profiles":[]}'])(
    'is refused if it is damaged: %s',
    (text) => {
      const path = locateProfiles();
      mkdirSync(dirname(path));
      writeFileSync(path, text, { mode: 0o600 });
      expect(() => choose()).toThrow(/is damaged/);
      // Nothing of it is needed.
      expect(choose({ url: HOME.url, key: HOME.key })).toEqual(HOME);
    },
  );
});

describe('a printed command', () => {
  const spell = (flags: Partial<GivenTarget> = {}) =>
    spellTarget({ url: undefined, key: undefined, profile: undefined, ...flags }, choose(flags));

  it('names the variable that has the key', () => {
    vi.stubEnv('MILLRACE_KEY', 'mr_variable');
    expect(spell()).toEqual({ bearer: '$MILLRACE_KEY', flags: [] });
    const url = 'https://other.example';
    expect(spell({ url })).toEqual({ bearer: '$MILLRACE_KEY', flags: ['--url', url] });
  });

  it('reads the key of a profile, without showing it', () => {
    store();
    expect(spell()).toEqual({ bearer: '$(npx millrace profiles key)', flags: [] });
    expect(spell({ profile: 'work' })).toEqual({
      ...{ bearer: '$(npx millrace profiles key work)', flags: ['--profile', 'work'] },
    });
  });

  it('has no key if calls need none', () => {
    expect(spell()).toEqual({ bearer: undefined, flags: [] });
  });

  it('shows a key from the command line only on a terminal', () => {
    const isTerminal = process.stdout.isTTY;
    onTestFinished(() => {
      process.stdout.isTTY = isTerminal;
    });
    process.stdout.isTTY = false;
    expect(spell({ key: 'mr_flag' })).toEqual({ bearer: '$MILLRACE_KEY', flags: [] });
    process.stdout.isTTY = true;
    expect(spell({ key: 'mr_flag' })).toEqual({ bearer: 'mr_flag', flags: ['--key', 'mr_flag'] });
  });
});

function refuse(): Promise<Response> {
  const problem = { type: 'about:blank', title: 'Unauthorized', status: 401, code: 'unauthorized' };
  const headers = { 'content-type': 'application/problem+json' };
  const body = JSON.stringify({ ...problem, detail: 'no API key: send "Authorization: Bearer"' });
  return Promise.resolve(new Response(body, { status: 401, headers }));
}

function call(key: string | undefined): Promise<unknown> {
  const caller = new ApiCaller({ url: 'https://q.example.com/', key, fetch: refuse });
  return callPlatform(() => caller.json({ path: '/v1/endpoints' }));
}

describe('a refused call', () => {
  it('names the URL and the remedy in a call without a key', async () => {
    await expect(call(undefined)).rejects.toThrow(
      'https://q.example.com needs an API key: set MILLRACE_KEY, pass --key, or run `millrace login`',
    );
  });

  it('says that a key was refused', async () => {
    await expect(call('mr_old')).rejects.toThrow(
      'https://q.example.com refuses the API key, which is invalid, unknown or expired: set MILLRACE_KEY',
    );
  });
});
