// Which RunPod workers the platform keeps in memory.
import { expect, it, onTestFinished } from 'vitest';
import { Seats } from '../../../../src/api/runpod/seats.ts';
import { letOthersRun } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { ENDPOINT, Platform } from '../../../conformance/platform.ts';

async function openSeats() {
  const platform = new Platform();
  await platform.start();
  const { clock, queue } = platform;
  const seats = new Seats({ linkTo: (id) => queue.link(id), queue, clock, log: silentLog });
  onTestFinished(async () => {
    seats.close();
    await platform.close();
  });
  return { platform, seats };
}

it('a worker whose hello fails is not kept, and gets the error', async () => {
  const { platform, seats } = await openSeats();
  await platform.store.close();
  const seat = seats.use(ENDPOINT, 'w', null);
  await expect(seat.open()).rejects.toThrow('The store is closed');
  await letOthersRun();
  expect(seats.find(ENDPOINT, 'w')).toBeUndefined();
});

it('a worker whose first request is refused is kept until it falls silent', async () => {
  const { platform, seats } = await openSeats();
  seats.use(ENDPOINT, 'w', null);
  await letOthersRun();
  expect(seats.find(ENDPOINT, 'w')).toBeDefined();
  await platform.clock.advance(120_000);
  expect(seats.find(ENDPOINT, 'w')).toBeUndefined();
});
