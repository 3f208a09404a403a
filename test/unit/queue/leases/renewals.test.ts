// Renewals that name many leases.
import { expect, it, onTestFinished } from 'vitest';
import { countIterations } from '../../../support/count-iterations.ts';
import { ENDPOINT, Hand, Platform } from '../../../support/queue-platform.ts';

it('a renewal of thousands of leases leaves the event loop to others', async () => {
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
