import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { readEngineName } from '../../../../src/platform/files/engine-name.ts';

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-name-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

it('a platform keeps the name of its first start', () => {
  const folder = makeFolder();
  const name = readEngineName(folder);
  expect(name).toMatch(/^[a-z0-9]{12}$/);
  expect(readEngineName(folder)).toBe(name);
  expect(readFileSync(join(folder, 'engine-name'), 'utf8')).toBe(`${name}\n`);
});

it('two platforms have different names', () => {
  expect(readEngineName(makeFolder())).not.toBe(readEngineName(makeFolder()));
});

it('a file without a name is refused and unchanged', () => {
  const folder = makeFolder();
  const path = join(folder, 'engine-name');
  writeFileSync(path, '');
  expect(() => readEngineName(folder)).toThrow(
    expect.objectContaining({ fault: 'unusable', option: 'dataFolder' }),
  );
  expect(readFileSync(path, 'utf8')).toBe('');
});
