// The long form of test/e2e/hostile: each attack runs on a new platform, at a size that has stopped earlier
// versions.
import { expect, it } from 'vitest';
import { ATTACKS } from '../e2e/hostile/attacks.ts';
import { HostileWorld } from '../e2e/hostile/hostile-world.ts';
import { runAttack } from '../e2e/hostile/run-attack.ts';

/** Rounds of the well-behaved client while the attacker keeps its connections open. */
const ROUNDS = 300;

const inForce = ATTACKS.filter(({ pending }) => pending === undefined);

for (const attack of inForce) {
  it(`serves other clients during the attack: ${attack.name}`, async () => {
    const world = await HostileWorld.open(attack.platform ?? 'default');
    try {
      const run = await runAttack(world, attack, { size: 'full', rounds: ROUNDS });
      expect(run.faults, JSON.stringify(run.answers)).toEqual([]);
      expect(world.platform.process.child.exitCode).toBe(null);
    } finally {
      await world.close();
    }
  });
}
