// Signals as requests to end. They are raised as events: the test runner's own process would die.
import { afterEach, expect, it } from 'vitest';
import { listenForStop, type StopSignals } from '../../../src/cli/stop-signals.ts';

let signals: StopSignals | undefined;

afterEach(() => signals?.release());

it('takes the first signal as the request', async () => {
  signals = listenForStop(() => 0);
  process.emit('SIGINT', 'SIGINT');
  expect(await signals.first).toBe('SIGINT');
});

it('ignores a repetition within a second, but not a later one', async () => {
  let now = 0;
  signals = listenForStop(() => now);
  process.emit('SIGINT', 'SIGINT');
  now = 999;
  process.emit('SIGTERM', 'SIGTERM');
  now = 1_000;
  process.emit('SIGHUP', 'SIGHUP');
  expect(await signals.second).toBe('SIGHUP');
});

it('waits a second before it takes the third request, too', async () => {
  let now = 0;
  signals = listenForStop(() => now);
  process.emit('SIGTERM', 'SIGTERM');
  now = 1_000;
  process.emit('SIGTERM', 'SIGTERM');
  now = 1_999;
  process.emit('SIGHUP', 'SIGHUP');
  now = 2_000;
  process.emit('SIGINT', 'SIGINT');
  expect(await signals.third).toBe('SIGINT');
});

it('has no handler after release', () => {
  const before = process.listenerCount('SIGTERM');
  signals = listenForStop();
  expect(process.listenerCount('SIGTERM')).toBe(before + 1);
  signals.release();
  expect(process.listenerCount('SIGTERM')).toBe(before);
});
