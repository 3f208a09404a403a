// Profiles as a person uses them: log in, call without flags, change the platform, log out.
import { readFileSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

const LAUNCHER = resolve(import.meta.dirname, '../../../bin/millrace.js');

let place: Workplace;
let url: string;
let key: string;

beforeAll(async () => {
  place = new Workplace();
  const platform = place.start(['serve', '--port', '0', '--data', 'data']);
  url = await platform.until('stdout', /is ready at (\S+)\n/);
  key = await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
});

afterAll(() => place.close());

const file = () => join(place.temporary, 'millrace', 'profiles.json');

describe('millrace login', () => {
  it('stores a key of standard input that the platform knows, and commands use it', async () => {
    const stranger = `mr_${'x'.repeat(43)}`;
    const refused = await place.run(['login', '--url', url], { stdin: stranger });
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('does not know') });
    expect(() => statSync(file())).toThrow();
    const login = await place.run(['login', '--url', `${url}/`], { stdin: `${key}\n` });
    expect(login).toMatchObject({ code: 0, stdout: expect.stringContaining('profile default') });
    expect(statSync(file()).mode & 0o777).toBe(0o600);
    expect(login.stdout + login.stderr).not.toContain(key);

    const listed = await place.run(['keys', 'list']);
    expect(listed).toMatchObject({ code: 0, stdout: expect.stringContaining('first admin key') });
    const profiles = await place.run(['profiles', 'list']);
    expect(profiles.stdout).toContain(`* default  ${url}`);
    expect(profiles.stdout).not.toContain(key);
  });

  it('keeps several profiles, of which one is the current', async () => {
    const second = ['login', '--profile', 'second', '--url', url];
    expect((await place.run(second, { stdin: key })).code).toBe(0);
    const { stdout } = await place.run(['profiles', 'list', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ current: 'second', profiles: [{}, {}] });
    expect((await place.run(['profiles', 'use', 'default'])).code).toBe(0);
    expect((await place.run(['profiles', 'use', 'third'])).code).toBe(1);
    expect((await place.run(['keys', 'list', '--profile', 'second'])).code).toBe(0);
    expect((await place.run(['keys', 'list', '--profile', 'third'])).code).toBe(2);
    expect((await place.run(['logout', '--profile', 'second'])).code).toBe(0);
    expect((await place.run(['logout'])).stdout).toBe('Removed the profile default.\n');
    expect((await place.run(['logout'])).code).toBe(1);
    expect(readFileSync(file(), 'utf8')).not.toContain(key);
  });

  it('asks for the key on a terminal, without an echo', async () => {
    const script = [
      'import os, pty, sys',
      'shown = b""',
      'sent = False',
      'def read(fd):',
      '    global shown, sent',
      '    data = os.read(fd, 1024)',
      '    shown += data',
      '    if b"API key for" in shown and not sent:',
      '        sent = True',
      '        os.write(fd, os.environ["TYPED"].encode() + b"\\r")',
      '    return data',
      'sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:], read)))',
    ].join('\n');
    const command = [process.execPath, LAUNCHER, 'login', '--url', url];
    const run = place.start(['-c', script, ...command], {
      command: 'python3',
      env: { TYPED: key },
    });
    const { code, stdout } = await run.ended;
    expect(stdout).toContain('Logged in to');
    expect(stdout).not.toContain(key);
    expect(code).toBe(0);
    expect(readFileSync(file(), 'utf8')).toContain(key);
  });

  it.each([
    [['login'], /--url URL is required/],
    [['login', '--url', 'ftp://x'], /--url: must be an http/],
    [['login', '--url', 'http://u:p@x'], /without a query or a password/],
    [['login', '--url', 'http://x', '--profile', 'a b'], /--profile: must be/],
    [['login', '--url', 'http://x'], /that is not an API key/],
  ])('refuses %j', async (args, message) => {
    const env = { MILLRACE_PROFILE: 'new' };
    const { code, stderr } = await place.run(args, { env, stdin: 'secret' });
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain('secret');
    expect(code).toBe(2);
  });
});
