// The commands on pods, endpoints, templates and the catalog, against a real server in this process.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { CommandGroup } from '../../../src/cli/command.ts';
import { endpointsCommands } from '../../../src/cli/endpoints/endpoints.ts';
import { catalogCommands } from '../../../src/cli/resources/catalog.ts';
import { templatesCommands } from '../../../src/cli/resources/pod-parts.ts';
import { podsCommands } from '../../../src/cli/resources/pods.ts';
import { startPlatform } from '../../support/api/platform.ts';
import { CPU, PodWorld } from '../../support/containers/pod-world.ts';
import { printVerb, runVerb } from '../../support/runs/verb-run.ts';

async function open() {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const { admin, url } = await startPlatform({ engine: 'process', server: { pods: world.pods } });
  const print = async (group: CommandGroup, ...args: string[]): Promise<string> => {
    return printVerb(group, [...args, '--url', url, '--key', admin]);
  };
  const read = async (group: CommandGroup, ...args: string[]): Promise<Record<string, unknown>> =>
    JSON.parse(await print(group, ...args, '--json'));
  return { world, print, read };
}

function writeBody(body: unknown): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'body.json');
  writeFileSync(file, typeof body === 'string' ? body : JSON.stringify(body));
  return file;
}

const POD = ['--name', 'a', '--image', 'busy', '--cpu', 'cpu', '--memory', '8'];

