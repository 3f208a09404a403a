import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { createFile } from '../../../../src/platform/files/durable-files.ts';

it('creates a file once, with its mode, and nothing beside it', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-files-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, 'secret');
  createFile(path, 'first', 0o600);
  expect(() => createFile(path, 'second', 0o600)).toThrow(
    expect.objectContaining({ code: 'EEXIST' }),
  );
  expect(readFileSync(path, 'utf8')).toBe('first');
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readdirSync(folder)).toEqual(['secret']);
});
