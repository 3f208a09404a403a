// Measures the effect of attacks on others: a well-behaved client's p50 and p99 alone and beside each
// attack, the longest block of the platform's event loop, and its peak resident memory.
import type { Attack, PlatformKind } from '../test/e2e/hostile/attack.ts';
import { ATTACKS } from '../test/e2e/hostile/attacks.ts';
import { HostileWorld } from '../test/e2e/hostile/hostile-world.ts';
import { runAttack } from '../test/e2e/hostile/run-attack.ts';
import { percentile } from './load.ts';
import { watchStolenTime } from './stolen-time.ts';

/** Requests of the well-behaved client, alone and during the attack. */
const ROUNDS = 100;
const PAUSE_MS = 2;

export interface HostileOptions {
  /** Runs only attacks whose names contain this text. Default: all that are not pending. */
  only?: string | undefined;
}

export async function reportHostile({ only }: HostileOptions): Promise<void> {
  const chosen = ATTACKS.filter(({ name, pending }) =>
    only === undefined ? pending === undefined : name.includes(only),
  );
  console.log(
    '| attack | p50 alone, ms | beside, ms | p99 alone, ms | beside, ms | ratio | loop held, ms | peak, MB | stolen, % | answers |',
  );
  console.log('|---|---|---|---|---|---|---|---|---|---|');
  for (const attack of chosen) await reportAttack(attack);
}

/** Runs the attack on a new platform, so that earlier attacks have no effect. */
async function reportAttack(attack: Attack): Promise<void> {
  const kind: PlatformKind = attack.platform ?? 'default';
  const readStolen = watchStolenTime();
  const world = await HostileWorld.open(kind);
  try {
    const alone = world.startGoodClient(PAUSE_MS);
    await alone.serve(ROUNDS);
    await alone.stop();
    const run = await runAttack(world, attack, { size: 'full', rounds: ROUNDS, pauseMs: PAUSE_MS });
    const measured = [alone.times.runsync, run.times.runsync];
    const halves = measured.map((times) => percentile(times, 0.5).toFixed(1));
    const [quiet, beside] = measured.map((times) => percentile(times, 0.99));
    const ratio = ((beside ?? 0) / (quiet ?? 1)).toFixed(1);
    const { heldMs, peakMb } = run.gauges;
    const answers = Object.entries(run.answers).map(([answer, times]) => `${times} × ${answer}`);
    const columns = [
      ...[attack.name, ...halves, quiet?.toFixed(1), beside?.toFixed(1), ratio, Math.round(heldMs)],
      ...[Math.round(peakMb), Math.round(readStolen()), answers.join(', ')],
    ];
    console.log(`| ${columns.join(' | ')} |`);
    for (const fault of run.faults.slice(0, 3)) console.log(`  fault: ${fault}`);
  } finally {
    await world.close();
  }
}
