import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createUuidV7 } from '../../../src/base/id.ts';
import { createRandomId } from '../../../src/base/random-id.ts';

describe('a UUID', () => {
  it('has version 7, carries its time and sorts by it', () => {
    const now = Date.UTC(2026, 10, 20, 12);
    const id = createUuidV7(now);
    expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16)).toBe(now);
    expect(createUuidV7(now + 1) > id).toBe(true);
    expect(createUuidV7(now)).not.toBe(id);
  });
});

describe('a random ID', () => {
  it('has 32 hexadecimal digits, and no other has the same', () => {
    const ids = Array.from({ length: 1_000 }, createRandomId);
    expect(new Set(ids).size).toBe(1_000);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
    // Each digit has each value somewhere.
    for (let at = 0; at < 32; at++) expect(new Set(ids.map((id) => id[at])).size).toBe(16);
  });

  it('is made while the process may open no file', () => {
    const open = vi.spyOn(fs, 'openSync').mockImplementation(() => {
      throw new Error('EMFILE: too many open files');
    });
    syncBuiltinESMExports();
    onTestFinished(() => {
      open.mockRestore();
      syncBuiltinESMExports();
    });
    const ids = [createRandomId(), createRandomId()];
    expect(open).toHaveBeenCalledTimes(2);
    expect(new Set(ids).size).toBe(2);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{32}$/);
  });
});
