// What holds for every command: help, errors that name what is wrong, exit codes.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Workplace } from './command-run.ts';

const commands = [
  ...['catalog', 'dev', 'endpoints', 'health', 'init', 'jobs', 'keys', 'logs', 'pods', 'run'],
  ...['serve', 'store', 'templates', 'worker'],
];

let place: Workplace;

beforeEach(() => {
  place = new Workplace();
});

afterEach(() => place.close());

describe('help', () => {
  it('lists the commands', async () => {
    const { code, stdout } = await place.run(['--help']);
    expect(code).toBe(0);
    for (const name of commands) expect(stdout).toMatch(new RegExp(`^ {2}${name} `, 'm'));
  });

  it.each(commands)('of %s is asked for before or after it', async (name) => {
    const after = await place.run([name, '--help']);
    expect(after).toMatchObject({ code: 0, stderr: '' });
    expect(after.stdout).toContain(`Usage: millrace ${name}`);
    expect(after.stdout).toContain('Exit codes:');
    const before = await place.run(['help', name]);
    expect(before.stdout).toBe(after.stdout);
  });

  it('goes to standard error, with exit code 2, when no command was given', async () => {
    const { code, stderr, stdout } = await place.run([]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('Usage: millrace <command>');
  });
});

it('the version is that of the package', async () => {
  const { code, stdout } = await place.run(['--version']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

describe('wrong usage is told by name, with exit code 2', () => {
  it.each([
    [['fly'], 'millrace: fly: unknown command'],
    [['toString'], 'millrace: toString: unknown command'],
    [
      ['serve', '--port', '70000'],
      'millrace serve: --port: must be a whole number from 0 to 65535, got "70000"',
    ],
    [['serve', '--speed', '1'], 'millrace serve: --speed: unknown option'],
    [['serve', 'here'], 'millrace serve: here: unexpected argument'],
    [['serve', '--tls-cert', 'x.pem'], 'millrace serve: --tls-cert needs --tls-key'],
    [
      ['serve', '--port', '0', '--endpoint', 'a b'],
      'millrace serve: --endpoint: endpoint "a b": must be 1 to',
    ],
    [
      ['serve', '--port', '0', '--endpoint', 'pods'],
      'millrace serve: --endpoint: endpoint "pods": is reserved',
    ],
    [
      ['serve', '--lease-ms', '4000'],
      'millrace serve: --renew-every-ms: must be less than --lease-ms, which is 4000',
    ],
    [['worker'], 'millrace worker: --url URL is required (or MILLRACE_URL in the environment)'],
    [['dev'], 'millrace dev: name at least one handler file or folder'],
    [['dev', 'nowhere'], 'millrace dev: nowhere: file or folder not found'],
    [['dev', '.'], 'millrace dev: no handler found in .'],
    [['run'], 'millrace run: <handler> is missing'],
    [['run', 'nowhere.ts'], 'millrace run: nowhere.ts: file not found'],
    [['jobs'], 'millrace jobs: <action> is missing'],
    [['jobs', 'fly', 'echo'], 'millrace jobs: fly: unknown action'],
    [['jobs', 'show', 'echo'], 'millrace jobs: show: <job> is missing'],
    [['jobs', 'list', 'echo', 'x'], 'millrace jobs: x: unexpected argument'],
    [['logs', 'x'], 'millrace logs: --endpoint ID is required'],
    [
      ['init', '--from', 'nowhere.tgz'],
      'millrace init: --from: nowhere.tgz: file or folder not found',
    ],
  ])('%j', async (args, message) => {
    const { code, stderr, stdout } = await place.run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(message);
    expect(stderr).toContain('--help');
    expect(stderr).not.toContain('    at ');
  });
});
