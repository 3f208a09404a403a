// Batches in Millrace's own form, with the typed client, and what each scope allows.
import { describe, expect, it } from 'vitest';
import { createClient } from '../../../src/client.ts';
import { type Platform, startPlatform, takeJob } from '../../support/api/platform.ts';
import { until } from '../../support/until.ts';

const LINES = '{"id":"a","input":{"n":1}}\n{"id":"b","input":{"n":2}}\n';

const open = ({ admin, url }: Platform) => createClient({ url, key: admin, endpoint: 'demo' });

async function readText(lines: ReadableStream<Uint8Array>): Promise<string> {
  return new Response(lines).text();
}

describe('a batch', () => {
  it('is submitted, listed, run and read with the typed client', async () => {
    const platform = await startPlatform();
    const { batches } = open(platform);
    const submitted = await batches.submit(LINES, { window: 3_600_000, name: 'in.jsonl' });
    expect(submitted).toMatchObject({ state: 'running', total: 2, completed: 0, failed: 0 });
    expect(submitted.expiresAt - submitted.createdAt).toBe(3_600_000);
    await expect(batches.results(submitted.id)).rejects.toThrow(/has not ended/);
    const first = await takeJob(platform);
    expect(JSON.parse(first.input.toString())).toEqual({ n: 1 });
    await first.complete('{"n":2}');
    await (await takeJob(platform)).fail('never');
    const ended = await until(async () => {
      const batch = await batches.show(submitted.id);
      return batch.endedAt !== null && batch;
    });
    expect(ended).toMatchObject({ state: 'completed', completed: 1, failed: 1, live: 0 });
    expect((await batches.list()).batches).toEqual([ended]);
    const results = JSON.parse(await readText(await batches.results(submitted.id)));
    expect(results).toMatchObject({ id: 'a', job: { status: 'COMPLETED', output: { n: 2 } } });
    const failures = await readText(await batches.results(submitted.id, { failed: true }));
    expect(JSON.parse(failures)).toMatchObject({ id: 'b', job: { status: 'FAILED' } });
  });

  it('is counted by its state in the metrics, and its lines by their outcome', async () => {
    const platform = await startPlatform();
    const { batches } = open(platform);
    const count = async () =>
      (await (await platform.call('/metrics')).text()).match(/^millrace_batch\w*\{.*[1-9]$/gm);
    expect(await count()).toBeNull();
    const { id } = await batches.submit(LINES);
    expect(await count()).toEqual(['millrace_batches{endpoint="demo",state="running"} 1']);
    await (await takeJob(platform)).complete('1');
    await until(async () => (await batches.show(id)).completed === 1);
    await batches.cancel(id);
    await until(async () => (await batches.show(id)).state === 'cancelled');
    expect(await count()).toEqual([
      'millrace_batch_lines_total{endpoint="demo",outcome="completed"} 1',
      'millrace_batch_lines_total{endpoint="demo",outcome="failed"} 1',
    ]);
    await platform.endpoints.remove('owner', 'demo');
    await expect.poll(count).toBeNull();
  });

  it('is cancelled, and has an empty file of results', async () => {
    const { batches } = open(await startPlatform());
    const { id } = await batches.submit(LINES);
    await batches.cancel(id);
    await until(async () => (await batches.show(id)).state === 'cancelled');
    expect(await readText(await batches.results(id))).toBe('');
    expect(
      (await readText(await batches.results(id, { failed: true }))).trim().split('\n'),
    ).toEqual(
      expect.arrayContaining([expect.stringMatching(/"id":"a","error":{"code":"batch_cancelled"/)]),
    );
  });

  it.each([
    ['{"id":"a"}', /line 1: input/],
    [`${LINES}{"id":"a","input":{}}`, /line 3: id: "a" names another line/],
    [`${LINES}{"id":"c","input":[]}`, /line 3: input/],
    ['', /the file has no lines/],
  ])('is refused with the lines %j', async (lines, problem) => {
    const { batches } = open(await startPlatform());
    await expect(batches.submit(lines)).rejects.toThrow(problem);
    expect((await batches.list()).batches).toEqual([]);
  });

  it('needs jobs:write to be made and cancelled, and jobs:read to be read', async () => {
    const platform = await startPlatform();
    const { id } = await open(platform).batches.submit(LINES);
    const { key } = await platform.keys.issue({
      name: 'r',
      scopes: ['jobs:read'],
      userId: 'owner',
    });
    const { batches } = createClient({ url: platform.url, key, endpoint: 'demo' });
    expect(await batches.show(id)).toMatchObject({ id });
    await expect(batches.submit(LINES)).rejects.toMatchObject({ status: 403 });
    await expect(batches.cancel(id)).rejects.toMatchObject({ status: 403 });
    const other = await platform.keys.issue({ name: 'o', scopes: ['admin'], userId: 'other' });
    const foreign = createClient({ url: platform.url, key: other.key, endpoint: 'demo' });
    await expect(foreign.batches.show(id)).rejects.toMatchObject({ status: 404 });
  });
});
