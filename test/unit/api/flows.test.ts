// Flows and jobs with parents over HTTP: the request's form, rights, and the typed client.
import { describe, expect, it } from 'vitest';
import { createClient, type FlowRequest } from '../../../src/client.ts';
import { readJson, startPlatform, submitJob, takeJob } from '../../support/api/platform.ts';

const FLOW: FlowRequest = {
  jobs: [
    { name: 'a', input: { n: 1 } },
    { name: 'b', input: { n: 2 }, after: ['a'] },
    { name: 'c', input: { n: 3 }, after: [{ job: 'b', onFailure: 'skip' }] },
  ],
};

describe('POST /v2/:endpoint/flows', () => {
  it('queues the jobs, and shows their states with the typed client', async () => {
    const platform = await startPlatform();
    const { admin: key, url } = platform;
    const { flows } = createClient({ url, key, endpoint: 'demo' });
    const { id, jobs } = await flows.run(FLOW);
    expect(jobs.map(({ endpoint, name }) => [endpoint, name])).toEqual([
      ...[
        ['demo', 'a'],
        ['demo', 'b'],
        ['demo', 'c'],
      ],
    ]);
    const job = await takeJob(platform);
    expect(job.id).toBe(jobs[0]?.id);
    const details = await readJson(await platform.call(`/v2/demo/jobs/${job.id}`));
    expect(details).toMatchObject({ flow: { endpoint: 'demo', id } });
    expect(await flows.show(id)).toMatchObject({
      status: 'RUNNING',
      jobs: [
        { name: 'a', state: 'IN_PROGRESS', after: [] },
        { name: 'b', state: 'WAITING', after: [{ job: 'a', onFailure: 'fail' }] },
        { name: 'c', state: 'WAITING', after: [{ job: 'b', onFailure: 'skip' }] },
      ],
    });
    await job.complete('{}');
    expect(await flows.cancel(id, { jobs: ['b'] })).toEqual({ changed: 1 });
    expect(await flows.list()).toMatchObject({
      flows: [{ id, status: 'CANCELLED', counts: { completed: 1, cancelled: 1, skipped: 1 } }],
    });
    // CANCELLED jobs stay so, and their children too.
    await expect(flows.retry(id)).rejects.toMatchObject({ status: 409 });
  });

  it('counts the flows that have not ended in the metrics', async () => {
    const platform = await startPlatform();
    const { flows } = createClient({ url: platform.url, key: platform.admin, endpoint: 'demo' });
    const count = async () =>
      (await (await platform.call('/metrics')).text()).match(/^millrace_flows\{.*/gm);
    expect(await count()).toBeNull();
    const [{ id }] = await Promise.all([flows.run(FLOW), flows.run(FLOW)]);
    expect(await count()).toEqual(['millrace_flows{endpoint="demo"} 2']);
    await flows.cancel(id);
    expect(await count()).toEqual(['millrace_flows{endpoint="demo"} 1']);
  });

  it.each([
    ['{"jobs":[]}', 422, 'jobs: must have at least 1 job'],
    ['{"jobs":[{"input":{}}]}', 422, 'jobs[0].name'],
    ['{"jobs":[{"name":"a b","input":{}}]}', 422, 'jobs[0].name'],
    ['{"jobs":[{"name":"a","input":{}}],"x":1}', 422, 'x: is unknown'],
    ['{"jobs":[{"name":"a","input":{},"after":["x"]}]}', 422, 'jobs[0].after[0]: no job of'],
    ['{"jobs":[{"name":"a","input":{},"webhook":"ftp://x"}]}', 422, 'jobs[0].webhook'],
    ['{"jobs":[{"name":"a","input":{},"endpoint":"nowhere"}]}', 404, undefined],
  ])('refuses %s with %i', async (body, status, path) => {
    const platform = await startPlatform();
    const response = await platform.post('/v2/demo/flows', body);
    expect(response.status).toBe(status);
    const { errors } = await readJson(response);
    expect(errors).toEqual(path && [expect.stringContaining(path)]);
    expect(await (await platform.call('/v2/demo/jobs')).json()).toEqual({ jobs: [] });
  });

  it('takes the idempotency key as a header, and refuses another body with it', async () => {
    const platform = await startPlatform();
    const headers = { 'idempotency-key': 'k' };
    const submit = async (flow: object) => platform.post('/v2/demo/flows', flow, { headers });
    const first = await readJson(await submit(FLOW));
    expect(await readJson(await submit(FLOW))).toEqual(first);
    expect((await submit({ jobs: [{ name: 'a', input: {} }] })).status).toBe(409);
  });

  it('needs jobs:write for each endpoint of the flow', async () => {
    const platform = await startPlatform({ access: 'keys' });
    await platform.endpoints.ensureEndpoint('second');
    const { key } = await platform.keys.issue({
      ...{ name: 'k', userId: 'owner', scopes: ['jobs:write:demo', 'jobs:read:demo'] },
    });
    const headers = { authorization: `Bearer ${key}` };
    const jobs = [FLOW.jobs[0], { name: 'z', input: {}, endpoint: 'second' }];
    const refused = await platform.post('/v2/demo/flows', { jobs }, { headers });
    expect(refused.status).toBe(403);
    expect((await platform.post('/v2/demo/flows', FLOW, { headers })).status).toBe(200);
    // Nor does the key change the flow of another key.
    const { id } = await readJson(await platform.post('/v2/demo/flows', { jobs }));
    for (const verb of ['cancel', 'retry']) {
      const changed = await platform.post(`/v2/demo/flows/${id}/${verb}`, '', { headers });
      expect(changed.status).toBe(403);
    }
  });
});

describe('after', () => {
  it('lets a job wait, and shows both in their details', async () => {
    const platform = await startPlatform();
    const parent = await submitJob(platform);
    const child = await submitJob(platform, { input: {}, after: [parent] });
    const details = async (id: string) => readJson(await platform.call(`/v2/demo/jobs/${id}`));
    expect(await details(child)).toMatchObject({
      parents: [{ endpoint: 'demo', id: parent, onFailure: 'fail' }],
      waitReason: { code: 'waits_for_parent' },
    });
    expect(await details(parent)).toMatchObject({ children: [{ endpoint: 'demo', id: child }] });
    const job = await takeJob(platform);
    await job.complete('{}');
    expect((await takeJob(platform)).id).toBe(child);
  });

  it('is refused with the path of a parent that is none, alone and among several jobs', async () => {
    const platform = await startPlatform();
    const body = { input: {}, after: [{ id: 'nobody', endpoint: 'demo' }] };
    const alone = await platform.post('/v2/demo/run', body);
    expect(alone.status).toBe(422);
    expect((await readJson(alone))['errors']).toEqual([
      'after[0]: job nobody of endpoint demo not found or expired',
    ]);
    const several = await platform.post('/v2/demo/jobs', { jobs: [body, { input: {} }] });
    expect(await readJson(several)).toMatchObject({
      jobs: [{ error: { code: 'invalid' } }, { status: 'IN_QUEUE' }],
    });
  });

  it('needs jobs:read for the endpoint of the parent', async () => {
    const platform = await startPlatform({ access: 'keys' });
    await platform.endpoints.ensureEndpoint('second');
    const { key } = await platform.keys.issue({
      ...{ name: 'k', userId: 'owner', scopes: ['jobs:write:demo'] },
    });
    const headers = { authorization: `Bearer ${key}` };
    const body = { input: {}, after: [{ id: 'x', endpoint: 'second' }] };
    expect((await platform.post('/v2/demo/run', body, { headers })).status).toBe(403);
  });
});
