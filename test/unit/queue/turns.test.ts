// Calls that look at thousands of jobs or leases leave the event loop to others.
import { expect, it, onTestFinished } from 'vitest';
import { SCANNED_AT_ONCE } from '../../../src/queue/job-lists.ts';
import { countIterations } from '../../support/count-iterations.ts';
import { ENDPOINT, Hand, Platform, progressOf } from '../../support/queue-platform.ts';

async function start() {
  const platform = new Platform();
  await platform.start();
  onTestFinished(() => platform.close());
  const worker = new Hand(() => platform.queue.link(ENDPOINT), { id: 'w' });
  await worker.hello();
  return { platform, worker };
}

it('answers a call with 1,000 reports in order', async () => {
  const { platform, worker } = await start();
  await platform.submit();
  const lease = await worker.takeOne();
  const reports = Array.from({ length: 1_000 }, (_, n) => progressOf(lease, n + 1, n));
  const turns = await countIterations(async () => {
    const replies = await worker.report(reports);
    expect(new Set(replies.map(({ answer }) => answer))).toEqual(new Set(['applied']));
  });
  expect(turns).toBeGreaterThanOrEqual(7);
});

it('a search that finds nothing', async () => {
  const { platform } = await start();
  for (let n = 0; n <= 3 * SCANNED_AT_ONCE; n++) await platform.submit();
  const turns = await countIterations(async () => {
    const listing = { endpointId: ENDPOINT, status: undefined, before: undefined, limit: 10 };
    const { jobs } = await platform.queue.jobs.list({ ...listing, idPart: 'no-such-job' });
    expect(jobs).toEqual([]);
  });
  expect(turns).toBeGreaterThanOrEqual(3);
});

it('leaves the event loop to others during a renewal of thousands of leases', async () => {
  const platform = new Platform();
  await platform.start();
  onTestFinished(() => platform.close());
  const worker = new Hand(() => platform.queue.link(ENDPOINT), { id: 'w' });
  await worker.hello();
  await platform.submit();
  const held = await worker.takeOne();
  const unknown = Array.from({ length: 2_560 }, (_, n) => ({ ...held, token: `unknown-${n}` }));
  const turns = await countIterations(async () => {
    const { ended } = await worker.renew([held, ...unknown]);
    expect(ended).toHaveLength(2_560);
  });
  expect(turns).toBeGreaterThanOrEqual(10);
});
