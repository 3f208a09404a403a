import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import {
  createName,
  createNodeId,
  findNameInId,
  readEngineName,
  readNodeName,
} from '../../../../src/platform/files/stored-names.ts';

function makeFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-name-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  return folder;
}

it('keeps the name of the first start', () => {
  const folder = makeFolder();
  const name = readEngineName(folder);
  expect(name).toMatch(/^[a-z0-9]{12}$/);
  expect(readEngineName(folder)).toBe(name);
  expect(readFileSync(join(folder, 'engine-name'), 'utf8')).toBe(`${name}\n`);
});

it('gives two platforms different names', () => {
  expect(readEngineName(makeFolder())).not.toBe(readEngineName(makeFolder()));
});

it('refuses a file without a name, and leaves it unchanged', () => {
  const folder = makeFolder();
  const path = join(folder, 'engine-name');
  writeFileSync(path, '');
  expect(() => readEngineName(folder)).toThrow(
    expect.objectContaining({ fault: 'unusable', option: 'dataFolder' }),
  );
  expect(readFileSync(path, 'utf8')).toBe('');
});

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-name-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

it.each([
  ['GPU-Box_1.example.com', /^gpu-box-1-[0-9a-f]{6}$/],
  ['', /^node-[0-9a-f]{6}$/],
  ['--', /^node-[0-9a-f]{6}$/],
  ['x'.repeat(200), /^x{48}-[0-9a-f]{6}$/],
])('begins with the name of the machine: %j', (host, expected) => {
  expect(createName(host)).toMatch(expected);
  expect(createName(host)).not.toBe(createName(host));
});

it('stays the same in a data folder, and differs between two', () => {
  const folder = createFolder();
  const name = readNodeName(folder);
  expect(readNodeName(folder)).toBe(name);
  expect(readNodeName(createFolder())).not.toBe(name);
});

it('is found in the ID of a node, which is another one at each start', () => {
  const id = createNodeId('gpu-1-a3f9c2');
  expect(createNodeId('gpu-1-a3f9c2')).not.toBe(id);
  expect(findNameInId(id)).toBe('gpu-1-a3f9c2');
  expect(findNameInId(createNodeId(''))).toBeNull();
  expect(findNameInId('node_01912f4e-7b0a-7c3e-9d51-2f6b8a1c4d70')).toBeNull();
});

it('is refused if the file has something else, with the path', () => {
  const folder = createFolder();
  writeFileSync(join(folder, 'node-name'), 'No Name\n');
  expect(() => readNodeName(folder)).toThrow(/^dataFolder: \S+node-name: must contain the name/);
});
