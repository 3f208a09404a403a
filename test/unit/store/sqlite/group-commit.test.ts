import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { GroupCommit } from '../../../../src/store/sqlite/group-commit.ts';
import { openSqlite, openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { SqliteConnection } from '../../../../src/store/sqlite/sqlite-connection.ts';
import type { Store } from '../../../../src/store/store.ts';
import { addEndpoint, ENDPOINT, INPUT, makeJob } from '../../../support/store/stored-jobs.ts';

let folder: string;
let path: string;
let store: Store;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-commits-'));
  path = join(folder, 'm.db');
  store = openSqliteStore({ path });
  await addEndpoint(store);
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

function insert(id: string): Promise<void> {
  return store.write((tx) => tx.insertJob(makeJob({ id }), INPUT));
}

/** Commits in the write-ahead log: its frames whose second word, the file's new size, is set. */
function countCommits(): number {
  const wal = readFileSync(`${path}-wal`);
  const frameBytes = 24 + wal.readUInt32BE(8);
  let commits = 0;
  for (let at = 32; at < wal.length; at += frameBytes) {
    if (wal.readUInt32BE(at + 4) > 0) commits++;
  }
  return commits;
}

/** The other callbacks of the event loop's current phase have run. */
function endTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

describe('writes', () => {
  it('share one commit in one iteration of the event loop', async () => {
    const before = countCommits();
    await Promise.all(Array.from({ length: 100 }, (_, i) => insert(`${i}`)));
    expect(countCommits() - before).toBe(1);
  });

  it('begin no transaction if they ask the database nothing', async () => {
    const { driver, store: own } = openSqlite({ path: join(folder, 'own.db') });
    await addEndpoint(own);
    const before = driver.commits;
    await own.write(function* () {});
    expect(driver.commits).toBe(before);
    await own.write((tx) => tx.insertJob(makeJob({ id: 'a' }), INPUT));
    expect(driver.commits).toBe(before + 1);
    await own.close();
  });

  it('are answered after they waited for what runs alone, also if one of them throws', async () => {
    const connection = new SqliteConnection({ path: join(folder, 'own.db') });
    const ignore = () => {};
    const listeners = { onFailure: ignore, onLost: ignore, onFull: ignore, onCommit: ignore };
    const commits = new GroupCommit({
      connection,
      gate: undefined,
      memory: undefined,
      ...listeners,
    });
    const alone = Promise.withResolvers<void>();
    const ended = commits.durability.runAlone(() => alone.promise);
    await endTurn();
    const count = { sql: 'update last_time set at = at + 1', params: [] };
    connection.execute('create table last_time (at integer)');
    const kept = commits.write(function* () {
      yield count;
    });
    const refused = commits.write(function* () {
      yield count;
      throw new Error('changed my mind');
    });
    await endTurn();
    alone.resolve();
    await expect(refused).rejects.toThrow('changed my mind');
    await Promise.all([kept, ended]);
    connection.close();
  });

  it('have separate commits in different iterations', async () => {
    const before = countCommits();
    await insert('a');
    await insert('b');
    expect(countCommits() - before).toBe(2);
  });

  it('share the commit of the operation that requests them', async () => {
    const before = countCommits();
    let asked: Promise<void> | undefined;
    await store.write((tx) => {
      tx.insertJob(makeJob({ id: 'a' }), INPUT);
      asked = insert('b');
    });
    await asked;
    expect(countCommits() - before).toBe(1);
  });

  it('leave the others in one commit if they are rolled back', async () => {
    const before = countCommits();
    const fail = (id: string) =>
      store.write((tx) => {
        tx.insertJob(makeJob({ id }), INPUT);
        throw new Error('no');
      });
    await Promise.allSettled([insert('a'), fail('b'), insert('c'), fail('d'), insert('e')]);
    expect(countCommits() - before).toBe(1);
  });

  it('wait for the next commit if they weigh more than 512 together', async () => {
    const before = countCommits();
    const writes = Array.from({ length: 13 }, (_, i) =>
      store.write((tx) => tx.insertJob(makeJob({ id: `${i}` }), INPUT), { weight: 100 }),
    );
    await Promise.all(writes);
    // 6, 6 and 1: the sixth reaches the weight.
    expect(countCommits() - before).toBe(3);
  });

  it('wait for the next iteration beyond 512', async () => {
    const begun = new Set<number>();
    const writes = Array.from({ length: 600 }, (_, index) =>
      store.write((tx) => {
        begun.add(index);
        tx.endpoint(ENDPOINT);
      }),
    );
    await endTurn();
    expect(begun.size).toBe(512);
    await Promise.all(writes);
    expect(begun.size).toBe(600);
  });

  it('wait for the next iteration beyond 16 MB of payload', async () => {
    const input = new Uint8Array(6 * 1_048_576);
    const begun: number[] = [];
    const writes = [1, 2, 3, 4, 5].map((id) =>
      store.write((tx) => {
        begun.push(id);
        tx.insertJob(makeJob({ id: `${id}` }), input);
      }),
    );
    await endTurn();
    expect(begun).toEqual([1, 2, 3]);
    await Promise.all(writes);
    expect(begun).toEqual([1, 2, 3, 4, 5]);
  });
});
