// A queue that takes over a shard with more running groups than one message to the home of their limit names.
import { expect, it, onTestFinished } from 'vitest';
import type { Lease } from '../../../../src/wire/link/worker-link.ts';
import { LimitedShards } from '../../../support/sharded-limits.ts';

const GROUPS = 150;

it('names all running groups to the home of their limit, and then ends its beginning', async () => {
  const shards = new LimitedShards();
  onTestFinished(() => shards.close());
  shards.addLimit({ id: 'l', key: 'group', concurrency: 1 });
  await shards.addEndpoint('home', 0, { limits: ['l'] });
  await shards.addEndpoint('b', 1, { limits: ['l'] });
  for (let index = 0; index < GROUPS; index++) await shards.submit('b', 1, { group: `g${index}` });
  const hand = await shards.hand('b');
  const leases: Lease[] = [];
  for (let turn = 0; turn < 40 && leases.length < GROUPS; turn++) {
    const taken = hand.take({ max: GROUPS, waitMs: 100 });
    await shards.clock.advance(100);
    leases.push(...(await taken));
    await hand.renew(leases);
  }
  expect(leases).toHaveLength(GROUPS);
  const stages: string[] = [];
  shards.carry = (message, deliver) => {
    stages.push(message.stage);
    return deliver();
  };
  await shards.takeOver(1, 0);
  await shards.clock.advance(500);
  expect(stages.filter((stage) => stage !== 'on').length).toBeLessThan(5);
  expect(stages).toContain('rest');
});
