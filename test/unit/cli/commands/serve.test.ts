// What `serve` prints at its start, and what further signals do while a stopping platform lets its clients leave.
import { expect, it } from 'vitest';
import { listNames, ShutdownDelay } from '../../../../src/cli/commands/serve.ts';
import type { StopSignal } from '../../../../src/cli/stop-signals.ts';
import { startPlatform } from '../../../support/api/platform.ts';

it('serve lists the names of endpoints at its start, and bounds the list', async () => {
  const { endpoints } = await startPlatform();
  const [declared] = endpoints.all();
  if (!declared) throw new Error('no endpoint');
  const named = { ...declared, id: 'ep_1', settings: { ...declared.settings, name: 'chat' } };
  expect(listNames([declared, named])).toBe(`Endpoints: ${declared.id}, chat`);
  expect(listNames(new Array(25).fill(named))).toMatch(/^Endpoints: chat, .* and 5 more$/);
  expect(listNames([])).toBe('');
});

const HOUR_MS = 3_600_000;

function open() {
  const second = Promise.withResolvers<StopSignal>();
  const third = Promise.withResolvers<StopSignal>();
  const exits: StopSignal[] = [];
  const signals = {
    first: Promise.resolve('SIGTERM' as const),
    ...{ second: second.promise, third: third.promise, release: () => {} },
  };
  const delay = new ShutdownDelay(signals, (signal) => exits.push(signal));
  return { delay, exits, second, third };
}

it('ends the wait at the second signal, and the process at the third', async () => {
  const { delay, exits, second, third } = open();
  const waiting = delay.wait(HOUR_MS);
  second.resolve('SIGTERM');
  await waiting;
  expect(exits).toEqual([]);
  third.resolve('SIGINT');
  await third.promise;
  expect(exits).toEqual(['SIGINT']);
});

it('ends the process at the second signal outside the wait', async () => {
  for (const waits of [0, 1]) {
    const { delay, exits, second } = open();
    for (let wait = 0; wait < waits; wait++) await delay.wait(1);
    second.resolve('SIGTERM');
    await second.promise;
    expect(exits).toEqual(['SIGTERM']);
  }
});
