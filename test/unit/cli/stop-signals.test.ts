// Signals as requests to end. They are raised as events: the test runner's own process would die.
import { afterEach, expect, it } from 'vitest';
import { listenForStop, type StopSignals } from '../../../src/cli/stop-signals.ts';

let signals: StopSignals | undefined;

afterEach(() => signals?.release());

it('the first signal is the request', async () => {
  signals = listenForStop(() => 0);
  process.emit('SIGINT', 'SIGINT');
  expect(await signals.first).toBe('SIGINT');
});

it('a repetition within a second is not a second request, but a later one is', async () => {
  let now = 0;
  signals = listenForStop(() => now);
  process.emit('SIGINT', 'SIGINT');
  now = 999;
  process.emit('SIGTERM', 'SIGTERM');
  now = 1_000;
  process.emit('SIGHUP', 'SIGHUP');
  expect(await signals.second).toBe('SIGHUP');
});

it('the third request follows the second by a second too', async () => {
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

it('after release they have no handler', () => {
  const before = process.listenerCount('SIGTERM');
  signals = listenForStop();
  expect(process.listenerCount('SIGTERM')).toBe(before + 1);
  signals.release();
  expect(process.listenerCount('SIGTERM')).toBe(before);
});
