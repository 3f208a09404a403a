// What holds for every command: help, errors that name what is wrong, exit codes.
import { resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { Workplace } from './command-run.ts';

const commands = [
  ...['conformance worker', 'dev', 'doctor', 'endpoints create', 'health', 'init', 'jobs logs'],
  ...['mcp', 'run', 'serve', 'store backup', 'worker'],
];
const groups = [
  'batches',
  'catalog',
  'conformance',
  'endpoints',
  'failed',
  'flows',
  'jobs',
  'keys',
  'pods',
  'schedules',
  'shared-limits',
  'store',
  'templates',
];

const WRONG: [args: string[], message: string][] = [
  [['fly'], 'millrace: fly: unknown command\n'],
  [['serv'], 'millrace: serv: unknown command; did you mean serve?\n'],
  [['--json', 'pods'], 'millrace: --json: unknown option; options follow the command'],
  [['pods', 'crate'], 'millrace pods: crate: unknown command; did you mean create?\n'],
  [
    ['pods', 'create', '--nmae', 'a'],
    'millrace pods create: --nmae: unknown option; did you mean --name?\n',
  ],
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
  [
    ['dev'],
    'millrace dev: <files or folders…> is missing; give the handler modules, or folders of handler modules',
  ],
  [['dev', 'nowhere'], 'millrace dev: nowhere: file or folder not found'],
  [['dev', '.'], 'millrace dev: no handler found in .'],
  [['run'], 'millrace run: <handler> is missing'],
  [['run', 'nowhere.ts'], 'millrace run: nowhere.ts: file not found'],
  [['jobs'], 'millrace jobs: a command is missing; give one of list, submit, show'],
  [['jobs', 'fly'], 'millrace jobs: fly: unknown command'],
  [['jobs', 'show', '--endpoint', 'e'], 'millrace jobs show: <id> is missing; give the job ID'],
  [['jobs', 'list', 'x', '--endpoint', 'e'], 'millrace jobs list: x: unexpected argument'],
  [['jobs', 'logs', 'x'], 'millrace jobs logs: --endpoint ID is required'],
  [
    ['init', 'app', '--from', 'nowhere.tgz'],
    'millrace init: --from: nowhere.tgz: file or folder not found',
  ],
];

/** Those that no process is started for: all of them run in one. */
const LINES = [
  ...commands
    .map((name) => name.split(' '))
    .flatMap((words) => [
      [...words, '--help'],
      ['help', ...words],
    ]),
  ...groups.map((name) => [name, '-h']),
  ['pods', 'create', '--help'],
  ['pods', 'list', '--help'],
  ...WRONG.map(([args]) => args),
];

const ended = z.object({ code: z.number(), stdout: z.string(), stderr: z.string() });

let place: Workplace;
let ends: Map<string, z.infer<typeof ended>>;

beforeAll(async () => {
  place = new Workplace();
  const script = resolve(import.meta.dirname, 'command-lines.ts');
  const run = await place.run([script], {
    command: process.execPath,
    stdin: JSON.stringify(LINES),
  });
  expect(run.code, run.stderr).toBe(0);
  const all = z.array(ended).parse(JSON.parse(run.stdout));
  ends = new Map(LINES.map((args, index) => [args.join(' '), ended.parse(all[index])]));
});

afterAll(() => place.close());

function findEnd(args: readonly string[]) {
  const end = ends.get(args.join(' '));
  if (!end) throw new Error(`${args.join(' ')} was not run`);
  return end;
}

describe('help', () => {
  it('lists the commands', async () => {
    const { code, stdout } = await place.run(['--help']);
    expect(code).toBe(0);
    const words = [...commands, ...groups].map((name) => name.split(' ')[0]);
    for (const word of words) expect(stdout).toMatch(new RegExp(`^ {2}${word} `, 'm'));
  });

  it.each(commands)('is printed for %s with --help before or after the command', (name) => {
    const words = name.split(' ');
    const after = findEnd([...words, '--help']);
    expect(after).toMatchObject({ code: 0, stderr: '' });
    expect(after.stdout).toContain(`Usage: millrace ${name}`);
    expect(after.stdout).toContain('Exit codes:');
    const before = findEnd(['help', ...words]);
    expect(before.stdout).toBe(after.stdout);
  });

  it.each(groups)('lists the commands of %s', (name) => {
    const { code, stderr, stdout } = findEnd([name, '-h']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain(`Usage: millrace ${name} <command>`);
  });

  it('shows only the options of its command', () => {
    const create = findEnd(['pods', 'create', '--help']);
    expect(create.stdout).toContain('--gpu-count');
    const list = findEnd(['pods', 'list', '--help']);
    expect(list.stdout).toContain('--limit');
    expect(list.stdout).not.toContain('--gpu-count');
  });

  it('goes to standard error, with exit code 2, without a command', async () => {
    const { code, stderr, stdout } = await place.run([]);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('Usage: millrace <command>');
  });
});

it('--version prints the version of the package', async () => {
  const { code, stdout } = await place.run(['--version']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});

describe('wrong usage is reported by name, with exit code 2', () => {
  it('by the process', async () => {
    const { code, stderr, stdout } = await place.run(['serve', '--speed', '1']);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain('millrace serve: --speed: unknown option');
  });

  it.each(WRONG)('%j', (args, message) => {
    const { code, stderr, stdout } = findEnd(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toContain(message);
    expect(stderr).toContain('--help');
    expect(stderr).not.toContain('    at ');
  });
});
