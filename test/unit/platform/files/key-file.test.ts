// The file of the platform's keys.
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { Keys } from '../../../../src/control/keys/keys.ts';
import { generateKey } from '../../../../src/control/keys/known-keys.ts';
import { useKeyFile } from '../../../../src/platform/files/key-file.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';

let folder: string;
let path: string;
let store: Store;
let keys: Keys;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-keys-'));
  path = join(folder, 'keys');
  store = openSqliteStore({ path: ':memory:' });
  keys = await Keys.open({ store, clock: systemClock });
});

afterEach(async () => {
  await store.close();
  await rm(folder, { recursive: true });
});

it('is created if it is missing, for its owner only', async () => {
  const { admin, origin, worker } = await useKeyFile(keys, path);
  const lines = `MILLRACE_ADMIN_KEY=${admin}\nMILLRACE_WORKER_KEY=${worker}\n`;
  expect(origin).toBe('written');
  expect(await readFile(path, 'utf8')).toBe(lines);
  expect((await stat(path)).mode & 0o777).toBe(0o600);
});

it('is read if it exists, and its keys are valid', async () => {
  const admin = generateKey();
  const worker = generateKey();
  await writeFile(path, `# ours\nMILLRACE_WORKER_KEY = ${worker}\r\nMILLRACE_ADMIN_KEY=${admin}\n`);
  expect(await useKeyFile(keys, path)).toEqual({ admin, worker, origin: 'read' });
  expect(keys.authenticate(admin)?.scopes).toEqual(new Set(['admin']));
  expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker']));
});

it('binds the worker key to the declared endpoints, now and later', async () => {
  const { admin, worker } = await useKeyFile(keys, path, ['a']);
  expect(keys.authenticate(admin)?.scopes).toEqual(new Set(['admin']));
  expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker:a']));
  await useKeyFile(keys, path);
  expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker:a']));
  await useKeyFile(keys, path, ['b', 'a']);
  expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker:a', 'worker:b']));
});

it('does not change a worker key for all endpoints', async () => {
  const { worker } = await useKeyFile(keys, path);
  await useKeyFile(keys, path, ['a']);
  expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker']));
});

it('without one of the keys is refused, naming it', async () => {
  await writeFile(path, `MILLRACE_ADMIN_KEY=${generateKey()}\n`);
  const refused = useKeyFile(keys, path);
  await expect(refused).rejects.toMatchObject({ fault: 'invalid', option: 'keyFile' });
  await expect(refused).rejects.toThrow('MILLRACE_WORKER_KEY');
});

it('with invalid keys is refused without showing them', async () => {
  await writeFile(path, 'MILLRACE_ADMIN_KEY=secret\nMILLRACE_WORKER_KEY=secret\n');
  const refused = useKeyFile(keys, path);
  await expect(refused).rejects.toMatchObject({ fault: 'invalid', option: 'keyFile' });
  await expect(refused).rejects.not.toThrow('=secret');
});

it('in a missing folder is refused', async () => {
  const refused = useKeyFile(keys, join(folder, 'none/keys'));
  await expect(refused).rejects.toMatchObject({ option: 'keyFile' });
  await expect(refused).rejects.toThrow('ENOENT');
});
