// Endpoints whose workers the platform starts itself: real platform, real workers, processes all of them.
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { PodRecord } from '../../src/wire/resources/pod.ts';
import type { DecisionRecord } from '../../src/wire/resources/scaling.ts';
import { fixture, PlatformProcess } from '../support/processes.ts';
import { until } from '../support/until.ts';

const JOBS = 100;
const MAX = 3;

let platform: PlatformProcess;

beforeAll(async () => {
  platform = await PlatformProcess.start({ endpoints: [], args: ['--engine', 'process'] });
});

afterEach(async () => {
  for (const { id } of await listEndpoints()) {
    await platform.fetch(`/v1/endpoints/${id}`, { method: 'DELETE' });
  }
  await until(async () => (await countContainers()) === 0);
});

afterAll(() => platform.close());

/** Also those that are just being ended. */
async function countContainers(): Promise<number> {
  return (await readdir(join(platform.folder, 'data', 'pods', 'containers'))).length;
}

async function read<T>(response: Response): Promise<T> {
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return JSON.parse(await response.text());
}

async function listEndpoints(): Promise<{ id: string }[]> {
  const { endpoints } = await read<{ endpoints: { id: string }[] }>(
    await platform.fetch('/v1/endpoints'),
  );
  return endpoints;
}

/** Those that are not on their way out. */
async function listPods(): Promise<PodRecord[]> {
  const { pods } = await read<{ pods: PodRecord[] }>(await platform.fetch('/v2/pods?limit=1000'));
  return pods.filter(({ status }) => status !== 'TERMINATED');
}

async function createTemplate(handler: string, env: Record<string, string>): Promise<string> {
  const creation = { name: 'worker', image: 'none', handler: fixture(handler), env };
  const { id } = await read<{ id: string }>(await platform.post('/v1/templates', creation));
  return id;
}

async function createEndpoint(templateId: string): Promise<string> {
  const scaler = { type: 'REQUEST_COUNT', perWorker: 20 };
  const creation = { name: 'jobs', templateId, workersMax: MAX, idleTimeout: 1, scaler };
  const { id } = await read<{ id: string }>(await platform.post('/v1/endpoints', creation));
  return id;
}

function patch(path: string, body: object): Promise<Response> {
  const headers = { 'content-type': 'application/json' };
  return platform.fetch(path, { method: 'PATCH', headers, body: JSON.stringify(body) });
}

async function submitJobs(endpoint: string, ms: number): Promise<string[]> {
  const all = Array.from({ length: JOBS }, async (_, n) => {
    const { id } = await read<{ id: string }>(
      await platform.post(`/v2/${endpoint}/run`, { input: { n, ms } }),
    );
    return id;
  });
  return Promise.all(all);
}

async function countJobs(endpoint: string) {
  const { jobs } = await read<{ jobs: Record<string, number> }>(
    await platform.fetch(`/v2/${endpoint}/health`),
  );
  return jobs;
}

async function readTags(endpoint: string, ids: readonly string[]): Promise<string[]> {
  const all = ids.map(async (id) => {
    const job = await read<{ output?: { tag: string } }>(
      await platform.fetch(`/v2/${endpoint}/status/${id}`),
    );
    return job.output?.tag ?? 'none';
  });
  return Promise.all(all);
}

async function explain(endpoint: string): Promise<DecisionRecord[]> {
  const { decisions } = await read<{ decisions: DecisionRecord[] }>(
    await platform.fetch(`/v1/endpoints/${endpoint}/scaler?limit=1000`),
  );
  return decisions;
}

const done = async (endpoint: string) => ((await countJobs(endpoint))['completed'] ?? 0) >= JOBS;

/** Workers at one time, those that leave included, at any decision. */
function findMost(decisions: readonly DecisionRecord[]): number {
  return Math.max(...decisions.map(({ input, start }) => input.workers.length + start));
}

