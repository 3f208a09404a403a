// Streams of jobs that came by RunPod's API and are run by its workers, over attempts that fail.
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { type Platform, readJson, startPlatform } from '../../../support/api/platform.ts';
import { poll, send, take } from '../../../support/api/python-calls.ts';

const BASE = '/runpod/v2/demo';
const FAILURE = '{"error": "handler: no \\ntraceback: Traceback (most recent call last): x"}';

const read = async (platform: Platform, path: string) =>
  readJson(await platform.call(`${BASE}/${path}`));

async function submit(platform: Platform): Promise<string> {
  return String((await readJson(await platform.post(`${BASE}/run`, { input: {} })))['id']);
}

const stream = (platform: Platform, name: unknown, output: unknown) =>
  send(
    platform,
    `job-stream/pod-1/${name}?&isStream=false`,
    `{"output": ${JSON.stringify(output)}}`,
  );

const done = (platform: Platform, name: unknown, body: string) =>
  send(platform, `job-done/pod-1/${name}?&isStream=true`, body);

describe("a job of RunPod's API whose handler fails", () => {
  it('is not retried once a client has received a chunk, and its stream ends', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const { id: name } = await take(platform);
    await stream(platform, name, 1);
    expect(await read(platform, `stream/${id}`)).toMatchObject({ stream: [{ output: 1 }] });
    await stream(platform, name, 2);
    await done(platform, name, FAILURE);

    expect(await read(platform, `status/${id}`)).toMatchObject({ status: 'FAILED' });
    expect(await read(platform, `stream/${id}`)).toMatchObject({
      ...{ status: 'FAILED', stream: [{ output: 2 }] },
    });
    expect(await read(platform, `stream/${id}`)).toEqual({ status: 'FAILED', stream: [] });
  });

  it('is not retried while a client is receiving its chunks', async () => {
    const platform = await startPlatform();
    const id = await submit(platform);
    const { id: name } = await take(platform);
    for (let n = 0; n < 8; n++) await stream(platform, name, 'x'.repeat(900_000));
    const asked = request(`${platform.url}${BASE}/stream/${id}`, {
      headers: { authorization: platform.admin },
    }).end();
    const [answer]: IncomingMessage[] = await once(asked, 'response');

    await done(platform, name, FAILURE);

    expect(await read(platform, `status/${id}`)).toMatchObject({ status: 'FAILED' });
    answer?.destroy();
  });

  it('is retried before that and shows no chunk of the failed attempt', async () => {
    const clock = new ManualClock();
    const platform = await startPlatform({ clock });
    const id = await submit(platform);
    const { id: first } = await take(platform);
    await stream(platform, first, 'of the first attempt');
    await done(platform, first, FAILURE);

    let isAnswered = false;
    const waiting = read(platform, `stream/${id}?wait=1000`).finally(() => {
      isAnswered = true;
    });
    while (!isAnswered) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      await clock.advance(200);
    }
    expect(await waiting).toMatchObject({ stream: [] });
    await clock.advance(1_200);
    const second = await readJson(
      await poll(platform, 'job-take/pod-1?&job_in_progress=0', String(first)),
    );
    await stream(platform, second['id'], 'of the second');
    await done(platform, second['id'], '{"output": []}');

    expect(await read(platform, `stream/${id}`)).toMatchObject({
      status: 'COMPLETED',
      stream: [{ output: 'of the second' }],
    });
  });
});