describe('millrace pods', () => {
  it('takes the common fields from flags', async () => {
    const { read } = await open();
    const pod = await read(
      podsCommands,
      ...['create', ...POD, '--args', 'sleep 5', '--env', 'A=1=2', '--env', 'B='],
      ...['--port', '80/http', '--disk', '7', '--locked'],
    );
    expect(pod).toMatchObject({
      ...{ name: 'a', image: 'busy', args: 'sleep 5', disk: 7, ports: ['80/http'], locked: true },
      env: { A: '1=2', B: '' },
      cpu: { id: 'cpu', vcpuCount: 2, memory: 8 },
    });
  });

  it('takes other fields from a file, which flags override', async () => {
    const { read } = await open();
    const file = writeBody({ name: 'of the file', image: 'busy', cpu: CPU, cloud: 'COMMUNITY' });
    const pod = await read(podsCommands, 'create', '--file', file, '--name', 'of the flag');
    expect(pod).toMatchObject({ name: 'of the flag', cloud: 'COMMUNITY' });
  });

  it('lists them as a table, page by page', async () => {
    const { print, read, world } = await open();
    for (const name of ['a', 'b']) await read(podsCommands, 'create', ...POD, '--name', name);
    await world.settle();
    const [titles, row, more] = (await print(podsCommands, 'list', '--limit', '1')).split('\n');
    expect(titles).toMatch(/^ID +NAME +STATUS +COMPUTE +USD\/H +ENDPOINT +NODE +REASON$/);
    expect(row).toMatch(/^pod_\S+ +b +RUNNING +2 vCPU, 8 GB +0.25 +- +- +-$/);
    expect(more).toMatch(/^next page: --cursor \S+$/);
    const [, , , cursor = ''] = more?.split(' ') ?? [];
    const next = await read(podsCommands, 'list', '--limit', '1', '--cursor', cursor);
    expect(next).toEqual({ pods: [expect.objectContaining({ name: 'a' })] });
  });

  it('acts on a pod, changes, shows and ends it', async () => {
    const { print, read, world } = await open();
    const id = String((await read(podsCommands, 'create', ...POD))['id']);
    await world.settle();
    expect(await print(podsCommands, 'stop', id)).toBe(`${id}  EXITED\n`);
    await world.settle();
    expect(await read(podsCommands, 'start', id)).toMatchObject({ status: 'STARTING' });
    await world.settle();
    expect(await print(podsCommands, 'restart', id)).toBe(`${id}  STARTING\n`);
    await world.settle();
    expect(await read(podsCommands, 'update', id, '--locked')).toMatchObject({ locked: true });
    expect(await read(podsCommands, 'update', id, '--unlocked')).toMatchObject({ locked: false });
    expect(await read(podsCommands, 'logs', id)).toEqual({ id, log: expect.any(String) });
    expect(await print(podsCommands, 'terminate', id)).toBe(`${id}  terminated\n`);
    await world.settle();
    expect(JSON.parse(await print(podsCommands, 'show', id))).toMatchObject({
      status: 'TERMINATED',
    });
  });

  it('take options before and after the command', async () => {
    const { print } = await open();
    expect(await print(podsCommands, '--limit', '1', 'list', '--json')).toBe('{"pods":[]}\n');
    await expect(print(podsCommands, '--limit', 'list')).rejects.toThrow('a command is missing');
  });

  it('prints a note if there are none', async () => {
    const { print } = await open();
    expect(await print(podsCommands, 'list')).toBe('no pods\n');
  });

  it('takes names for IDs, and names flags in refusals', async () => {
    const { print, read } = await open();
    const template = ['--name', 'base', '--image', 'i', '--handler', 'h.ts'];
    const { id } = await read(templatesCommands, 'create', ...template);
    const made = await read(endpointsCommands, 'create', '--name', 'chat', '--template', 'base');
    expect(made).toMatchObject({ name: 'chat', templateId: id });
    expect(await read(endpointsCommands, 'update', 'chat', '--workers-max', '2')).toMatchObject({
      ...{ id: made['id'], workersMax: 2 },
    });
    await expect(print(endpointsCommands, 'update', 'chat', '--template', 'none')).rejects.toThrow(
      '--template (templateId): template "none" not found',
    );
    await expect(print(endpointsCommands, 'update', 'chat', '--workers-min', '9')).rejects.toThrow(
      /--workers-m(in|ax): /,
    );
    await expect(print(endpointsCommands, 'update', 'chat', '--gpu', 'x')).rejects.toThrow(
      '--gpu (gpuTypeIds[0]): GPU type "x" is not in the catalog',
    );
  });

  it('prints a refusal with all of its errors', async () => {
    const { print } = await open();
    await expect(print(podsCommands, 'create', '--name', 'a')).rejects.toThrow(
      /422.*\n {2}--gpu: exactly one of gpu and cpu/,
    );
  });

  it.each([
    [[], 'a command is missing; give one of list, create'],
    [['sing'], 'sing: unknown command'],
    [['stop'], '<id> is missing; give the pod ID'],
    [['list', '--gpu', 'l4'], '--gpu: unknown option'],
    [['update', 'pod_1', '--cpu', 'cpu'], '--cpu: unknown option'],
    [['list', 'pod_1'], 'pod_1: unexpected argument'],
    [['stop', 'pod_1', 'pod_2'], 'pod_2: unexpected argument'],
    [['create'], 'the request body is empty'],
    [['create', '--env', 'A'], '--env: must be NAME=VALUE'],
    [['update', 'pod_1', '--locked', '--unlocked'], 'exclude each other'],
    [['create', '--file', '/nowhere/body.json'], 'cannot be read'],
    [['list', '--url', 'ftp://q'], '--url: the URL must be http or https'],
  ])('is refused for %j', async (args, message) => {
    await expect(runVerb(podsCommands, args)).rejects.toThrow(message);
  });

  it.each([
    ['{', 'is not JSON'],
    ['[]', 'must be a JSON object'],
  ])('is refused for a file of %s', async (text, message) => {
    await expect(runVerb(podsCommands, ['create', '--file', writeBody(text)])).rejects.toThrow(
      message,
    );
  });
});

