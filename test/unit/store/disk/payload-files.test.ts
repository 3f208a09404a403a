// Files of large payloads: what is on disk after each call, and after each failure.
import {
  existsSync,
  mkdirSync,
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
  let at = 0;
  for (const [index, bytes] of parts.entries()) {
    await files.write(payload, { at, bytes, isLast: index === parts.length - 1 });
    at += bytes.length;
  }
}

/** The whole content; undefined if the file is missing or too short. */
async function read(payload: StagedPayload): Promise<Buffer | undefined> {
  const content = Buffer.alloc(SMALL.length);
  return (await files.read(payload, 0, content)) ? content : undefined;
}

const modeOf = (path: string) => statSync(path).mode & 0o777;

describe('a payload', () => {
  it('has the bytes of all parts, whole and in parts', async () => {
    await write(PAYLOAD, Buffer.from('the '), Buffer.from('payload'));
    expect(await read(PAYLOAD)).toEqual(SMALL);
    expect(files.readPartSync(PAYLOAD, 4, 7)).toEqual(Buffer.from('payload'));
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
    expect(await read(PAYLOAD)).toBeUndefined();
    await write(PAYLOAD, SMALL);
    truncateSync(files.locate(PAYLOAD), SMALL.length - 1);
    expect(await read(PAYLOAD)).toBeUndefined();
    expect(files.readPartSync(PAYLOAD, 4, 7)).toBeUndefined();
    expect(files.readPartSync({ ...PAYLOAD, id: 'other' }, 0, 1)).toBeUndefined();
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
    expect(await read(odd)).toEqual(SMALL);
  });
});

describe('a failure of the disk', () => {
  it('is reported for each call and rejects with a PayloadFileError', async () => {
    writeFileSync(folder, 'a file instead of the folder');
    await expect(write(PAYLOAD, SMALL)).rejects.toThrow(PayloadFileError);
    await expect(read(PAYLOAD)).rejects.toThrow(PayloadFileError);
    expect(() => files.readPartSync(PAYLOAD, 0, 1)).toThrow(PayloadFileError);
    expect(await files.remove([PAYLOAD])).toEqual([PAYLOAD]);
    const failure = { code: 'ENOTDIR' };
    expect(new Set(failures.map((error) => Object(error).code))).toEqual(new Set([failure.code]));
    expect(failures.length).toBeGreaterThanOrEqual(4);
    expect(readFileSync(folder, 'utf8')).toBe('a file instead of the folder');
  });

  it('names the path and the reason', async () => {
    writeFileSync(folder, '');
    await expect(write(PAYLOAD, SMALL)).rejects.toThrow(
      new RegExp(`^The file ${folder}/[0-9a-f]{40} cannot be used now: ENOTDIR`),
    );
  });

  it('leaves no file if it comes between two pieces', async () => {
    await write({ ...PAYLOAD, id: 'other' }, SMALL);
    await files.write(PAYLOAD, { at: 0, bytes: SMALL, isLast: false });
    rmSync(files.locate(PAYLOAD));
    symlinkSync(files.locate({ ...PAYLOAD, id: 'other' }), files.locate(PAYLOAD));
    const next = files.write(PAYLOAD, { at: SMALL.length, bytes: SMALL, isLast: true });
    await expect(next).rejects.toThrow(PayloadFileError);
    expect(readdirSync(folder)).toEqual([basename(files.locate({ ...PAYLOAD, id: 'other' }))]);
    expect(readFileSync(files.locate({ ...PAYLOAD, id: 'other' }))).toEqual(SMALL);
  });

  it('ends an upload under way if the disk is full', async () => {
    let isFull = false;
    const gated = new PayloadFolder({ folder, isUsable: () => !isFull });
    await gated.write(PAYLOAD, { at: 0, bytes: SMALL, isLast: false });
    isFull = true;
    const next = gated.write(PAYLOAD, { at: SMALL.length, bytes: SMALL, isLast: true });
    await expect(next).rejects.toThrow('the disk is full');
    expect(readdirSync(folder)).toEqual([]);
  });

  it('keeps no other file from being removed', async () => {
    const other = { ...PAYLOAD, id: 'other' };
    await write(other, SMALL);
    mkdirSync(files.locate(PAYLOAD));
    expect(await files.remove([PAYLOAD, other])).toEqual([PAYLOAD]);
    expect(readdirSync(folder)).toEqual([basename(files.locate(PAYLOAD))]);
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

it('uses a folder until the disk is full', () => {
  let isFull = false;
  const gated = new PayloadFolder({ folder, isUsable: () => !isFull });
  expect(gated.isUsable).toBe(true);
  isFull = true;
  expect(gated.isUsable).toBe(false);
  expect(files.isUsable).toBe(true);
});
