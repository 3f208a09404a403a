// Packing and unpacking: what is packed comes back, and equal files give equal archives.
import { execFileSync } from 'node:child_process';
import {
  chmod,
  mkdir,
  mkdtemp,
  readFile,
  rm,
  stat,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { packFiles } from '../../../src/archive/project-files.ts';
import { inspectArchive, unpackArchive } from '../../../src/archive/unpack.ts';
import { ARCHIVE_LIMITS } from '../../../src/wire/archive-limits.ts';
import { fc } from '../../support/properties.ts';

let root: string;
let folders = 0;

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'millrace-pack-'));
});

afterAll(() => rm(root, { recursive: true }));

function nameFolder(): string {
  folders += 1;
  return join(root, String(folders));
}

async function writeFiles(files: Readonly<Record<string, string | Uint8Array>>): Promise<string> {
  const folder = nameFolder();
  for (const [path, content] of Object.entries(files)) {
    await mkdir(join(folder, dirname(path)), { recursive: true });
    await writeFile(join(folder, path), content);
  }
  return folder;
}

async function* inParts(bytes: Uint8Array, size: number) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

const name = fc
  .string({ unit: 'grapheme', minLength: 1, maxLength: 40 })
  .map((text) => text.replaceAll(/[^\p{L}\p{N}\p{P}\p{S} ]|[/\\:\ufffd]/gu, '_'))
  .filter((text) => !/^\.*$/.test(text) && Buffer.byteLength(text) <= 255);
const path = fc
  .array(name, { minLength: 1, maxLength: 6 })
  .map((names) => names.join('/'))
  .filter((text) => Buffer.byteLength(text) <= 500);
const content = fc.uint8Array({ maxLength: 3_000 });

/** No file of the tree is a folder of another one. */
const tree = fc
  .uniqueArray(fc.tuple(path, content), { selector: ([each]) => each, minLength: 1, maxLength: 12 })
  .map((files) => files.filter(([each]) => !files.some(([other]) => other.startsWith(`${each}/`))))
  .filter((files) => files.length > 0);

describe('packFiles and unpackArchive', () => {
  it('give back every file, in parts of any size', async () => {
    await fc.assert(
      fc.asyncProperty(tree, fc.integer({ min: 60, max: 5_000 }), async (files, partBytes) => {
        const folder = await writeFiles(Object.fromEntries(files));
        const paths = files.map(([each]) => each);
        const packed = await packFiles(folder, paths);
        const target = nameFolder();
        const unpacked = await unpackArchive(inParts(packed.bytes, partBytes), target);
        expect(unpacked.files).toEqual(packed.files);
        expect(packed.files.map((file) => file.path)).toEqual(paths.toSorted());
        for (const [each, bytes] of files) {
          expect(new Uint8Array(await readFile(join(target, each)))).toEqual(bytes);
        }
        expect(await inspectArchive(inParts(packed.bytes, partBytes))).toEqual(unpacked);
      }),
      { numRuns: 40, endOnFailure: true },
    );
  });

  it('keep long paths and letters that are no ASCII', async () => {
    const long = `${'ü'.repeat(120)}/${'n'.repeat(200)}/${'x'.repeat(50)}`;
    const folder = await writeFiles({ [long]: 'long' });
    const { bytes } = await packFiles(folder, [long]);
    const target = nameFolder();
    await unpackArchive(inParts(bytes, 700), target);
    expect(await readFile(join(target, long), 'utf8')).toBe('long');
  });

  it('keep only the executable bit of the mode', async () => {
    const folder = await writeFiles({ 'run.sh': '', 'data.txt': '' });
    await chmod(join(folder, 'run.sh'), 0o700);
    await chmod(join(folder, 'data.txt'), 0o600);
    const { bytes, files } = await packFiles(folder, ['run.sh', 'data.txt']);
    expect(files.map(({ isExecutable }) => isExecutable)).toEqual([false, true]);
    const target = nameFolder();
    await unpackArchive(inParts(bytes, 512), target);
    expect((await stat(join(target, 'run.sh'))).mode & 0o111).not.toBe(0);
    expect((await stat(join(target, 'data.txt'))).mode & 0o111).toBe(0);
  });

  it('make an archive that GNU tar reads', async () => {
    const files = { 'package.json': '{}', [`${'d'.repeat(120)}/ä.ts`]: 'x'.repeat(5_000) };
    const folder = await writeFiles(files);
    const { bytes } = await packFiles(folder, Object.keys(files));
    const target = nameFolder();
    await mkdir(target);
    execFileSync('tar', ['xzf', '-', '-C', target], { input: bytes });
    for (const [each, text] of Object.entries(files)) {
      expect(await readFile(join(target, each), 'utf8')).toBe(text);
    }
  });

  it('unpacks what GNU tar packs, long paths included', async () => {
    const files = { 'a.ts': 'a', [`${'d'.repeat(120)}/${'e'.repeat(90)}/b.ts`]: 'b' };
    const folder = await writeFiles(files);
    for (const format of ['gnu', 'pax']) {
      const packed = execFileSync('tar', ['czf', '-', `--format=${format}`, '-C', folder, '.']);
      const { files: found } = await inspectArchive(inParts(packed, 1_000));
      expect(found.map((file) => file.path).toSorted()).toEqual(Object.keys(files).toSorted());
    }
  });
});

describe('packFiles', () => {
  it('gives equal bytes for equal files, whatever their times and order', async () => {
    const files = { 'b.ts': 'b', 'a/c.ts': 'c' };
    const [first, second] = [await writeFiles(files), await writeFiles(files)];
    await utimes(join(second, 'b.ts'), 1, 1);
    const one = await packFiles(first, ['b.ts', 'a/c.ts']);
    const other = await packFiles(second, ['a/c.ts', 'b.ts']);
    expect(one.sha256).toBe(other.sha256);
    await writeFile(join(second, 'b.ts'), 'x');
    expect((await packFiles(second, ['a/c.ts', 'b.ts'])).sha256).not.toBe(one.sha256);
  });

  it('refuses more bytes than the limits allow', async () => {
    const folder = await writeFiles({ 'a.bin': Buffer.alloc(3_000, 'a'), 'b.bin': 'b' });
    const pack = (limits: object) =>
      packFiles(folder, ['a.bin', 'b.bin'], { ...ARCHIVE_LIMITS, ...limits });
    await expect(pack({ unpackedBytes: 3_000 })).rejects.toThrow('more than 3000 bytes together');
    await expect(pack({ bytes: 20 })).rejects.toThrow('archive has more than 20 bytes');
    await expect(pack({ files: 1 })).rejects.toThrow('more than 1 files');
    await expect(pack({ unpackedBytes: 3_001 })).resolves.toBeDefined();
  });

  it('refuses a file that has more bytes than its size says', async () => {
    // Files of /proc have the size 0, like a file that grows while it is read.
    await expect(packFiles('/proc', ['version'])).rejects.toThrow('changed while it was packed');
  });

  it('follows no link', async () => {
    const folder = await writeFiles({ 'a.txt': 'a' });
    await symlink('/etc/hostname', join(folder, 'link'));
    await expect(packFiles(folder, ['a.txt', 'link'])).rejects.toThrow('ELOOP');
  });
});
