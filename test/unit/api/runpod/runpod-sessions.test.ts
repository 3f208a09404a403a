// Which RunPod workers the platform keeps in memory.
import { expect, it, onTestFinished } from 'vitest';
import { RunPodSessions } from '../../../../src/api/runpod/runpod-sessions.ts';
import { letOthersRun } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ENDPOINT, Platform } from '../../../support/queue-platform.ts';

async function openSessions() {
  const platform = new Platform();
  await platform.start();
  const { clock, queue } = platform;
  const linkTo = (id: string) => queue.link(id);
  onTestFinished(() => platform.close());
  const open = () => {
    const sessions = new RunPodSessions({ linkTo, queue, clock, log: silentLog });
    onTestFinished(() => sessions.close());
    return sessions;
  };
  return { open, platform, sessions: open() };
}

it('drops a worker whose hello fails, and passes the error on', async () => {
  const { platform, sessions } = await openSessions();
  await platform.store.close();
  const session = sessions.use(ENDPOINT, 'w', null);
  await expect(session.open()).rejects.toThrow('closed');
  await letOthersRun();
  expect(sessions.find(ENDPOINT, 'w')).toBeUndefined();
});

it('keeps a worker whose first request is refused until it falls silent', async () => {
  const { platform, sessions } = await openSessions();
  sessions.use(ENDPOINT, 'w', null);
  await letOthersRun();
  expect(sessions.find(ENDPOINT, 'w')).toBeDefined();
  await platform.clock.advance(120_000);
  expect(sessions.find(ENDPOINT, 'w')).toBeUndefined();
});

it('finds an attempt after a restart for its own worker alone', async () => {
  const { open, platform } = await openSessions();
  const before = open();
  const id = await platform.submit();
  const isNew = { max: 1, isIdle: true, isNew: true, signal: new AbortController().signal };
  const [taken] = await before.use(ENDPOINT, 'w1', null).take(isNew);
  const name = taken?.held.name ?? '';
  before.close();
  const after = open();
  const locate = (workerId: string) =>
    after.locate({ endpointId: ENDPOINT, workerId, podId: null }, name);
  expect(await locate('w2')).toBeUndefined();
  expect(await locate('w1')).toMatchObject({ held: { ref: { jobId: id } } });
});
