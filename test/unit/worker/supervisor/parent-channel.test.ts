// A worker process's end of the channel, in a real process.
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { WorkerProcess } from '../../../../src/worker/supervisor/worker-process.ts';

const channelModule = fileURLToPath(
  new URL('../../../../src/worker/supervisor/parent-channel.ts', import.meta.url),
);

/** Listens late, tells what it hears, and has nothing else to do. */
const program = `
  import { openParentChannel } from ${JSON.stringify(channelModule)};
  const channel = openParentChannel();
  await new Promise((resolve) => setTimeout(resolve, 200));
  const heard = new Promise((resolve) => channel.listen(resolve));
  const wait = setInterval(() => {}, 1_000);
  const { reason } = await heard;
  clearInterval(wait);
  channel.send({ type: 'failed', reason, isFinal: true });
  await channel.close();`;

it('receives messages sent before it listened, loses none at the exit, and keeps no process alive', async () => {
  const worker = new WorkerProcess({
    command: [process.execPath, '--input-type=module', '-e', program],
    environment: { ...process.env },
  });
  onTestFinished(() => worker.kill());
  worker.send({ type: 'recycle', reason: 'early' });
  expect(await worker.ended).toEqual({ code: 0, signal: null });
  expect(worker.failure?.reason).toBe('early');
});
