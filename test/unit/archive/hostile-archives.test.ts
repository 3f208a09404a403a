// Hostile archives: unpacking stops with an error that names the path, and writes nothing outside the folder.
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createGzip, gzipSync } from 'node:zlib';
import { Header } from 'tar/header';
import { Pax } from 'tar/pax';
import type { EntryTypeName } from 'tar/types';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ArchiveError } from '../../../src/archive/archive-paths.ts';
import { inspectArchive, unpackArchive } from '../../../src/archive/unpack.ts';
import { ARCHIVE_LIMITS } from '../../../src/wire/archive-limits.ts';
import { fc } from '../../support/properties.ts';

let root: string;

beforeEach(async () => {
  root = await mkdtemp(join(tmpdir(), 'millrace-hostile-'));
});

afterEach(() => rm(root, { recursive: true }));

interface Entry {
  path: string;
  content?: string;
  type?: EntryTypeName;
  linkpath?: string;
  /** The size that the header claims. */
  size?: number;
}

const END = Buffer.alloc(1_024);

function formatEntry({ content = '', linkpath, path, size, type = 'File' }: Entry): Buffer {
  const bytes = Buffer.from(content);
  const fields = { path, size: size ?? bytes.length, mode: 0o644, type };
  const header = new Header({ ...fields, ...(linkpath !== undefined && { linkpath }) });
  const needsRecord = header.encode();
  return Buffer.concat([
    needsRecord ? new Pax(fields).encode() : Buffer.alloc(0),
    header.block ?? Buffer.alloc(0),
    bytes,
    Buffer.alloc((512 - (bytes.length % 512)) % 512),
  ]);
}

function formatTar(entries: readonly Entry[]): Buffer {
  return Buffer.concat([...entries.map(formatEntry), END]);
}

