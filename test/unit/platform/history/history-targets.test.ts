// Files of history in a folder, and in a bucket of a real S3 server, which checks the signature of each request.
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FolderTarget } from '../../../../src/platform/history/folder-target.ts';
import { openHistoryTarget } from '../../../../src/platform/history/open-target.ts';
import { answerError, S3_KEYS, S3Server } from '../../../support/network/s3-server.ts';

const NAME = 'endpoint=e/date=2026-01-15/20260115T101530Z-1.jsonl.gz';
const { signal } = new AbortController();

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'history-'));
});
afterEach(() => rm(folder, { recursive: true }));

describe('a folder', () => {
  it('gets a file as a whole, for its owner only, and replaces one of the same name', async () => {
    const target = openHistoryTarget({ to: `file:${folder}` });
    await target?.put(NAME, Buffer.from('old'), signal);
    await target?.put(NAME, Buffer.from('lines'), signal);
    expect(await readFile(join(folder, NAME), 'utf8')).toBe('lines');
    expect(await readdir(join(folder, NAME, '..'))).toHaveLength(1);
    expect((await stat(join(folder, NAME))).mode & 0o777).toBe(0o600);
  });

  it('has nothing of a file that could not be written', async () => {
    const target = openHistoryTarget({ to: `file:${folder}` });
    const put = target?.put(NAME, Buffer.from('lines'), AbortSignal.abort());
    await expect(put).rejects.toThrow('abort');
    expect(await readdir(join(folder, NAME, '..'))).toEqual([]);
  });

  it('replaces what a killed platform has left of a file', async () => {
    const target = openHistoryTarget({ to: `file:${folder}` });
    await mkdir(join(folder, NAME, '..'), { recursive: true });
    await writeFile(join(folder, `${NAME}.new`), 'a part of more lines');
    await target?.put(NAME, Buffer.from('lines'), signal);
    expect(await readdir(join(folder, NAME, '..'))).toEqual([basename(NAME)]);
    expect(await readFile(join(folder, NAME), 'utf8')).toBe('lines');
  });

  it('loses the files that have been kept for long enough, and nothing else', async () => {
    const now = () => Date.parse('2026-03-01T12:00:00Z');
    const target = new FolderTarget({ folder, keepDays: 30, now });
    await mkdir(join(folder, 'endpoint=e/date=2026-01-29'), { recursive: true });
    await mkdir(join(folder, 'endpoint=e/date=2026-01-30'));
    await mkdir(join(folder, 'other/date=2020-01-01'), { recursive: true });
    await writeFile(join(folder, 'endpoint=e/date=2026-01-29/a.jsonl.gz'), '');
    await target.put('endpoint=f/date=2026-03-01/a.jsonl.gz', Buffer.from('lines'), signal);
    expect((await readdir(folder)).sort()).toEqual(['endpoint=e', 'endpoint=f', 'other']);
    expect(await readdir(join(folder, 'endpoint=e'))).toEqual(['date=2026-01-30']);
    expect(await readdir(join(folder, 'other'))).toEqual(['date=2020-01-01']);
  });
});

describe('a bucket', () => {
  async function open(to: string, url: string) {
    const keyFile = join(folder, 'key');
    await writeFile(keyFile, `# history\n${S3_KEYS.accessId}\n${S3_KEYS.accessSecret}\n`);
    const target = openHistoryTarget({ to, s3Url: url, keyFile });
    if (!target) throw new Error('no target');
    return target;
  }

  it.each([
    ['s3://jobs', ''],
    ['s3://jobs/', ''],
    ['s3://jobs/of/cluster=1/', 'of/cluster=1/'],
  ])('gets the file at %s', async (to, prefix) => {
    await using server = await S3Server.start('jobs');
    const target = await open(to, server.url);
    await target.put(NAME, Buffer.from('lines'), signal);
    const object = server.objects.get(`jobs/${prefix}${NAME}`);
    expect([object?.body.toString(), object?.contentType]).toEqual(['lines', 'application/gzip']);
    await target.close();
  });

  it.each([
    ['no such bucket', 's3://other', async () => false, '404 NoSuchBucket'],
    [
      'an outage',
      's3://jobs',
      async (...[, response]: Parameters<S3Server['intercept']>) => {
        answerError(response, 503, 'SlowDown');
        return true;
      },
      '503 SlowDown',
    ],
    [
      'an answer without an end',
      's3://jobs',
      async (...[, response]: Parameters<S3Server['intercept']>) => {
        response.writeHead(502);
        response.write(`<Code>Endless</Code>${' '.repeat(32_768)}`);
        return true;
      },
      '502 Endless',
    ],
  ])('refuses the file: %s', async (_, to, intercept, problem) => {
    await using server = await S3Server.start('jobs');
    server.intercept = intercept;
    const target = await open(to, server.url);
    const error = await target.put(NAME, Buffer.from('lines'), signal).catch((thrown) => thrown);
    expect(String(error)).toContain(problem);
    const shown = inspect([error, target], { depth: 20 });
    expect(shown).not.toContain(S3_KEYS.accessSecret);
    expect(shown).not.toContain(S3_KEYS.accessId);
    await target.close();
  });
});

it.each([
  [
    { to: '/var/history' },
    'history.to: /var/history is neither file:/folder nor s3://bucket/prefix',
  ],
  [{ to: 'file:history' }, 'history.to: file:history is neither'],
  [{ to: 'file:/no/such/folder' }, 'history.to: /no/such/folder cannot be written'],
  [{ to: 's3://bucket/../c' }, 'history.to: s3://bucket/../c is neither'],
  [{ to: 's3://bucket/x' }, 'history.keyFile: is needed for S3'],
  [
    { to: 's3://bucket', keyFile: '/no/such/file' },
    'history.keyFile: /no/such/file does not exist',
  ],
  [{ to: 's3://bucket', s3Url: 'https://u:p@host' }, 'history.s3Url: must be an http or https URL'],
  [{ to: 's3://bucket', s3Region: 'a.b/' }, 'history.s3Region: a.b/ is no name of a region'],
  [{ to: 's3://bucket', keepDays: 3 }, 'history.keepDays: is for a folder'],
])('refuses the options %o', (options, problem) => {
  expect(() => openHistoryTarget(options)).toThrow(problem);
});
