// A machine that loses power: changes that no fsync has put on disk are gone, in part. What a platform acknowledged is
// there. The short form of test/soak/power-loss.test.ts.
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { compileLibrary, leaveOutWithoutCompiler } from '../../support/power-loss/library.ts';
import { runUnderPowerCuts } from '../../support/power-loss/power-cuts.ts';
import { cutRedis, leaveOutWithoutRedis } from '../../support/power-loss/redis-loss.ts';
import { chooseSeed } from '../../support/random.ts';

const FILE = 'test/e2e/storage/power-loss.test.ts';
/** One cut in four or five keeps everything. */
const REDIS_CUTS = 8;
const isLeftOut = leaveOutWithoutCompiler(FILE);

describe.skipIf(isLeftOut)('power loss', () => {
  let folder: string;
  let library: string;

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-power-'));
    // Postgres runs as another user.
    chmodSync(folder, 0o755);
    library = compileLibrary(folder);
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  it('20 times, a platform on SQLite keeps all that it acknowledged', async () => {
    const seed = chooseSeed(1);
    const verdict = await runUnderPowerCuts({ folder, library, seed, cuts: 20 });
    console.log(`power loss: SEED=${seed}, ${JSON.stringify(verdict)}`);
    expect(verdict.unsynced).toBeGreaterThan(0);
    expect(verdict.problems).toEqual([]);
  });

  it('a platform whose fsync does nothing is seen to lose what it acknowledged', async () => {
    const run = { folder, library, seed: chooseSeed(1), cuts: 20, ignoreSync: true };
    expect((await runUnderPowerCuts(run)).problems).not.toEqual([]);
  });

  it.skipIf(leaveOutWithoutRedis(FILE))('Redis with fsync every second loses jobs', async () => {
    const seed = chooseSeed(1);
    for (let cut = 0; cut < REDIS_CUTS; cut++) {
      const { acknowledged, kept } = await cutRedis({ folder, library, seed: seed + cut });
      console.log(`power loss: of ${acknowledged} jobs, Redis has ${kept}`);
      if (kept !== acknowledged) return;
    }
    expect.fail('Redis lost nothing');
  });

  describe.skipIf(leaveOutWithoutPostgres(FILE))('of Postgres', () => {
    let server: PostgresServer;

    beforeEach(async () => {
      server = await PostgresServer.start({ settings: { fsync: 'on', full_page_writes: 'on' } });
    });
    afterEach(() => server.stop());

    it('3 times, a platform keeps all that it acknowledged', async () => {
      const seed = chooseSeed(1);
      const postgres = { server, url: await server.createDatabase() };
      const verdict = await runUnderPowerCuts({ folder, library, seed, postgres, cuts: 3 });
      console.log(`power loss: Postgres, SEED=${seed}, ${JSON.stringify(verdict)}`);
      expect(verdict.unsynced).toBeGreaterThan(0);
      expect(verdict.problems).toEqual([]);
    });
  });
});
