// A machine that loses power: changes that no fsync has put on disk are gone, in part. What a platform acknowledged is
// there. The short form of test/soak/power-loss.test.ts.
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Machine, recordPowerCuts, replayPowerCuts } from '../../histories/power-run.ts';
import { leaveOutWithoutRedis, openPlain, replayRedisCuts } from '../../histories/redis-run.ts';
import { describeViolations } from '../../histories/report.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { leaveOutWithoutCompiler, usePowerLoss } from '../../support/power-loss/library.ts';
import { Process } from '../../support/processes.ts';
import { chooseSeed } from '../../support/random.ts';

const FILE = 'test/e2e/storage/power-loss.test.ts';
const LOAD_MS = 2_000;
const PAGE_BYTES = 4_096;
const isLeftOut = leaveOutWithoutCompiler(FILE);

describe.skipIf(isLeftOut)('power loss', () => {
  const place = usePowerLoss();

  const run = () => ({ ...place, seed: chooseSeed(1), loadMs: LOAD_MS });

  it('takes nothing from SQLite that was acknowledged, at any of 20 moments', async () => {
    const verdict = await replayPowerCuts({ ...run(), cuts: 20 });
    expect(verdict.unsynced).toBeGreaterThan(0);
    expect(verdict.problems).toEqual([]);
  });

  it('takes nothing from SQLite that was acknowledged, time after time', async () => {
    const verdict = await recordPowerCuts(run());
    expect(verdict.unsynced).toBeGreaterThan(0);
    expect(verdict.problems).toEqual([]);
  });

  it('takes what was acknowledged from a platform whose fsync does nothing', async () => {
    const verdict = await replayPowerCuts({ ...run(), cuts: 20, ignoreSync: true });
    expect(verdict.problems).not.toEqual([]);
  });

  it.each(['sync:30', 'write:220'])(
    'takes nothing from a platform whose disk answers EIO to %s',
    async (fail) => {
      await using machine = await Machine.build(run());
      let output = '';
      const heal = async () => {
        ({ output } = machine.process);
        await machine.kill();
        machine.disk.cut({ seed: chooseSeed(1) });
        expect(machine.findDamage(machine.disk.folder)).toEqual([]);
        await machine.start();
      };
      expect(describeViolations(await machine.record({ heal }, fail))).toEqual([]);
      expect(output).toMatch(/EIO|IOERR/);
      // It refuses a job whose file fails. Without its log it must exit: the disk may have dropped commits.
      if (fail.startsWith('sync')) expect(output).toMatch(/"operation":"payload"|exiting/);
    },
  );

  it('takes nothing after short writes; `store check` names a page with a flipped bit', async () => {
    await using machine = await Machine.build(run());
    const heal = async () => {
      await machine.kill();
      machine.disk.cut({ seed: chooseSeed(1) });
      await machine.start();
    };
    expect(describeViolations(await machine.record({ heal }, 'short:3'))).toEqual([]);
    await machine.process.end();
    const check = () => new Process(['store', 'check', '--data', join(place.folder, 'data')]);
    const sound = check();
    expect(await sound.exited, sound.output).toBe(0);
    const page = flipBit(join(place.folder, 'data', 'millrace.db'));
    const damaged = check();
    expect(await damaged.exited).toBe(1);
    expect(damaged.output).toMatch(new RegExp(`page ${page}\\b`));
  });

  describe.skipIf(leaveOutWithoutRedis(FILE))('of Redis', () => {
    const redis = () => ({ ...run(), loadMs: 300, cuts: 20, open: openPlain });

    it('takes jobs that it has acknowledged if it calls fsync every second', async () => {
      const { problems } = await replayRedisCuts({ ...redis(), appendfsync: 'everysec' });
      expect(problems.join('\n')).toMatch(/: forgotten: /);
    });

    it('takes nothing if it calls fsync before each answer', async () => {
      const verdict = await replayRedisCuts({ ...redis(), appendfsync: 'always' });
      expect(verdict.unsynced).toBeGreaterThan(0);
      expect(verdict.problems).toEqual([]);
    });
  });

  describe.skipIf(leaveOutWithoutPostgres(FILE))('of Postgres', () => {
    let server: PostgresServer;

    beforeEach(async () => {
      const settings = { fsync: 'on', full_page_writes: 'on' };
      server = await PostgresServer.start({ settings, parent: place.folder });
    });
    afterEach(() => server.stop());

    it('takes nothing that was acknowledged, at any of 5 moments', async () => {
      const postgres = { server, url: await server.createDatabase() };
      const verdict = await replayPowerCuts({ ...run(), postgres, cuts: 5 });
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
