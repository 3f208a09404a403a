// Folders in places where other users may have made one of the same name.
import {
  chmodSync,
  chownSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { makeOwnFolder } from '../../../src/base/make-folder.ts';

const NOBODY = 65_534;
let path: string;

beforeEach(() => {
  const parent = mkdtempSync(join(tmpdir(), 'millrace-folder-'));
  onTestFinished(() => rmSync(parent, { recursive: true }));
  path = join(parent, 'own');
});

describe('a folder of this user alone', () => {
  it('is made, and taken again', () => {
    makeOwnFolder(path);
    makeOwnFolder(path);
    expect(statSync(path).mode & 0o777).toBe(0o700);
  });

  it('is refused if others can write to it', () => {
    mkdirSync(path);
    chmodSync(path, 0o770);
    expect(() => makeOwnFolder(path)).toThrow('other users can write to it');
  });

  it('is refused if it is a link, even to a folder of this user', () => {
    symlinkSync(tmpdir(), path);
    expect(() => makeOwnFolder(path)).toThrow('belongs to another user');
  });

  it.runIf(process.getuid?.() === 0)('is refused if another user owns it', () => {
    mkdirSync(path, { mode: 0o700 });
    chownSync(path, NOBODY, NOBODY);
    expect(() => makeOwnFolder(path)).toThrow('belongs to another user');
  });
});