describe('an endpoint on the process engine', () => {
  it('scales from zero to its maximum for 100 jobs, and back to zero', async () => {
    const endpoint = await createEndpoint(await createTemplate('tagged.ts', { TAG: 'a' }));
    expect(await listPods()).toEqual([]);
    const ids = await submitJobs(endpoint, 50);
    await until(() => done(endpoint));
    await until(async () => (await listPods()).length === 0);
    expect(await countJobs(endpoint)).toMatchObject({ completed: JOBS, failed: 0, retried: 0 });
    expect(new Set(await readTags(endpoint, ids))).toEqual(new Set(['a']));
    expect(findMost(await explain(endpoint))).toBe(MAX);
  });

  it('replaces its workers during 100 jobs, and loses none', async () => {
    const template = await createTemplate('tagged.ts', { TAG: 'old' });
    const endpoint = await createEndpoint(template);
    const ids = await submitJobs(endpoint, 100);
    await until(async () => ((await countJobs(endpoint))['completed'] ?? 0) >= 10);
    await read(await patch(`/v1/templates/${template}`, { env: { TAG: 'new' } }));
    await until(() => done(endpoint));
    expect(await countJobs(endpoint)).toMatchObject({ completed: JOBS, failed: 0, retried: 0 });
    const tags = new Set(await readTags(endpoint, ids));
    expect(tags).toEqual(new Set(['old', 'new']));
    expect(findMost(await explain(endpoint))).toBeLessThanOrEqual(MAX + 1);
    // The last job may have been an old worker's, which leaves behind it.
    await until(async () => (await listPods()).every(({ env }) => env['TAG'] === 'new'));
  });

  it('backs off from a handler that cannot be loaded, and recovers when it is fixed', async () => {
    const template = await createTemplate('broken.ts', {});
    const endpoint = await createEndpoint(template);
    await read(await platform.post(`/v2/${endpoint}/run`, { input: { n: 1, ms: 0 } }));
    await until(async () => {
      const [last] = await explain(endpoint);
      return last?.cause === 'crashed' && last.input.crashes.streak >= 2;
    });
    const [last] = await explain(endpoint);
    expect(last?.reason).toContain('it exited with code');
    expect(last?.reason).toContain('this handler is broken');
    await read(await patch(`/v1/templates/${template}`, { handler: fixture('tagged.ts') }));
    await until(async () => (await countJobs(endpoint))['completed'] === 1);
  });

  it('gives its workers a network volume: one writes a file, and the next reads it', async () => {
    const volume = { name: 'notes', size: 1 };
    const { id } = await read<{ id: string }>(await platform.post('/v1/network-volumes', volume));
    const template = await createTemplate('shared-notes.ts', {});
    const endpoint = await createEndpoint(template);
    await read(await patch(`/v1/endpoints/${endpoint}`, { networkVolumeId: 'notes' }));
    const run = async (input: object) => {
      const path = `/v2/${endpoint}/runsync?wait=300000`;
      return read<{ output: object }>(await platform.post(path, { input }));
    };
    expect((await run({ note: 'first' })).output).toEqual({ notes: 'first ' });
    await until(async () => (await listPods()).length === 0);
    expect((await run({})).output).toEqual({ notes: 'first ' });
    const refused = await platform.fetch(`/v1/network-volumes/${id}`, { method: 'DELETE' });
    expect(refused.status).toBe(409);
    expect(await refused.text()).toContain(endpoint);
    await read(await patch(`/v1/endpoints/${endpoint}`, { networkVolumeId: null }));
    const remove = () => platform.fetch(`/v1/network-volumes/${id}`, { method: 'DELETE' });
    await until(async () => (await remove()).status === 204);
  });

  it('loses none of 100 jobs and starts no extra worker when the platform is killed', async () => {
    const endpoint = await createEndpoint(await createTemplate('tagged.ts', { TAG: 'a' }));
    const ids = await submitJobs(endpoint, 100);
    for (const completed of [5, 30, 60]) {
      await until(async () => ((await countJobs(endpoint))['completed'] ?? 0) >= completed);
      await platform.kill();
      await platform.restart();
    }
    await until(() => done(endpoint));
    expect(await countJobs(endpoint)).toMatchObject({ completed: JOBS, failed: 0, retried: 0 });
    expect(new Set(await readTags(endpoint, ids))).toEqual(new Set(['a']));
    expect(findMost(await explain(endpoint))).toBeLessThanOrEqual(MAX);
    await until(async () => (await listPods()).length === 0);
  });
});
