// Files of large payloads: what is on disk after each call, and after each failure.
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { locatePayloads, PayloadFolder } from '../../../../src/store/disk/payload-files.ts';
import { PayloadFileError, type StagedPayload } from '../../../../src/store/store.ts';

const PAYLOAD: StagedPayload = { kind: 'input', endpointId: 'e', id: 'a', origin: 2 ** 31 };
const SMALL = Buffer.from('the payload');
/** The system refuses each write to it for lack of space. */
const FULL_DISK = '/dev/full';

let parent: string;
let folder: string;
let failures: unknown[];
let files: PayloadFolder;

beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), 'millrace-payload-files-'));
  folder = locatePayloads(join(parent, 'm.db'));
  failures = [];
  files = new PayloadFolder({ folder, onFailure: (error) => failures.push(error) });
});
afterEach(() => rmSync(parent, { recursive: true }));

async function write(payload: StagedPayload, ...parts: Uint8Array[]): Promise<void> {
  const file = await files.create(payload);
  for (const part of parts) await file.append(part);
  await file.finish();
}

const modeOf = (path: string) => statSync(path).mode & 0o777;

describe('a payload', () => {
  it('has the bytes of all parts, whole and in parts', async () => {
    await write(PAYLOAD, Buffer.from('the '), Buffer.from('payload'));
    expect(await files.read(PAYLOAD, SMALL.length)).toEqual(SMALL);
    expect(files.readPart(PAYLOAD, 4, 7)).toEqual(Buffer.from('payload'));
    expect(failures).toEqual([]);
  });

  it('is readable by its owner only, and so is the folder', async () => {
    expect(existsSync(folder)).toBe(false);
    await write(PAYLOAD, SMALL);
    expect(modeOf(folder)).toBe(0o700);
    expect(modeOf(files.locate(PAYLOAD))).toBe(0o600);
  });

  it('replaces a longer file of the same name that remains from before', async () => {
    await write(PAYLOAD, Buffer.alloc(100, 'x'));
    await write(PAYLOAD, SMALL);
    expect(readFileSync(files.locate(PAYLOAD))).toEqual(SMALL);
  });

  it('is undefined if its file is missing or short', async () => {
    expect(await files.read(PAYLOAD, SMALL.length)).toBeUndefined();
    await write(PAYLOAD, SMALL);
    truncateSync(files.locate(PAYLOAD), SMALL.length - 1);
    expect(await files.read(PAYLOAD, SMALL.length)).toBeUndefined();
    expect(files.readPart(PAYLOAD, 4, 7)).toBeUndefined();
    expect(files.readPart({ ...PAYLOAD, id: 'other' }, 0, 1)).toBeUndefined();
    expect(failures).toEqual([]);
  });

  it('is removed alone; a missing one is removed already', async () => {
    const other = { ...PAYLOAD, kind: 'output' as const };
    await files.remove([PAYLOAD]);
    await write(PAYLOAD, SMALL);
    await write(other, SMALL);
    await files.remove([PAYLOAD]);
    await files.remove([PAYLOAD, { ...PAYLOAD, id: 'missing' }]);
    expect(readdirSync(folder)).toEqual([basename(files.locate(other))]);
    expect(failures).toEqual([]);
  });
});

describe('the name of a file', () => {
  const others: [string, Partial<StagedPayload>][] = [
    ['kind', { kind: 'output' }],
    ['endpoint', { endpointId: 'f' }],
    ['job', { id: 'b' }],
    ['origin', { origin: 0 }],
  ];

  it.each(others)('depends on the %s', (_what, change) => {
    expect(files.locate({ ...PAYLOAD, ...change })).not.toBe(files.locate(PAYLOAD));
  });

  it('has no text of a caller', async () => {
    const odd = { ...PAYLOAD, endpointId: '/etc', id: '../../x' };
    expect(dirname(files.locate(odd))).toBe(folder);
    expect(basename(files.locate(odd))).toMatch(/^[0-9a-f]{40}$/);
    await write(odd, SMALL);
    expect(readdirSync(parent)).toEqual([basename(folder)]);
    expect(await files.read(odd, SMALL.length)).toEqual(SMALL);
  });
});

describe('a failure of the disk', () => {
  it('of each call is reported and rejects with a PayloadFileError', async () => {
    writeFileSync(folder, 'a file instead of the folder');
    await expect(files.create(PAYLOAD)).rejects.toThrow(PayloadFileError);
    await expect(files.read(PAYLOAD, 1)).rejects.toThrow(PayloadFileError);
    await expect(files.remove([PAYLOAD])).rejects.toThrow(PayloadFileError);
    const failure = { code: 'ENOTDIR' };
    expect(failures).toEqual([
      expect.objectContaining(failure),
      expect.objectContaining(failure),
      expect.objectContaining(failure),
    ]);
    expect(readFileSync(folder, 'utf8')).toBe('a file instead of the folder');
  });

  it('names the path and the reason', async () => {
    writeFileSync(folder, '');
    await expect(files.create(PAYLOAD)).rejects.toThrow(
      new RegExp(`^The file ${folder}/[0-9a-f]{40} cannot be used now: ENOTDIR`),
    );
  });

  it.skipIf(!existsSync(FULL_DISK))('while a part is written leaves no file', async () => {
    await write({ ...PAYLOAD, id: 'other' }, SMALL);
    symlinkSync(FULL_DISK, files.locate(PAYLOAD));
    const file = await files.create(PAYLOAD);
    await expect(file.append(SMALL)).rejects.toThrow(PayloadFileError);
    expect(failures).toEqual([expect.objectContaining({ code: 'ENOSPC' })]);
    await expect(file.finish()).rejects.toThrow(PayloadFileError);
    expect(readdirSync(folder)).toEqual([basename(files.locate({ ...PAYLOAD, id: 'other' }))]);
  });
});

describe('a lost file', () => {
  it('is reported, and the error names it', () => {
    const error = files.reportLost(PAYLOAD);
    expect(error).toBeInstanceOf(PayloadFileError);
    expect(error.message).toContain(`${files.locate(PAYLOAD)} cannot be used now: it is missing`);
    expect(failures).toEqual([expect.objectContaining({ code: 'ENOENT' })]);
  });
});

it('a folder is usable until the disk is full', () => {
  let isFull = false;
  const gated = new PayloadFolder({ folder, isUsable: () => !isFull });
  expect(gated.isUsable).toBe(true);
  isFull = true;
  expect(gated.isUsable).toBe(false);
  expect(files.isUsable).toBe(true);
});
