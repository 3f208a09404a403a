// Random operations on SQLite while commits and statements fail: what is in memory always equals what a
// new process would read from the database.
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LiveJobs } from '../../../../src/store/live/live-jobs.ts';
import { readOperation } from '../../../../src/store/sql/sql-store.ts';
import { SqlTables } from '../../../../src/store/sql/sql-tables.ts';
import { openSqlite } from '../../../../src/store/sqlite/sqlite.ts';
import { SqliteConnection } from '../../../../src/store/sqlite/sqlite-connection.ts';
import { createRandom } from '../../../support/random.ts';
import { play } from '../../../support/store/random-operations.ts';

const faults = { commit: 0, query: 0, random: () => 1, isOn: false };
const { execute, run } = SqliteConnection.prototype;

function fail(): never {
  throw Object.assign(new Error('disk I/O error'), { code: 'ERR_SQLITE_ERROR', errcode: 10 });
}

beforeAll(() => {
  SqliteConnection.prototype.execute = function (sql) {
    if (faults.isOn && sql === 'commit' && faults.random() < 0.08) {
      faults.commit++;
      fail();
    }
    return execute.call(this, sql);
  };
  SqliteConnection.prototype.run = function (query) {
    if (faults.isOn && !query.sql.startsWith('select') && faults.random() < 0.004) {
      faults.query++;
      fail();
    }
    return run.call(this, query);
  };
});
afterAll(() => {
  Object.assign(SqliteConnection.prototype, { execute, run });
});

it.each(Array.from({ length: 30 }, (_, i) => i + 1))(
  'keeps memory equal to the database, seed %i',
  (seed) => {
    faults.random = createRandom(seed + 7777);
    const { driver, store } = openSqlite({
      path: ':memory:',
      live: { windowJobs: 3, readyJobs: 5, endedJobs: 2 },
    });
    return play({
      ...{ store, seed, turns: 60 },
      readFresh: (operation) => {
        const tables = new SqlTables();
        return driver.read(() => readOperation(tables, new LiveJobs(tables), operation));
      },
      isExpected: (error) => /UNIQUE|StoreUnavailable/.test(String(error)),
      setFaults: (isOn) => {
        faults.isOn = isOn;
      },
    });
  },
);

it('covers commits and statements that fail', () => {
  expect(faults.commit).toBeGreaterThan(0);
  expect(faults.query).toBeGreaterThan(0);
});
