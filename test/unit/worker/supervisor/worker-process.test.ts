// The check of heartbeats, with a clock that the test moves.
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { HeartbeatCheck } from '../../../../src/worker/supervisor/worker-process.ts';

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
