// Each attack beside a well-behaved client: what the attacker is answered, what the platform reads and
// keeps, and that the client is served. Times are measured by `npm run bench hostile`.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PlatformKind } from './attack.ts';
import { ATTACKS } from './attacks.ts';
import { HostileWorld } from './hostile-world.ts';
import { runAttack } from './run-attack.ts';

const KINDS: readonly PlatformKind[] = ['default', 'impatient', 'cramped'];
const ROUNDS = 3;

const inForce = ATTACKS.filter(({ pending }) => pending === undefined);

for (const kind of KINDS) {
  const attacks = inForce.filter(({ platform = 'default' }) => platform === kind);
  describe.runIf(attacks.length > 0)(`a platform (${kind})`, () => {
    let world: HostileWorld;

    beforeAll(async () => {
      world = await HostileWorld.open(kind);
    });

    afterAll(async () => {
      await world.close();
    });

    for (const attack of attacks) {
      it(`serves other clients during the attack: ${attack.name}`, async () => {
        const run = await runAttack(world, attack, { size: 'short', rounds: ROUNDS });
        expect(run.faults, JSON.stringify(run.answers)).toEqual([]);
        expect(world.platform.process.child.exitCode).toBe(null);
      });
    }
  });
}
