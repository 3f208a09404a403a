import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { HeartbeatCheck, WorkerProcess } from '../../../../src/worker/supervisor/worker-process.ts';

const CHECKS_MS = 12 * 5_000;

function startCheck() {
  const clock = new ManualClock();
  const found: { process: { beats: number } | undefined } = { process: { beats: 1 } };
  const silent: unknown[] = [];
  const check = new HeartbeatCheck({
    clock,
    findProcess: () => found.process,
    onSilent: (process) => silent.push(process),
  });
  check.start();
  onTestFinished(() => check.stop());
  return { check, clock, found, silent };
}

describe('a heartbeat check', () => {
  it('reports a process once that sends no heartbeat for a minute', async () => {
    const { clock, found, silent } = startCheck();
    await clock.advance(CHECKS_MS);
    expect(silent).toEqual([]);
    await clock.advance(CHECKS_MS);
    expect(silent).toEqual([found.process]);
  });

  it('does not report a process that sends heartbeats', async () => {
    const { clock, found, silent } = startCheck();
    for (let minute = 0; minute < 5; minute += 1) {
      await clock.advance(CHECKS_MS - 5_000);
      if (found.process) found.process.beats += 1;
    }
    expect(silent).toEqual([]);
  });

  it('starts over with each process and ignores the time between two', async () => {
    const { clock, found, silent } = startCheck();
    await clock.advance(CHECKS_MS);
    found.process = undefined;
    await clock.advance(CHECKS_MS);
    found.process = { beats: 1 };
    await clock.advance(CHECKS_MS);
    expect(silent).toEqual([]);
  });

  it('reports nothing after it was stopped', async () => {
    const { check, clock, silent } = startCheck();
    check.stop();
    await clock.advance(3 * CHECKS_MS);
    expect(silent).toEqual([]);
  });
});

describe('the channel of a worker process', () => {
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
});
