import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { Keys } from '../../../../src/control/keys/keys.ts';
import { generateKey } from '../../../../src/control/keys/known-keys.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { errorAt } from '../../../support/answers.ts';

async function openKeys() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  const clock = new ManualClock();
  const reopen = () => Keys.open({ store, clock });
  return { store, clock, reopen, keys: await reopen() };
}

describe('a key', () => {
  it('is mr_ and 256 random bits in base64url', () => {
    expect(generateKey()).toMatch(/^mr_[A-Za-z0-9_-]{43}$/);
    expect(generateKey()).not.toBe(generateKey());
  });

  it('names its holder, also after a restart', async () => {
    const { keys, reopen } = await openKeys();
    const { key } = await keys.issue({ name: 'ci', userId: 'u1', scopes: ['jobs:write:demo'] });
    for (const some of [keys, await reopen()]) {
      expect(some.authenticate(key)).toMatchObject({
        ...{ name: 'ci', userId: 'u1', expiresAt: null },
        scopes: new Set(['jobs:write:demo']),
      });
    }
  });

  it('is stored as its hash only', async () => {
    const { keys, store } = await openKeys();
    const { key } = await keys.issue({ name: 'x', scopes: ['admin'] });
    const stored = JSON.stringify(await store.read((tx) => tx.keys()));
    expect(stored).not.toContain(key);
    expect(stored).not.toContain(key.slice(3));
  });

  it('is unknown if it was never issued or is not a key', async () => {
    const { keys } = await openKeys();
    for (const text of [generateKey(), '', 'mr_', 'Basic abc', `${generateKey()}x`]) {
      expect(keys.authenticate(text)).toBeUndefined();
    }
  });

  it('ends at its expiry', async () => {
    const { clock, keys } = await openKeys();
    const expiresAt = clock.now() + 1_000;
    const { key } = await keys.issue({ name: 'x', scopes: ['admin'], expiresAt });
    await clock.advance(999);
    expect(keys.authenticate(key)).toBeDefined();
    await clock.advance(1);
    expect(keys.authenticate(key)).toBeUndefined();
  });

  it.each([
    [[], 'scopes'],
    [['everything'], 'scopes[0]'],
    [['jobs:read:pods'], 'scopes[0]'],
    [['jobs:read', 'worker:a b'], 'scopes[1]'],
  ])('is refused by path with the scopes %j', async (scopes, path) => {
    const { keys } = await openKeys();
    await expect(keys.issue({ name: 'x', scopes })).rejects.toMatchObject({
      code: 'invalid',
      errors: [errorAt(path)],
    });
  });
});

describe('keys that another process changes', () => {
  it('are valid, changed or unknown after a reload, and listeners learn of each', async () => {
    const { keys, reopen } = await openKeys();
    const other = await reopen();
    const kept = await keys.issue({ name: 'kept', scopes: ['admin'] });
    const removed = await keys.issue({ name: 'removed', scopes: ['admin'] });
    await other.reload();
    const noted: string[] = [];
    other.onChange((keyId) => noted.push(keyId));
    const added = await keys.issue({ name: 'added', scopes: ['worker'] });
    await keys.remove(removed.holder.keyId);
    expect(other.authenticate(removed.key)).toBeDefined();
    await other.reload();
    expect(other.authenticate(removed.key)).toBeUndefined();
    expect(other.authenticate(kept.key)).toEqual(kept.holder);
    expect(other.authenticate(added.key)).toEqual(added.holder);
    expect(noted).toEqual([removed.holder.keyId, added.holder.keyId]);
  });
});

describe('the first start', () => {
  it('creates an admin key and a worker key once', async () => {
    const { keys, reopen } = await openKeys();
    const first = await keys.ensureFirstKeys();
    expect(keys.authenticate(first?.admin ?? '')?.scopes).toEqual(new Set(['admin']));
    expect(keys.authenticate(first?.worker ?? '')?.scopes).toEqual(new Set(['worker']));
    expect(await keys.ensureFirstKeys()).toBeUndefined();
    expect(await (await reopen()).ensureFirstKeys()).toBeUndefined();
  });

  it('binds its worker key to the endpoints that are declared with it', async () => {
    const { keys } = await openKeys();
    const first = await keys.ensureFirstKeys(['a', 'b']);
    const scopes = new Set(['worker:a', 'worker:b']);
    expect(keys.authenticate(first?.worker ?? '')?.scopes).toEqual(scopes);
  });

  it('creates no key if a key file was given', async () => {
    const { keys } = await openKeys();
    await keys.importKey(generateKey(), { name: 'file', scopes: ['admin'] });
    expect(await keys.ensureFirstKeys()).toBeUndefined();
  });
});

describe('an imported key', () => {
  it('is valid, and a second import changes its scopes', async () => {
    const { keys, store } = await openKeys();
    const key = generateKey();
    const { keyId } = await keys.importKey(key, { name: 'file', scopes: ['jobs:read'] });
    await keys.importKey(key, { name: 'file', scopes: ['worker'] });
    expect(keys.authenticate(key)).toMatchObject({ keyId, scopes: new Set(['worker']) });
    expect(await store.read((tx) => tx.keys())).toHaveLength(1);
  });

  it('moves to the user that a second import names', async () => {
    const { keys } = await openKeys();
    const key = generateKey();
    const { keyId } = await keys.importKey(key, { name: 'file', userId: 'a', scopes: ['worker'] });
    await keys.importKey(key, { name: 'file', userId: 'b', scopes: ['worker'] });
    expect(keys.ofUser('a')).toEqual([]);
    expect(keys.ofUser('b').map(({ holder }) => holder.keyId)).toEqual([keyId]);
    expect(keys.find(keyId)?.holder.userId).toBe('b');
  });

  it('is refused in another form', async () => {
    const { keys } = await openKeys();
    const imported = keys.importKey('hunter2', { name: 'file', scopes: ['admin'] });
    await expect(imported).rejects.toThrow('"mr_" and 43 characters');
    await expect(imported).rejects.not.toThrow('hunter2');
  });
});