async function* inParts(bytes: Uint8Array, size = 1_000) {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

/** Expects that unpacking and inspection refuse the archive alike, and that unpacking leaves nothing. */
async function expectRefused(packed: Uint8Array, message: string | RegExp, limits = {}) {
  const all = { ...ARCHIVE_LIMITS, ...limits };
  const target = join(root, 'target');
  const unpacking = unpackArchive(inParts(packed), target, all);
  await expect(unpacking).rejects.toThrow(message);
  await expect(unpacking).rejects.toBeInstanceOf(ArchiveError);
  await expect(inspectArchive(inParts(packed), all)).rejects.toThrow(message);
  expect(await readdir(root)).toEqual([]);
}

function expectEntriesRefused(entries: readonly Entry[], message: string | RegExp, limits = {}) {
  return expectRefused(gzipSync(formatTar(entries)), message, limits);
}

describe('an archive is refused', () => {
  it.each([
    ['/etc/passwd', '"/etc/passwd" is absolute'],
    ['C:evil', 'is absolute'],
    ['../evil', '"../evil" leaves the folder'],
    ['a/../../evil', 'leaves the folder'],
    ['a/..', 'leaves the folder'],
    ['a//b', 'empty part'],
    ['a/./b', 'empty part'],
    ['..\\evil', 'contains a backslash'],
    ['new\nline', 'contains a control character'],
    ['escape\u001b[2J', 'contains a control character'],
    [`${'d/'.repeat(32)}x`, 'has more than 32 parts'],
    [Array(3).fill('d'.repeat(200)).join('/'), 'longer than 512 bytes'],
    ['n'.repeat(256), 'name longer than 255 bytes'],
  ])('for the path %j', async (path, message) => {
    await expectEntriesRefused([{ path: 'first.txt' }, { path, content: 'x' }], message);
    await expectEntriesRefused([{ path, type: 'Directory' }, { path: 'a.txt' }], message);
  });

  it('for a path with a byte 0 in an extended header', async () => {
    const record = 'path=a\0b\n';
    const body = `${record.length + 3} ${record}`;
    const head: Entry = { path: 'PaxHeader', type: 'ExtendedHeader', content: body };
    const packed = gzipSync(formatTar([head, { path: 'a' }, { path: 'a' }]));
    await expectRefused(packed, '"a" appears twice');
  });

  it.each<[EntryTypeName, string]>([
    ['SymbolicLink', '/etc/passwd'],
    ['Link', 'first.txt'],
  ])('for a %s', async (type, linkpath) => {
    await expectEntriesRefused(
      [{ path: 'first.txt' }, { path: 'link', type, linkpath }],
      `"link" is neither a file nor a folder, but of type ${type}`,
    );
  });

  it.each<EntryTypeName>(['CharacterDevice', 'BlockDevice', 'FIFO', 'SparseFile', 'GNUDumpDir'])(
    'for a %s',
    async (type) => {
      await expectEntriesRefused([{ path: 'odd', type }], `"odd" is neither a file nor a folder`);
    },
  );

  it('for a path that appears twice, or is a file and a folder', async () => {
    await expectEntriesRefused([{ path: 'a' }, { path: 'a' }], '"a" appears twice');
    const both = '"a" is both a file and a folder';
    await expectEntriesRefused([{ path: 'a' }, { path: 'a/b' }], both);
    await expectEntriesRefused([{ path: 'a/b' }, { path: 'a' }], both);
    await expectEntriesRefused([{ path: 'a' }, { path: 'a', type: 'Directory' }], both);
  });

  it('for too many files or folders', async () => {
    const entries = ['a', 'b', 'c'].map((path) => ({ path }));
    await expectEntriesRefused(entries, 'more than 2 files', { files: 2 });
    const folders = ['a/b/c/file'].map((path) => ({ path }));
    await expectEntriesRefused(folders, 'more than 2 folders', { files: 2 });
  });

  it('for files that are too large together', async () => {
    const entries = ['a', 'b'].map((path) => ({ path, content: 'x'.repeat(60) }));
    await expectEntriesRefused(entries, 'more than 119 bytes together', { unpackedBytes: 119 });
  });

  it('at once for a file whose header claims too much', async () => {
    const huge = { path: 'huge', size: 2 ** 33 };
    await expectEntriesRefused([huge], 'more than 250 MB together');
  });

  it('for more compressed bytes than the limit', async () => {
    await expectEntriesRefused([{ path: 'a' }], 'archive has more than 10 bytes', {
      bytes: 10,
    });
  });

  it('when it ends early, or is no archive', async () => {
    const packed = gzipSync(formatTar([{ path: 'a', content: 'x'.repeat(2_000) }]));
    await expectRefused(packed.subarray(0, packed.length - 8), 'incomplete');
    await expectRefused(packed.subarray(0, 20), 'incomplete');
    await expectRefused(Buffer.alloc(0), 'incomplete');
    const damaged = Buffer.from(packed);
    damaged[packed.length - 6] = (packed.at(-6) ?? 0) ^ 1;
    await expectRefused(damaged, 'not a gzip file, or is damaged');
    await expectRefused(Buffer.from('PK\u0003\u0004 a zip file'), 'not a gzip file');
    await expectRefused(gzipSync('x'.repeat(2_000)), 'not a tar file');
    await expectRefused(gzipSync(packed), 'not a tar file');
    await expectRefused(gzipSync(END), 'has no files');
    const inside = formatTar([{ path: 'a', content: 'x'.repeat(2_000) }]).subarray(0, 1_024);
    await expectRefused(gzipSync(inside), 'ends inside "a"');
    await expectRefused(gzipSync(formatEntry({ path: 'a' })), 'incomplete');
  });

  it('for a header of many bytes', async () => {
    const head: Entry = { path: 'x', type: 'ExtendedHeader', content: 'x'.repeat(70_000) };
    await expectEntriesRefused([head, { path: 'a' }], 'header of 70000 bytes');
  });
});

describe('a small archive that expands without end', () => {
  /** Yields empty blocks' gzip stream until somebody stops reading. */
  async function* bomb(head: Uint8Array, seen: { bytes: number }) {
    const gzip = createGzip();
    gzip.write(head);
    const zeros = Buffer.alloc(4 * 1_048_576);
    const feed = () => {
      while (gzip.write(zeros));
      gzip.once('drain', feed);
    };
    feed();
    try {
      for await (const chunk of gzip) {
        seen.bytes += chunk.length;
        yield chunk;
      }
    } finally {
      gzip.removeAllListeners('drain');
      gzip.destroy();
    }
  }

  it('stops at the limit: a file that goes on', async () => {
    const seen = { bytes: 0 };
    const head = formatEntry({ path: 'zeros', size: 2 ** 30 });
    const limits = { ...ARCHIVE_LIMITS, unpackedBytes: 2 ** 31 };
    const cut = inspectArchive(bomb(head, seen), { ...limits, bytes: 100_000 });
    await expect(cut).rejects.toThrow('archive has more than 100000 bytes');
    expect(seen.bytes).toBeLessThan(1_000_000);
  });

  it('stops at the limit: records before one file', async () => {
    const record = { path: 'x', type: 'ExtendedHeader' as const, content: '11 path=x\n' };
    const packed = gzipSync(Buffer.concat(Array.from({ length: 9 }, () => formatEntry(record))));
    const reading = inspectArchive(packed);
    await expect(reading).rejects.toThrow('more than 8 records before one file');
  });

  it('stops at the limit: headers without files', async () => {
    const seen = { bytes: 0 };
    const record = {
      path: 'x',
      type: 'GlobalExtendedHeader' as const,
      content: 'x'.repeat(60_000),
    };
    const folder = { path: 'folder', type: 'Directory' as const };
    const entries = Array.from({ length: 1_300 }, () => [record, folder]).flat();
    const head = Buffer.concat(entries.map(formatEntry));
    const reading = inspectArchive(bomb(head, seen), { ...ARCHIVE_LIMITS, unpackedBytes: 1_000 });
    await expect(reading).rejects.toThrow('more than 1000 bytes together');
  });
});

it('answers bytes of any kind with an archive error or files inside the folder', async () => {
  const valid = formatTar([
    { path: 'package.json', content: '{}' },
    { path: 'src/handler.ts', content: 'export default () => 1;' },
  ]);
  const damage = fc.array(fc.tuple(fc.nat(valid.length - 1), fc.nat(255)), { maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(damage, fc.nat(valid.length), async (changes, cut) => {
      const bytes = Buffer.from(valid);
      for (const [at, value] of changes) bytes[at] = value;
      // Valid checksums, so that the fields themselves are tested.
      for (const at of [0, 1_024]) fixChecksum(bytes.subarray(at, at + 512));
      const packed = gzipSync(cut % 4 === 0 ? bytes.subarray(0, cut) : bytes);
      const target = join(root, 'target');
      try {
        const { files } = await unpackArchive(inParts(packed), target);
        for (const { path } of files)
          expect(join(target, path).startsWith(`${target}/`)).toBe(true);
        await rm(target, { recursive: true });
      } catch (error) {
        expect(error).toBeInstanceOf(ArchiveError);
      }
      expect(await readdir(root)).toEqual([]);
    }),
    { numRuns: 300 },
  );
});

function fixChecksum(block: Buffer): void {
  block.fill(0x20, 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 8, 'latin1');
}

it('passes an error of the source on, and closes the source', async () => {
  let closed = false;
  async function* source() {
    try {
      yield gzipSync('x').subarray(0, 5);
      throw new Error('connection lost');
    } finally {
      closed = true;
    }
  }
  await expect(unpackArchive(source(), join(root, 'target'))).rejects.toThrow('connection lost');
  expect(closed).toBe(true);
  expect(await readdir(root)).toEqual([]);
});
