import {
  appendFileSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { cutLog, readLogEnd } from '../../../../src/engine/process/log-file.ts';

let folder: string;
let path: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-log-'));
  path = join(folder, 'log');
});

afterEach(() => rmSync(folder, { recursive: true }));

async function readText(maxBytes: number): Promise<string> {
  return Buffer.from(await readLogEnd(path, maxBytes)).toString();
}

describe('a log', () => {
  it('that is missing is empty', async () => {
    await cutLog(path);
    expect(await readText(100)).toBe('');
  });

  it('is read from its end', async () => {
    writeFileSync(path, 'one\ntwo\n');
    expect(await readText(4)).toBe('two\n');
    expect(await readText(100)).toBe('one\ntwo\n');
    expect(await readText(0)).toBe('');
  });

  it('is unchanged while it is short', async () => {
    writeFileSync(path, '12345');
    await cutLog(path, 5);
    expect(readFileSync(path, 'utf8')).toBe('12345');
  });

  it('that is too long restarts empty, with its end in another file', async () => {
    writeFileSync(path, '123456789');
    await cutLog(path, 5);
    expect(statSync(path).size).toBe(0);
    appendFileSync(path, 'ab');
    expect(await readText(100)).toBe('56789ab');
    expect(await readText(4)).toBe('89ab');
  });

  it('keeps one earlier part', async () => {
    for (const text of ['111111', '222222', '333333']) {
      appendFileSync(path, text);
      await cutLog(path, 5);
    }
    expect(await readText(100)).toBe('33333');
  });
});
