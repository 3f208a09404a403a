// One attack beside a well-behaved client, and what was seen of both.
import { WebhookReceiver } from '../../support/network/webhook-receiver.ts';
import { type Attack, judgeTally } from './attack.ts';
import type { GoodClient } from './good-client.ts';
import { type Gauges, GOOD_RECEIVER, type HostileWorld } from './hostile-world.ts';

const MAX_PEAK_MB = 1_000;

export interface AttackRun {
  faults: string[];
  answers: Record<string, number>;
  /** `readMb` and `eventReads` since the attack began. */
  gauges: Gauges & { growthMb: number };
  times: GoodClient['times'];
}

export interface AttackRunOptions {
  size: 'short' | 'full';
  /** Of the well-behaved client, while the attacker holds what it has opened. */
  rounds: number;
  /** Between the well-behaved client's rounds, ms. */
  pauseMs?: number;
}

export async function runAttack(
  world: HostileWorld,
  attack: Attack,
  { pauseMs, rounds, size }: AttackRunOptions,
): Promise<AttackRun> {
  const count = attack.count[size];
  await world.prepare(attack, count);
  const before = await world.resetGauges();
  const client = world.startGoodClient(pauseMs);
  try {
    const tally = await world.send(attack, count, async () => {
      await client.serve(rounds);
      if (attack.needsWebhook) await receiveWebhook(world);
    });
    await client.serve(rounds);
    await client.stop();
    const after = await world.readGauges();
    const gauges = {
      ...after,
      readMb: after.readMb - before.readMb,
      eventReads: after.eventReads - before.eventReads,
      growthMb: after.peakMb - before.peakMb,
    };
    const faults = [
      ...judgeTally(attack, tally),
      ...judgeGauges(attack, gauges),
      ...client.faults.map((fault) => `the well-behaved client: ${fault}`),
    ];
    return { faults, answers: tally.answers, gauges, times: client.times };
  } finally {
    await client.stop();
  }
}

function judgeGauges(attack: Attack, gauges: AttackRun['gauges']): string[] {
  const { eventReads: mostReads = Number.POSITIVE_INFINITY } = attack;
  const { growthMb: mostGrowthMb = MAX_PEAK_MB, readMb: mostReadMb = Number.POSITIVE_INFINITY } =
    attack;
  const bounds = [
    { what: 'MB resident', seen: gauges.peakMb, most: MAX_PEAK_MB },
    { what: 'MB more resident than before', seen: gauges.growthMb, most: mostGrowthMb },
    { what: 'MB read', seen: gauges.readMb, most: mostReadMb },
    { what: 'reads of topics', seen: gauges.eventReads, most: mostReads },
  ];
  return bounds
    .filter(({ most, seen }) => !(seen <= most))
    .map(({ most, seen, what }) => `${Math.round(seen)} ${what}; the most is ${most}`);
}

/** The well-behaved user's, of a job that ended just now. */
async function receiveWebhook(world: HostileWorld): Promise<void> {
  await using receiver = await WebhookReceiver.start();
  await world.submitGoodJob(`http://${GOOD_RECEIVER}:${receiver.port}/done`);
  await receiver.receive(1);
}
