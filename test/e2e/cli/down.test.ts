// `millrace down`: what outlives a platform is said when it ends, and ended by the command.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type CommandRun, Workplace } from './command-run.ts';

const SERVE = ['serve', '--port', '0', '--data', 'data', '--key-file', 'keys'];
const DOWN = ['down', '--data', 'data'];
const LEFT = /"pods":1,"msg":"pods keep running without the platform/;

let place: Workplace;
let platform: CommandRun;
let env: Record<string, string>;

beforeEach(() => {
  place = new Workplace();
});

afterEach(() => place.close());

async function serve(): Promise<void> {
  platform = place.start(SERVE);
  const url = await platform.until('stdout', /is ready at (\S+)\n/);
  const key = /MILLRACE_ADMIN_KEY=(\S+)/.exec(place.read('keys'))?.[1] ?? '';
  env = { MILLRACE_URL: url, MILLRACE_KEY: key };
}

async function read(...args: string[]): Promise<Record<string, unknown>> {
  const { code, stderr, stdout } = await place.run([...args, '--json'], { env });
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout);
}

async function untilPod(id: string, statuses: readonly unknown[]): Promise<void> {
  while (!statuses.includes((await read('pods', 'show', id))['status']));
}

async function startPod(): Promise<string> {
  const { cpus } = await read('catalog', 'cpus');
  const [cpu] = Array.isArray(cpus) ? cpus : [];
  // Ends with the code of the signal, so that the platform restarts it.
  const program = "process.on('SIGTERM',()=>process.exit(1));setInterval(()=>{},9e9)";
  const args = `--args=${process.execPath} -e "${program}"`;
  const more = ['--name', 'p', '--image', 'none', '--cpu', cpu.id, '--memory', '1'];
  const { id } = await read('pods', 'create', ...more, args);
  await untilPod(String(id), ['RUNNING']);
  return String(id);
}

describe('millrace down', () => {
  it('stops the pods that a platform says it has left; the next platform starts them again', async () => {
    await serve();
    const pod = await startPod();
    const { code, stderr } = await platform.end('SIGINT');
    expect(code).toBe(0);
    expect(stderr).toMatch(LEFT);
    expect(await place.run(DOWN)).toMatchObject({
      code: 0,
      stdout: 'no platform was running\nstopped 1 pod\n',
    });
    expect(await place.run(DOWN)).toMatchObject({
      code: 0,
      stdout: 'no platform was running\nstopped 0 pods\n',
    });
    await serve();
    await untilPod(pod, ['RUNNING', 'STARTING']);
  });

  it('stops a platform that runs, and its pods', async () => {
    await serve();
    await startPod();
    const { code, stdout } = await place.run(DOWN);
    expect(code).toBe(0);
    expect(stdout).toBe(`stopped the platform (pid ${platform.child.pid})\nstopped 1 pod\n`);
    expect((await platform.ended).code).toBe(0);
  });

  it('signals no process that does not have the lock, whatever lock.pid says', async () => {
    await serve();
    const other = place.start(['-e', 'setInterval(() => {}, 9e9)'], { command: process.execPath });
    place.write('data/lock.pid', `${other.child.pid}`);
    const { code, stderr } = await place.run(DOWN);
    expect(code).toBe(1);
    expect(stderr).toMatch(/is in use, but not by pid \d+, which lock\.pid names/);
    expect([other.child.exitCode, other.child.signalCode]).toEqual([null, null]);
    expect(platform.child.exitCode).toBe(null);
  });

  it('is refused for a folder without a platform', async () => {
    const { code, stderr } = await place.run(['down', '--data', 'none']);
    expect(code).toBe(1);
    expect(stderr).toContain(`--data: ${place.path('none')} is not the data folder of a platform`);
  });
});

it('says nothing of pods without one, and refuses a path below a file', async () => {
  await serve();
  const { stderr } = await platform.end('SIGINT');
  expect(stderr).not.toContain('keep running');
  const refused = await place.run(['serve', '--port', '0', '--data', 'keys/data']);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain(`--data: ${place.path('keys/data')} cannot be used: `);
  expect(refused.stderr).toContain(`${place.path('keys')} is a file`);
  expect(refused.stderr).not.toContain('    at ');
});