describe('millrace templates and endpoints', () => {
  it('create, list, change and remove them', async () => {
    const { print, read } = await open();
    const template = await read(
      ...([templatesCommands, 'create', '--name', 't', '--image', 'i'] as const),
      ...['--handler', 'h.ts'],
    );
    expect(template).toMatchObject({ handler: resolve('h.ts') });
    const templateId = String(template['id']);
    const endpoint = await read(
      ...([endpointsCommands, 'create', '--name', 'e', '--template', templateId] as const),
      ...['--workers-max', '4', '--idle-timeout', '9', '--per-worker', '2', '--max-attempts', '1'],
    );
    expect(endpoint).toMatchObject({
      ...{ name: 'e', templateId, workersMin: 0, workersMax: 4, idleTimeout: 9, maxAttempts: 1 },
      scaler: { type: 'REQUEST_COUNT', perWorker: 2 },
    });
    const id = String(endpoint['id']);
    expect(await print(endpointsCommands, 'list')).toMatch(
      new RegExp(`^${id} +e +QUEUE +idle +0 to 4 +1 worker per 2 +- +${templateId}$`, 'm'),
    );
    expect(await read(endpointsCommands, 'update', id, '--queue-delay', '6')).toMatchObject({
      scaler: { type: 'QUEUE_DELAY', seconds: 6 },
    });
    const updated = await read(endpointsCommands, 'update', id, '--max-attempts', '5');
    expect(updated).toMatchObject({ maxAttempts: 5, workersMax: 4 });
    await expect(print(templatesCommands, 'delete', templateId)).rejects.toThrow(/409/);
    expect(await print(endpointsCommands, 'delete', id)).toBe(`${id}  deleted\n`);
    expect(await read(templatesCommands, 'delete', templateId)).toEqual({
      ...{ id: templateId, deleted: true },
    });
  });

  it('deletes the template that deploy made with its endpoint, and no other', async () => {
    const { print, read } = await open();
    const make = async (name: string, body: object): Promise<string> => {
      const own = ['create', '--name', name, '--image', 'i', '--args', 'sleep 1'];
      const templateId = String((await read(templatesCommands, ...own))['id']);
      const file = writeBody({ name: 'e', templateId, ...body });
      await read(endpointsCommands, 'create', '--file', file);
      return templateId;
    };
    const made = await make('e', { source: 'VERSION' });
    expect(await print(endpointsCommands, 'delete', 'e', '--yes')).toBe(
      `e  deleted\n${made}  deleted\n`,
    );
    const kept = [await make('e', {})];
    await read(endpointsCommands, 'delete', 'e');
    kept.unshift(await make('other', { source: 'VERSION' }));
    await read(endpointsCommands, 'delete', 'e');
    const { templates } = await read(templatesCommands, 'list');
    expect(templates).toMatchObject(kept.map((id) => ({ id })));
  });

  it('keeps a template that another endpoint uses', async () => {
    const { read } = await open();
    const templateId = (await read(templatesCommands, 'create', '--name', 'e', '--image', 'i'))[
      'id'
    ];
    for (const name of ['e', 'f']) {
      const file = writeBody({ name, templateId, source: 'VERSION' });
      await read(endpointsCommands, 'create', '--file', file);
    }
    expect(await read(endpointsCommands, 'delete', 'e')).toEqual({ id: 'e', deleted: true });
    expect(await read(endpointsCommands, 'delete', 'f')).toEqual({ id: 'f', deleted: true });
  });

  it('refuse two scalers at once', async () => {
    const both = ['create', '--name', 'e', '--queue-delay', '4', '--per-worker', '2'];
    await expect(runVerb(endpointsCommands, both)).rejects.toThrow('exclude each other');
  });
});

describe('millrace catalog', () => {
  it('shows the available types', async () => {
    const { print, read } = await open();
    expect(await print(catalogCommands, 'gpus')).toMatch(/^no gpus: .*`millrace doctor`/);
    expect(await print(catalogCommands, 'cpus')).toMatch(/^ID +NAME +VCPUS +MAX MEMORY GB/);
    expect(await read(catalogCommands, 'cpus')).toEqual({ cpus: [expect.any(Object)] });
  });
});
