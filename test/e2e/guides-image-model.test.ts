// Follows docs/guides/image-model.md: its model and handler run in `millrace dev`, its commands as printed, except for
// the port. The bucket is on a server of the test.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import sharp from 'sharp';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { S3_KEYS, S3Server } from '../support/network/s3-server.ts';
import { readCodeBlocks, runCommandLine } from '../support/printed-commands.ts';
import { Process } from '../support/processes.ts';

const PRINTED_URL = 'http://127.0.0.1:8000';
const blocks = await readCodeBlocks('docs/guides/image-model.md');
const commands = blocks.filter(({ language }) => language === '').map(({ text }) => text);
const hasPython = spawnSync('python3', ['--version']).status === 0;
if (!hasPython) console.warn('test/e2e/guides-image-model.test.ts is left out: no python3');

describe.skipIf(!hasPython && !process.env['CI'])('the guide to image models', () => {
  let folder: string;
  let temporary: string;
  let dev: Process;
  let server: S3Server;
  let url: string;

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'millrace-guide-'));
    temporary = join(folder, 'tmp');
    mkdirSync(temporary);
    mkdirSync(join(folder, 'node_modules/@aws-sdk'), { recursive: true });
    symlinkSync(resolve('.'), join(folder, 'node_modules/millrace'));
    const packages = ['zod', '@aws-sdk/client-s3', '@aws-sdk/s3-request-presigner'];
    for (const name of packages) {
      symlinkSync(resolve('node_modules', name), join(folder, 'node_modules', name));
    }
    for (const { language, text } of blocks) {
      if (language !== '') writeFileSync(join(folder, /^\S+ (\S+)/.exec(text)?.[1] ?? ''), text);
    }
    server = await S3Server.start('my-pictures');
    const env = {
      BUCKET_ENDPOINT_URL: server.url,
      BUCKET_NAME: 'my-pictures',
      BUCKET_ACCESS_KEY_ID: S3_KEYS.accessId,
      BUCKET_SECRET_ACCESS_KEY: S3_KEYS.accessSecret,
      TMPDIR: temporary,
    };
    expect(commands.find((text) => text.includes('millrace dev'))).toContain(
      'millrace dev picture.ts',
    );
    dev = new Process(['dev', 'picture.ts', '--port', '0'], { cwd: folder, env });
    url = await dev.find(/ready at (http:\/\/127\.0\.0\.1:\d+)/);
  });

  afterAll(async () => {
    await dev.end();
    await server[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });

  const run = async (part: string) => {
    const line = commands.find((text) => text.includes(part)) ?? '';
    const { exitCode, stderr, stdout } = await runCommandLine(
      line.replace(PRINTED_URL, url),
      folder,
    );
    expect(exitCode, stderr).toBe(0);
    return stdout;
  };

  it('returns a picture as base64', async () => {
    // `jq` may not be installed.
    const answer = await runCommandLine(
      (commands.find((text) => text.includes('"as":"base64"')) ?? '')
        .replace(PRINTED_URL, url)
        .replace(/ \| jq.*/s, ''),
      folder,
    );
    const { output, status } = JSON.parse(answer.stdout);
    expect(status).toBe('COMPLETED');
    const { format, height, width } = await sharp(Buffer.from(output.image, 'base64')).metadata();
    expect({ format, height, width }).toEqual({ format: 'png', height: 512, width: 512 });
  });

  it('uploads a picture to the bucket of the worker, and its URL works', async () => {
    const record = JSON.parse(await run('"as":"url"'));
    expect(record).toMatchObject({ status: 'COMPLETED', output: { url: expect.any(String) } });
    const answer = await fetch(record.output.url);
    expect(answer.headers.get('content-type')).toBe('image/png');
    const { format } = await sharp(Buffer.from(await answer.arrayBuffer())).metadata();
    expect(format).toBe('png');
    expect([...server.objects.keys()]).toEqual([`my-pictures/${record.id}.png`]);
  });

  it('uses the storage that a client sends, at public addresses only', async () => {
    const line = commands.find((text) => text.includes('s3Config')) ?? '';
    const own = line
      .replace(PRINTED_URL, url)
      .replace('https://s3.eu-west-1.amazonaws.com', server.url);
    const record = JSON.parse((await runCommandLine(own, folder)).stdout);
    expect(record.status).toBe('FAILED');
    expect(record.error).toContain('127.0.0.1 is refused (loopback)');
    expect(server.operations.filter((name) => name === 'PutObject')).toHaveLength(1);
  });

  it('fails a job that the model refuses, and goes on', async () => {
    const body = JSON.stringify({ input: { prompt: 'forbidden', width: 64, height: 64 } });
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${url}/v2/picture/runsync`, { method: 'POST', body, headers });
    expect(await answer.json()).toMatchObject({
      ...{ status: 'FAILED', attempt: 1, error: { message: 'the prompt is not allowed' } },
    });
  });

  it('shows no secret, keeps its threads, and leaves no files', async () => {
    expect(dev.output).not.toContain(S3_KEYS.accessSecret);
    expect(dev.output).not.toContain(S3_KEYS.accessId);
    const left = () =>
      readdirSync(temporary).filter((name) => name.startsWith('millrace-attempts'));
    expect(left()).toEqual([]);
  });
});
