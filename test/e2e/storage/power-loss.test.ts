// A machine that loses power: changes that no fsync has put on disk are gone, in part. What a platform acknowledged is
// there. The short form of test/soak/power-loss.test.ts.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { JobLoad } from '../../support/power-loss/job-load.ts';
import { leaveOutWithoutCompiler, usePowerLoss } from '../../support/power-loss/library.ts';
import { Machine, runUnderPowerCuts } from '../../support/power-loss/power-cuts.ts';
import { cutRedis, leaveOutWithoutRedis } from '../../support/power-loss/redis-loss.ts';
import { Process } from '../../support/processes.ts';
import { chooseSeed, createRandom } from '../../support/random.ts';

const FILE = 'test/e2e/storage/power-loss.test.ts';
/** Of a run without cuts. */
const JOBS = 100;
const PAGE_BYTES = 4_096;
/** One cut in four or five keeps everything. */
const REDIS_CUTS = 8;
const isLeftOut = leaveOutWithoutCompiler(FILE);

describe.skipIf(isLeftOut)('power loss', () => {
  const place = usePowerLoss();

  it('20 times, a platform on SQLite keeps all that it acknowledged', async () => {
    const seed = chooseSeed(1);
    const verdict = await runUnderPowerCuts({ ...place, seed, cuts: 20 });
    console.log(`power loss: SEED=${seed}, ${JSON.stringify(verdict)}`);
    expect(verdict.unsynced).toBeGreaterThan(0);
    expect(verdict.problems).toEqual([]);
  });

  it('a platform whose fsync does nothing is seen to lose what it acknowledged', async () => {
    const run = { ...place, seed: chooseSeed(1), cuts: 20, ignoreSync: true };
    expect((await runUnderPowerCuts(run)).problems).not.toEqual([]);
  });

  it.each(['sync:60', 'write:300'])(
    'a disk with %s answering EIO makes the platform lose nothing',
    async (fail) => {
      await using machine = await Machine.build(place);
      const load = new JobLoad(() => machine, createRandom(chooseSeed(1)));
      await machine.start(fail);
      machine.startWorker();
      await load.run(JOBS);
      const { output } = machine.process;
      await machine.kill();
      expect(output).toMatch(/EIO|IOERR/);
      // It refuses a job whose file fails. Without its log it must exit: the disk may have dropped commits.
      if (fail.startsWith('sync')) expect(output).toMatch(/"operation":"payload"|exiting/);
      machine.cut({ seed: chooseSeed(1) });
      expect(machine.check()).toEqual([]);
      await machine.start();
      await load.finish();
      expect(load.problems).toEqual([]);
    },
  );

  it('short writes change nothing, and `store check` names a page with a flipped bit', async () => {
    await using machine = await Machine.build(place);
    const load = new JobLoad(() => machine, createRandom(chooseSeed(1)));
    await machine.start('short:3');
    machine.startWorker();
    await load.run(JOBS);
    await machine.process.end('SIGKILL');
    machine.cut({ seed: chooseSeed(1) });
    await machine.start();
    await load.finish();
    expect(load.problems).toEqual([]);
    await machine.process.end();
    const check = () => new Process(['store', 'check', '--data', join(place.folder, 'data')]);
    const sound = check();
    expect(await sound.exited, sound.output).toBe(0);
    const page = flipBit(join(place.folder, 'data', 'millrace.db'));
    const damaged = check();
    expect(await damaged.exited).toBe(1);
    expect(damaged.output).toMatch(new RegExp(`page ${page}\\b`));
  });

  it.skipIf(leaveOutWithoutRedis(FILE))('Redis with fsync every second loses jobs', async () => {
    const seed = chooseSeed(1);
    for (let cut = 0; cut < REDIS_CUTS; cut++) {
      const { acknowledged, kept } = await cutRedis({ ...place, seed: seed + cut });
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
      const verdict = await runUnderPowerCuts({ ...place, seed, postgres, cuts: 3 });
      console.log(`power loss: Postgres, SEED=${seed}, ${JSON.stringify(verdict)}`);
      expect(verdict.unsynced).toBeGreaterThan(0);
      expect(verdict.problems).toEqual([]);
    });
  });
});

/** SQLite has no checksums of pages: it finds a flipped bit only in what describes a page. @returns the page's number */
function flipBit(path: string): number {
  using database = new DatabaseSync(path, { readOnly: true });
  const row = database.prepare("select rootpage from sqlite_schema where name = 'job'").get();
  const page = Number(row?.['rootpage']);
  const content = readFileSync(path);
  const at = (page - 1) * PAGE_BYTES;
  content.writeUInt8(content.readUInt8(at) ^ 0x40, at);
  writeFileSync(path, content);
  return page;
}
