// A file that cannot be checked does not count as damaged.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { checkIntegrity } from '../../../../src/store/disk/integrity.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';

const { signal } = new AbortController();
const { execPath } = process;

let path: string;
let folder: string;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-integrity-'));
  path = join(folder, 'm.db');
  await openSqliteStore({ path }).close();
});
afterEach(() => {
  process.execPath = execPath;
  rmSync(folder, { recursive: true });
});

it('a sound file has no problems', async () => {
  const result = await checkIntegrity({ path, depth: 'quick', signal });
  expect(result).toEqual({ problems: [], isComplete: true });
});

it('a file that cannot be opened is not damaged', async () => {
  const missing = join(folder, 'missing.db');
  const check = checkIntegrity({ path: missing, depth: 'quick', signal });
  await expect(check).rejects.toThrow('SQLITE_CANTOPEN');
});

it('a process that cannot be started rejects the check, and nothing else', async () => {
  process.execPath = join(folder, 'no-node');
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on('unhandledRejection', note);
  const check = checkIntegrity({ path, depth: 'quick', signal });
  await expect(check).rejects.toThrow('ENOENT');
  await new Promise((resolve) => setImmediate(resolve));
  process.off('unhandledRejection', note);
  expect(unhandled).toEqual([]);
});
