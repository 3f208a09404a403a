// Cuts the power of platforms 2,000 times (`CUTS=…`), and that of platforms on Postgres a tenth as often.
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type PowerRun, recordPowerCuts, replayPowerCuts } from '../histories/power-run.ts';
import {
  leaveOutWithoutBullmq,
  leaveOutWithoutRedis,
  openBullmq,
  replayRedisCuts,
} from '../histories/redis-run.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../support/postgres.ts';
import { leaveOutWithoutCompiler, usePowerLoss } from '../support/power-loss/library.ts';
import { chooseSeed } from '../support/random.ts';

const FILE = 'test/soak/power-loss.test.ts';
const CUTS = Number(process.env['CUTS'] ?? 2_000);
const POSTGRES_CUTS = Math.ceil(CUTS / 10);
/** Of each recorded history. Then power cuts follow each other, and another history begins. */
const CUTS_EACH = 90;
const LOAD_MS = 4_000;
/** Only a guard against hanging. */
const LIMIT_MS = CUTS * 10_000;

describe.skipIf(leaveOutWithoutCompiler(FILE))('power loss', () => {
  const place = usePowerLoss();

  async function cutPower(cuts: number, more: () => Promise<Pick<PowerRun, 'postgres'>>) {
    const sum = { cuts: 0, unsynced: 0, jobs: 0 };
    const start = async (cut: typeof replayPowerCuts, seed: number) => {
      const folder = join(place.folder, String(seed));
      mkdirSync(folder);
      const run = { ...place, ...(await more()), folder, seed, loadMs: LOAD_MS, cuts: CUTS_EACH };
      const verdict = await cut(run);
      expect(verdict.problems, `SEED=${seed}`).toEqual([]);
      sum.cuts += verdict.cuts;
      sum.unsynced += verdict.unsynced;
      sum.jobs += verdict.jobs;
      console.log(`power loss: SEED=${seed}, ${JSON.stringify(sum)}`);
      rmSync(folder, { recursive: true, force: true });
    };
    for (let seed = chooseSeed(); sum.cuts < cuts; seed += 2 * CUTS_EACH) {
      await start(replayPowerCuts, seed);
      await start(recordPowerCuts, seed + CUTS_EACH);
    }
  }

  it(
    `takes nothing from platforms on SQLite that they acknowledged, ${CUTS} times`,
    {
      timeout: LIMIT_MS,
    },
    () => cutPower(CUTS, async () => ({})),
  );

  it.skipIf(leaveOutWithoutPostgres(FILE))(
    `takes nothing from platforms on Postgres that they acknowledged, ${POSTGRES_CUTS} times`,
    { timeout: LIMIT_MS },
    async () => {
      const settings = { fsync: 'on', full_page_writes: 'on' };
      const server = await PostgresServer.start({ settings, parent: place.folder });
      try {
        await cutPower(POSTGRES_CUTS, async () => {
          // The last history has killed it.
          if (!server.isRunning) await server.resume();
          return { postgres: { server, url: await server.createDatabase() } };
        });
      } finally {
        await server.stop();
      }
    },
  );

  describe.skipIf(leaveOutWithoutRedis(FILE) || leaveOutWithoutBullmq(FILE))('of BullMQ', () => {
    const redis = () => ({ ...place, seed: chooseSeed(), loadMs: LOAD_MS, open: openBullmq });

    it('takes jobs that it has acknowledged if Redis calls fsync every second', async () => {
      const run = { ...redis(), appendfsync: 'everysec' as const, cuts: 20 };
      const { problems } = await replayRedisCuts(run);
      const forgotten = problems.filter((text) => text.includes(': forgotten: '));
      const reopened = problems.filter((text) => text.includes(': terminal-reopens: '));
      expect(forgotten, `SEED=${run.seed}`).not.toEqual([]);
      console.log(`power loss: ${forgotten.length} jobs forgotten, ${reopened.length} ends`);
    });

    it(`takes nothing, ${POSTGRES_CUTS} times, if Redis calls fsync before each answer`, {
      timeout: LIMIT_MS,
    }, async () => {
      const run = { ...redis(), appendfsync: 'always' as const, cuts: POSTGRES_CUTS };
      const { problems, ...counts } = await replayRedisCuts(run);
      console.log(`power loss: SEED=${run.seed}, ${JSON.stringify(counts)}`);
      expect(counts.unsynced).toBeGreaterThan(0);
      expect(problems, `SEED=${run.seed}`).toEqual([]);
    });
  });
});
