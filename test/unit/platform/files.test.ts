// The files that a platform makes in its data folder.
import { readdirSync, statSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openPlatform } from '../../../src/platform/platform.ts';

it('hides stored data from other users, also in a folder that they can read', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-files-'));
  await chmod(folder, 0o755);
  const platform = await openPlatform({
    dataFolder: folder,
    endpoints: ['echo'],
  });
  onTestFinished(async () => {
    await platform.close();
    await rm(folder, { recursive: true });
  });
  const stored = readdirSync(folder).filter((name) => name.startsWith('millrace.db'));
  expect(stored).toContain('millrace.db-wal');
  for (const name of stored) expect(statSync(join(folder, name)).mode & 0o077).toBe(0);
});
