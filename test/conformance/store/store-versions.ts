// Archives of versions, in parts.
import { expect, it } from 'vitest';
import type { VersionKey } from '../../../src/store/store.ts';
import { bytesOf, store, textOf } from './store-under-test.ts';

const FIRST: VersionKey = { endpointId: 'ep_1', version: 1 };
const TENTH: VersionKey = { endpointId: 'ep_1', version: 10 };

async function put(key: VersionKey, ...parts: readonly string[]): Promise<void> {
  for (const [index, part] of parts.entries()) {
    await store.write((tx) => tx.putVersionPart(key, index, bytesOf(part)));
  }
}

async function readParts(key: VersionKey): Promise<string[]> {
  const parts: string[] = [];
  for (;;) {
    const part = await store.read((tx) => tx.versionPart(key, parts.length));
    if (!part) return parts;
    parts.push(textOf(part) ?? '');
  }
}

export function describeVersions(): void {
  it('keeps the parts of each version in their order', async () => {
    await put(TENTH, 'x');
    await put(FIRST, 'a', 'b', 'c');
    expect(await readParts(FIRST)).toEqual(['a', 'b', 'c']);
    expect(await readParts(TENTH)).toEqual(['x']);
    expect(await readParts({ endpointId: 'ep_2', version: 1 })).toEqual([]);
  });

  it('keeps bytes of every value in a part of 1 MB', async () => {
    const part = new Uint8Array(1_048_576).map((_, index) => index);
    await store.write((tx) => tx.putVersionPart(FIRST, 0, part));
    const kept = await store.read((tx) => tx.versionPart(FIRST, 0));
    expect(Buffer.compare(kept ?? new Uint8Array(), part)).toBe(0);
  });

  it('replaces a part that an interrupted upload has left', async () => {
    await put(FIRST, 'old');
    await put(FIRST, 'new', 'b');
    expect(await readParts(FIRST)).toEqual(['new', 'b']);
  });

  it('lists the versions that have parts', async () => {
    await put(TENTH, 'x');
    await put(FIRST, 'a', 'b');
    await put({ endpointId: 'ep_0', version: 2 }, 'z');
    const listed = await store.read((tx) => tx.versionsWithParts());
    expect(listed).toEqual([{ endpointId: 'ep_0', version: 2 }, FIRST, TENTH]);
  });

  it('is deleted in steps, the last parts first', async () => {
    await put(FIRST, 'a', 'b', 'c');
    await put(TENTH, 'x');
    const remove = (limit: number) => store.write((tx) => tx.removeVersionParts(FIRST, limit));
    const count = () => store.read((tx) => tx.versionParts(FIRST));
    expect(await count()).toBe(3);
    await remove(2);
    expect([await readParts(FIRST), await count()]).toEqual([['a'], 1]);
    await remove(2);
    await remove(2);
    expect(await count()).toBe(0);
    expect(await store.read((tx) => tx.versionsWithParts())).toEqual([TENTH]);
  });
}
