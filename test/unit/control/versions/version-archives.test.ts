import { Writable } from 'node:stream';
import { expect, it, onTestFinished } from 'vitest';
import { createLog } from '../../../../src/base/log.ts';
import { VersionArchives } from '../../../../src/control/versions/version-archives.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';

const log = createLog({
  level: 'info',
  destination: new Writable({ write: (_l, _e, end) => end() }),
});
const KEY = { endpointId: 'ep_1', version: 1 };
const ARCHIVE = Buffer.alloc(3_000_000, 'x');

function openStore(): Store {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  return store;
}

it('removes parts without a version', async () => {
  const store = openStore();
  await store.write((tx) => tx.putVersionPart(KEY, 0, ARCHIVE.subarray(0, 9)));
  await new VersionArchives({ store, log }).sweep();
  expect(await store.read((tx) => tx.versionsWithParts())).toEqual([]);
});

it('leaves an archive whose upload ends after the parts were listed', async () => {
  const store = openStore();
  const slow = Promise.withResolvers<void>();
  const listed = Promise.withResolvers<void>();
  const late: Store = {
    write: (operation, options) => store.write(operation, options),
    async read(operation) {
      const found = await store.read(operation);
      listed.resolve();
      await slow.promise;
      return found;
    },
    reclaim: (pages) => store.reclaim(pages),
    close: () => store.close(),
  };
  const archives = new VersionArchives({ store: late, log });
  let swept: Promise<void> | undefined;
  await archives.write(KEY, ARCHIVE, async () => {
    swept = archives.sweep();
    await listed.promise;
    const place = { kind: 'version', id: 'ep_1/1', userId: 'ann', parent: 'ep_1' };
    await store.write((tx) => tx.putResource({ ...place, position: 1, body: '{}' }));
  });
  slow.resolve();
  await swept;
  const parts = await archives.read(KEY, ARCHIVE.length);
  expect(parts?.reduce((sum, part) => sum + part.length, 0)).toBe(ARCHIVE.length);
});
