// The commands on a platform's resources as processes, on the process engine: from a template to a pod.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fixture } from '../../support/processes.ts';
import { Workplace } from './command-run.ts';

let place: Workplace;
let env: Record<string, string>;

beforeAll(async () => {
  place = new Workplace();
  const platform = place.start(['serve', '--port', '0', '--data', 'data']);
  const url = await platform.until('stdout', /is ready at (\S+)\n/);
  const key = await platform.until('stdout', /MILLRACE_ADMIN_KEY=(\S+)\n/);
  env = { MILLRACE_URL: url, MILLRACE_KEY: key };
});

afterAll(() => place.close());

/** What the command prints; it has to succeed. */
async function print(...args: string[]): Promise<string> {
  const { code, stderr, stdout } = await place.run(args, { env });
  expect(code, stderr).toBe(0);
  return stdout;
}

async function read(...args: string[]): Promise<Record<string, unknown>> {
  return JSON.parse(await print(...args, '--json'));
}

/** What `millrace pods show` says once it has this status. */
async function untilPod(id: string, status: string): Promise<Record<string, unknown>> {
  for (;;) {
    const pod = await read('pods', 'show', id);
    if (pod['status'] === status) return pod;
    expect(['PROVISIONING', 'STARTING', 'RUNNING']).toContain(pod['status']);
  }
}

describe('millrace templates, endpoints and jobs', () => {
  it('deploy a handler, and show the reason for its worker', async () => {
    const { id: template } = await read(
      ...['templates', 'create', '--name', 'square', '--image', 'worker'],
      ...['--handler', fixture('square.ts')],
    );
    const { id } = await read(
      ...['endpoints', 'create', '--name', 'square', '--template', String(template)],
    );
    const endpoint = String(id);
    expect(await print('endpoints', 'list')).toContain(endpoint);
    const submitted = ['--input', '{"n":7,"ms":1}', '--wait', '--endpoint', endpoint];
    expect(await print('jobs', 'submit', ...submitted)).toContain('"status": "COMPLETED"');
    expect(await print('pods', 'list')).toContain(endpoint);
    expect(await read('endpoints', 'show', 'square')).toMatchObject({
      id: endpoint,
      live: {
        ...{ jobs: { completed: 1 }, workers: { running: 0 }, pods: [{ status: 'RUNNING' }] },
        lastDecision: { want: 1, reason: expect.any(String) },
      },
    });
    const explained = await print('endpoints', 'scaler', endpoint, '--explain');
    expect(explained).toMatch(/^\S+Z {2}1 wanted \(first\): /m);
    expect(explained).toMatch(/^ {2}started {3}pod_/m);
    expect(await print('endpoints', 'delete', endpoint)).toBe(`${endpoint}  deleted\n`);
    const gone = await place.run(['endpoints', 'show', endpoint], { env });
    expect(gone).toMatchObject({ code: 1, stderr: expect.stringContaining('404') });
  });
});

describe('a template', () => {
  it('is refused if its handler is not there', async () => {
    const create = ['templates', 'create', '--name', 'typo', '--image', 'worker', '--handler'];
    const missing = await place.run([...create, '/srv/no/handler.ts'], { env });
    expect(missing).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("no file /srv/no/handler.ts on the platform's machine"),
    });
    const folder = await place.run([...create, '/tmp'], { env });
    expect(folder).toMatchObject({ code: 1, stderr: expect.stringContaining('is not a file') });
  });
});

describe('millrace catalog engine', () => {
  it('prints what the engine can do for pods', async () => {
    const shown = await print('catalog', 'engine');
    expect(shown).toMatch(/^CAPABILITY +PROCESS\n/);
    expect(shown).toMatch(/^stop +a stopped pod keeps its disk$/m);
    expect(shown).toMatch(/^globalNetworking +no$/m);
    expect(shown).toMatch(/^size of volumes +is (not )?enforced$/m);
    expect(await read('catalog', 'engine')).toMatchObject({
      engine: 'process',
      capabilities: { gpusAtStart: true, disk: { keptOverStop: true, limit: 'some' } },
    });
  });
});

describe('millrace pods', () => {
  it('start a process, show its output and end it', async () => {
    const [cpu] = JSON.parse(await print('catalog', 'cpus', '--json')).cpus;
    const args = `${process.execPath} -e "console.log('here');setInterval(()=>{},9e9)"`;
    const pod = ['--name', 'p', '--image', 'none', '--cpu', cpu.id, '--memory', '1'];
    const { id } = await read('pods', 'create', ...pod, `--args=${args}`);
    await untilPod(String(id), 'RUNNING');
    while (!(await print('pods', 'logs', String(id))).includes('here'));
    expect(await print('pods', 'stop', String(id))).toBe(`${id}  EXITED\n`);
    expect(await print('pods', 'terminate', String(id))).toBe(`${id}  terminated\n`);
    const readLog = (...more: string[]) =>
      place.run(['pods', 'logs', String(id), ...more], { env });
    while ((await readLog()).stdout !== '');
    for (const log of [await readLog(), await readLog('-f')]) {
      expect(log).toMatchObject({ code: 0, stdout: '' });
      expect(log.stderr).toBe('(the pod is terminated, and its output was removed with it)\n');
    }
    const refused = await place.run(['pods', 'start', String(id)], { env });
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('409') });
  });

  it('print their output until they stop', async () => {
    const [cpu] = JSON.parse(await print('catalog', 'cpus', '--json')).cpus;
    const count = 'let n=0;setInterval(()=>console.log("line "+ ++n),50)';
    const pod = ['--name', 'counter', '--image', 'none', '--cpu', cpu.id, '--memory', '1'];
    await read('pods', 'create', ...pod, `--args=${process.execPath} -e '${count}'`);
    await untilPod('counter', 'RUNNING');
    const log = place.start(['pods', 'logs', 'counter', '-f'], { env });
    await log.until('stdout', /line 60\n/);
    await print('pods', 'stop', 'counter');
    const { code, stderr, stdout } = await log.ended;
    expect([code, stderr]).toEqual([0, '']);
    const numbers = [...stdout.matchAll(/^line (\d+)$/gm)].map(([, n]) => Number(n));
    expect(numbers).toEqual(numbers.map((_, at) => at + 1));
    expect(numbers.length).toBeGreaterThanOrEqual(60);
    const both = await place.run(['pods', 'logs', 'counter', '-f', '--json'], { env });
    expect(both).toMatchObject({ code: 2, stderr: expect.stringContaining('exclude each other') });
  });
});
