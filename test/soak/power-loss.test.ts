// Cuts the power of platforms 2,000 times (`CUTS=…`), and that of platforms on Postgres a fortieth as often.
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { leaveOutWithoutPostgres, PostgresServer } from '../support/postgres.ts';
import { leaveOutWithoutCompiler, usePowerLoss } from '../support/power-loss/library.ts';
import { runUnderPowerCuts } from '../support/power-loss/power-cuts.ts';
import { chooseSeed } from '../support/random.ts';

const FILE = 'test/soak/power-loss.test.ts';
const CUTS = Number(process.env['CUTS'] ?? 2_000);
/** Each platform loses power so often; then another one begins with an empty folder. */
const CUTS_EACH = 25;
const POSTGRES_CUTS = Math.ceil(CUTS / 40);
/** Only a guard against hanging. */
const LIMIT_MS = CUTS * 10_000;

describe.skipIf(leaveOutWithoutCompiler(FILE))('power loss', () => {
  const place = usePowerLoss();

  it(`${CUTS} times, platforms on SQLite keep all that they acknowledged`, {
    timeout: LIMIT_MS,
  }, async () => {
    let acknowledged = 0;
    for (let done = 0, seed = chooseSeed(); done < CUTS; done += CUTS_EACH, seed += CUTS_EACH) {
      const folder = join(place.folder, String(seed));
      mkdirSync(folder);
      const verdict = await runUnderPowerCuts({ ...place, folder, seed, cuts: CUTS_EACH });
      expect(verdict.problems, `SEED=${seed}`).toEqual([]);
      acknowledged += verdict.acknowledged;
      rmSync(folder, { recursive: true });
    }
    console.log(`power loss: ${acknowledged} jobs acknowledged`);
  });

  it.skipIf(leaveOutWithoutPostgres(FILE))(
    `${POSTGRES_CUTS} times, a platform on Postgres keeps all that it acknowledged`,
    { timeout: LIMIT_MS },
    async () => {
      const server = await PostgresServer.start({
        settings: { fsync: 'on', full_page_writes: 'on' },
      });
      try {
        const seed = chooseSeed();
        const postgres = { server, url: await server.createDatabase() };
        const run = { ...place, seed, postgres, cuts: POSTGRES_CUTS };
        const verdict = await runUnderPowerCuts(run);
        console.log(`power loss: Postgres, SEED=${seed}, ${JSON.stringify(verdict)}`);
        expect(verdict.problems).toEqual([]);
      } finally {
        await server.stop();
      }
    },
  );
});
