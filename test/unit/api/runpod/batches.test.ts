// RunPod's batches: drafts, their requests, and what becomes of them.
import { describe, expect, it } from 'vitest';
import { type Platform, readJson, startPlatform, takeJob } from '../../../support/api/platform.ts';
import { until } from '../../../support/until.ts';

const PATH = '/runpod/v2/demo/batch';
const requests = (...numbers: number[]) => numbers.map((n) => ({ input: { n } }));

async function create({ post }: Platform, ...numbers: number[]): Promise<string> {
  const created = await readJson(await post(PATH, requests(...numbers)));
  expect(created['status']).toBe('DRAFT');
  return `${PATH}/${String(created['id'])}`;
}

describe('a batch of RunPod', () => {
  it('is a draft until it is finalized, then runs each request once', async () => {
    const platform = await startPlatform();
    const { call, post } = platform;
    const read = async (path: string) => readJson(await call(path));
    const path = await create(platform);
    const added = await post(`${path}/requests`, { requests: requests(1, 2) });
    expect(await readJson(added)).toMatchObject({ status: 'DRAFT', requestTotal: 2 });
    await post(`${path}/requests`, { requests: requests(3) });
    expect(await read(path)).toMatchObject({ status: 'DRAFT', requestTotal: 3 });
    const finalized = await post(`${path}/finalize`, {});
    expect(await readJson(finalized)).toMatchObject({ status: 'FINALIZED', requestTotal: 3 });
    expect((await post(`${path}/requests`, { requests: requests(4) })).status).toBe(400);
    for (const n of [1, 2, 3]) {
      const job = await takeJob(platform);
      expect(JSON.parse(job.input.toString())).toEqual({ n });
      await (n === 2 ? job.fail('never') : job.complete(`${n * n}`));
    }
    const ended = await until(async () => {
      const batch = await read(path);
      return Number(batch['requestCompleted']) + Number(batch['requestFailed']) === 3 && batch;
    });
    expect(ended).toMatchObject({ status: 'FINALIZED', requestCompleted: 2, requestFailed: 1 });
    const page = await read(`${path}/requests?offset=1&limit=1`);
    expect(page).toMatchObject({ total: 3, offset: 1, limit: 1, hasMore: true });
    expect(page['requests']).toMatchObject([{ id: 'req_3', status: 'COMPLETED', output: 9 }]);
    const last = await read(`${path}/requests?offset=2`);
    expect(last).toMatchObject({ hasMore: false, requests: [{ id: 'req_2', status: 'FAILED' }] });
  });

  it('has pages of at most 8 MB, and refuses one that begins with a larger result than 4 MB', async () => {
    const platform = await startPlatform();
    const path = await create(platform, 1, 2, 3, 4);
    await platform.post(`${path}/finalize`, {});
    for (const megabytes of [3.5, 3.5, 3.5, 4.5]) {
      const job = await takeJob(platform);
      await job.complete(JSON.stringify('x'.repeat(megabytes * 1_048_576)));
    }
    await until(async () => {
      const batch = await readJson(await platform.call(path));
      return batch['requestCompleted'] === 4;
    });
    const ids = async (query: string) => {
      const page = await readJson(await platform.call(`${path}/requests?${query}`));
      const found = page['requests'];
      return Array.isArray(found) ? found.map(({ id }) => id) : page['error'];
    };
    expect(await ids('offset=0')).toEqual(['req_1', 'req_2']);
    expect(await ids('offset=2')).toEqual(['req_3']);
    expect(await ids('offset=2&limit=1')).toEqual(['req_3']);
    expect(await ids('offset=3')).toMatch(/offset 3 has more than 4194304 bytes/);
  });

  it('is cancelled, and listed', async () => {
    const platform = await startPlatform();
    const path = await create(platform, 1, 2);
    await platform.post(`${path}/finalize`, {});
    const cancelled = await readJson(await platform.post(`${path}/cancel`, {}));
    expect(cancelled).toMatchObject({ status: 'CANCELLED' });
    const { batches } = await readJson(await platform.call(PATH));
    expect(batches).toMatchObject([{ status: 'CANCELLED', requestTotal: 2 }]);
  });

  it('is refused with a request without an input, by its place', async () => {
    const { post } = await startPlatform();
    const response = await post(PATH, [{ input: 1 }, {}]);
    expect(response.status).toBe(400);
    expect((await readJson(response))['error']).toMatch(/\[1\]\.input/);
  });
});
