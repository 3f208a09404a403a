// Workers that share one ID, and a worker that looks like two because it has reconnected.
import { expect, it } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import {
  type Platform,
  readJson,
  startPlatform,
  submitJob,
} from '../../../support/api/platform.ts';
import { ask, readRecord, take } from '../../../support/api/python-calls.ts';

const PING_MS = 1_000;
const IDLE = '?&job_in_progress=0';
const LITERAL = '$RUNPOD_POD_ID';

async function start() {
  const clock = new ManualClock();
  return { clock, platform: await startPlatform({ clock }) };
}

const ping = (platform: Platform, names: readonly unknown[] = [], worker = 'pod-1') =>
  ask(platform, `ping/${worker}?every=${PING_MS}&job_id=${names.join(',')}`);

const attemptOf = async (platform: Platform, id: string) =>
  (await readRecord(platform, id))['attempt'];

/** Takes with the words of a worker that runs no job. Resolves with the job, if there is one. */
async function pollIdly(platform: Platform) {
  const answer = await ask(platform, `job-take/pod-1${IDLE}`).catch(() => undefined);
  return answer?.status === 200 ? readJson(answer) : undefined;
}

/** A worker whose connection broke asks again while its old take is still open. */
async function overlapTakes(platform: Platform) {
  const takes = [pollIdly(platform), pollIdly(platform)];
  await expect.poll(() => platform.logged()).toContain('violates the protocol');
  const first = await submitJob(platform);
  await expect.poll(() => attemptOf(platform, first)).toBe(1);
  return { first, takes };
}

it('runs a job again that went to the take of a broken connection, after three pings', async () => {
  const { clock, platform } = await start();
  const { first, takes } = await overlapTakes(platform);

  for (let n = 0; n < 6; n += 1) {
    await ping(platform);
    await clock.advance(PING_MS);
  }

  expect(await Promise.all(takes)).toMatchObject([{ id: first }, { id: `${first}-a2` }]);
});

it('counts a worker that has reconnected as one again after three pings', async () => {
  const { clock, platform } = await start();
  const { first, takes } = await overlapTakes(platform);
  const second = await submitJob(platform);
  await Promise.all(takes);
  for (const id of [first, second]) {
    await ask(platform, `job-done/pod-1/${id}?`, { method: 'POST', body: '{"output": 1}' });
  }
  await clock.advance(3 * PING_MS);
  await ping(platform);

  const dropped = await submitJob(platform);
  expect(await take(platform)).toMatchObject({ id: dropped });
  await ping(platform, [dropped]);

  void pollIdly(platform);
  await expect.poll(() => attemptOf(platform, dropped)).toBe(2);
});

it('counts a worker without pings that has reconnected as one again after thirty seconds', async () => {
  const { clock, platform } = await start();
  const { first } = await overlapTakes(platform);
  // The second take ends without a job.
  await clock.advance(30_000);

  void pollIdly(platform);

  await expect.poll(() => attemptOf(platform, first)).toBe(2);
});

it('leaves a job with one of two workers with one ID while its pings name the job', async () => {
  const { clock, platform } = await start();
  const { first, takes } = await overlapTakes(platform);
  const second = await submitJob(platform);
  await Promise.all(takes);
  await ask(platform, `job-done/pod-1/${second}?`, { method: 'POST', body: '{"output": 1}' });

  for (let n = 0; n < 6; n += 1) {
    const gone = new AbortController();
    const idle = ask(platform, `job-take/pod-1${IDLE}`, { signal: gone.signal });
    await ping(platform, [first]);
    await ping(platform);
    await clock.advance(PING_MS);
    gone.abort();
    await idle.catch(() => {});
  }

  expect(await readRecord(platform, first)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
});

it('leaves the jobs of two workers with one ID with them when a third asks for a job', async () => {
  const { clock, platform } = await start();
  const { first, takes } = await overlapTakes(platform);
  const second = await submitJob(platform);
  await Promise.all(takes);
  for (let n = 0; n < 4; n += 1) {
    await ping(platform, [first]);
    await ping(platform, [second]);
    await clock.advance(PING_MS);
  }
  const third = await submitJob(platform);
  expect(await pollIdly(platform)).toMatchObject({ id: third });
  for (const id of [first, second]) {
    expect(await readRecord(platform, id)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
  }
});

it('leaves a job with a worker with the literal ID when another asks for a job', async () => {
  const { platform } = await start();
  const [first, second] = [await submitJob(platform), await submitJob(platform)];
  for (const id of [first, second]) {
    const answer = await ask(platform, `job-take/${LITERAL}${IDLE}`);
    expect(await readJson(answer)).toMatchObject({ id });
  }
  expect(await readRecord(platform, first)).toMatchObject({ status: 'IN_PROGRESS', attempt: 1 });
});

it('loses the job of a dead worker although others with its literal ID live', async () => {
  const { clock, platform } = await start();
  const ids = [await submitJob(platform), await submitJob(platform)];
  const [dead, alive] = await Promise.all(
    ids.map(async () => (await readJson(await ask(platform, `job-take/${LITERAL}${IDLE}`)))['id']),
  );
  await ping(platform, [dead], 'pod-dead');

  for (let n = 0; n < 4; n += 1) {
    await ping(platform, [alive], 'pod-alive');
    await clock.advance(PING_MS);
  }

  expect(await readRecord(platform, String(dead))).toMatchObject({ status: 'IN_QUEUE' });
  expect(await readRecord(platform, String(alive))).toMatchObject({ status: 'IN_PROGRESS' });
});
