import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import { describeStore } from './store.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-store-'));
let files = 0;

afterAll(() => rmSync(folder, { recursive: true }));

describeStore('SQLite in memory', () => openSqliteStore({ path: ':memory:' }));
describeStore('SQLite on a file', () => openSqliteStore({ path: join(folder, `${++files}.db`) }));
describeStore('SQLite with few jobs in memory', () =>
  openSqliteStore({ path: ':memory:', live: { windowJobs: 2, readyJobs: 2, endedJobs: 1 } }),
);
