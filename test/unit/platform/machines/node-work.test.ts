// The scaler's view as the owner of an endpoint gets it from the leader: over the port for nodes, HTTP.
import { expect, it, onTestFinished } from 'vitest';
import type { OwnerNode } from '../../../../src/api/forwarding/forwarding-options.ts';
import { NodeClient } from '../../../../src/api/nodes/node-client.ts';
import { ManualClock } from '../../../../src/base/clock.ts';
import { LeaderScaling } from '../../../../src/platform/machines/node-work.ts';
import { NodeCalls } from '../../../../src/platform/nodes/node-calls.ts';
import type { ScalingFacts } from '../../../../src/wire/resources/scaling.ts';
import { SECRET, startNodes } from '../../../support/api/two-nodes.ts';

const FACTS: ScalingFacts = {
  ...{ workersMax: 3, workers: 0, cause: 'no_gpu', reason: 'no GPU is free', since: 1 },
  crashes: { streak: 0, notBefore: 0, reason: null, isHandler: false },
  ...{ starting: null, unversioned: null, costPerHour: 1 },
};

async function start() {
  const leader: { calls: unknown[]; answer: unknown } = { calls: [], answer: FACTS };
  const { owner } = await startNodes({
    forwarding: {
      async onCall(name, body) {
        leader.calls.push([name, body]);
        if (leader.answer instanceof Error) throw leader.answer;
        return leader.answer;
      },
    },
  });
  const client = new NodeClient({ secrets: [SECRET] });
  onTestFinished(() => client.close());
  const clock = new ManualClock();
  let place: OwnerNode = { kind: 'node', url: owner.nodeUrl };
  const own = () => 'unknown' as const;
  const findLeader = () => place;
  const calls = new NodeCalls({ client, findLeader });
  const scaling = new LeaderScaling({ calls, clock, findLeader, own });
  const lead = (given: OwnerNode) => {
    place = given;
  };
  return { clock, lead, leader, scaling };
}

it('asks the leader once for many reads at a time, and again after a second', async () => {
  const { clock, leader, scaling } = await start();
  const reads = Array.from({ length: 50 }, async () => scaling.find('e'));
  expect(await Promise.all(reads)).toEqual(new Array(50).fill(FACTS));
  expect(leader.calls).toEqual([['scaling', { endpointId: 'e' }]]);
  expect(scaling.find('e')).toEqual(FACTS);
  await clock.advance(1_000);
  leader.answer = { ...FACTS, cause: 'enough' };
  // The last answer, while the leader is asked again.
  expect(scaling.find('e')).toEqual(FACTS);
  await expect.poll(() => scaling.find('e')).toMatchObject({ cause: 'enough' });
  expect(leader.calls).toHaveLength(2);
});

it('waits for the leader if the last answer is old', async () => {
  const { clock, leader, scaling } = await start();
  await scaling.find('e');
  await clock.advance(10_000);
  leader.answer = { ...FACTS, cause: 'enough' };
  expect(await scaling.find('e')).toMatchObject({ cause: 'enough' });
});

it.each([
  ['fails', new Error('it does not lead')],
  ['has not decided', undefined],
  ['answers nonsense', { cause: 'bored' }],
])('knows nothing if the leader %s', async (_, answer) => {
  const { leader, scaling } = await start();
  leader.answer = answer;
  expect(await scaling.find('e')).toBe('unknown');
});

it('asks nobody without a leader, or if this node leads', async () => {
  const { lead, leader, scaling } = await start();
  lead({ kind: 'none' });
  expect(await scaling.find('e')).toBe('unknown');
  lead({ kind: 'here' });
  expect(scaling.find('other')).toBe('unknown');
  expect(leader.calls).toEqual([]);
});
