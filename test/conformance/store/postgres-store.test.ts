import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readPostgresUrl } from '../../../src/store/postgres/connection-url.ts';
import { openPostgresStore } from '../../../src/store/postgres/postgres.ts';
import { Session } from '../../../src/store/postgres/session.ts';
import type { Store } from '../../../src/store/store.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { createRandom } from '../../support/random.ts';
import { play } from '../../unit/store/live/random-operations.ts';
import { describeStore } from './store.ts';

const isLeftOut = leaveOutWithoutPostgres('test/conformance/store/postgres-store.test.ts');

describe.skipIf(isLeftOut)('on a Postgres server', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await PostgresServer.start();
  });
  afterAll(() => server?.stop());

  const open = async (live = {}): Promise<Store> => {
    await server.empty('public');
    return openPostgresStore({ target: readPostgresUrl(server.url()), live });
  };
  describeStore('Postgres', () => open());
  describeStore('Postgres with few jobs in memory', () =>
    open({ windowJobs: 2, readyJobs: 2, endedJobs: 1 }),
  );

  describe('random operations while commits and statements fail', () => {
    const faults = { commits: 0, statements: 0, random: () => 1, isOn: false };
    const { execute, run } = Session.prototype;

    beforeAll(() => {
      Session.prototype.execute = function (sql) {
        const isStruck = faults.isOn && sql === 'commit' && faults.random() < 0.08;
        if (!isStruck) return execute.call(this, sql);
        faults.commits++;
        return execute.call(this, 'rollback');
      };
      Session.prototype.run = function (statement, params) {
        const isStruck = faults.isOn && !statement.isRead && faults.random() < 0.004;
        if (!isStruck) return run.call(this, statement, params);
        faults.statements++;
        return execute.call(this, 'select 1 / 0');
      };
    });
    afterAll(() => {
      Object.assign(Session.prototype, { execute, run });
    });

    it.each([1, 2, 3])('memory equals the database, seed %i', async (seed) => {
      faults.random = createRandom(seed + 7777);
      await play({
        store: await open({ windowJobs: 3, readyJobs: 5, endedJobs: 2 }),
        ...{ seed, turns: 25 },
        isExpected: (error) => /unique|StoreUnavailable|division by zero/.test(String(error)),
        setFaults: (isOn) => {
          faults.isOn = isOn;
        },
      });
    });

    it('some commits and some statements failed', () => {
      expect(faults.commits).toBeGreaterThan(0);
      expect(faults.statements).toBeGreaterThan(0);
    });
  });
});
