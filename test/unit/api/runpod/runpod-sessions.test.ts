// Which RunPod workers the platform keeps in memory.
import { expect, it, onTestFinished } from 'vitest';
import { RunPodSessions } from '../../../../src/api/runpod/runpod-sessions.ts';
import { letOthersRun } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ENDPOINT, Platform } from '../../../conformance/platform.ts';

async function openSessions() {
  const platform = new Platform();
  await platform.start();
  const { clock, queue } = platform;
  const sessions = new RunPodSessions({
    linkTo: (id) => queue.link(id),
    queue,
    clock,
    log: silentLog,
  });
  onTestFinished(async () => {
    sessions.close();
    await platform.close();
  });
  return { platform, sessions };
}

it('a worker whose hello fails is not kept, and gets the error', async () => {
  const { platform, sessions } = await openSessions();
  await platform.store.close();
  const session = sessions.use(ENDPOINT, 'w', null);
  await expect(session.open()).rejects.toThrow('closed');
  await letOthersRun();
  expect(sessions.find(ENDPOINT, 'w')).toBeUndefined();
});

it('a worker whose first request is refused is kept until it falls silent', async () => {
  const { platform, sessions } = await openSessions();
  sessions.use(ENDPOINT, 'w', null);
  await letOthersRun();
  expect(sessions.find(ENDPOINT, 'w')).toBeDefined();
  await platform.clock.advance(120_000);
  expect(sessions.find(ENDPOINT, 'w')).toBeUndefined();
});
