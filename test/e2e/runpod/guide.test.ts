// Runs each handler of docs/guides/from-runpod-python.md.
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { z } from 'zod';
import { createClient } from '../../../src/client.ts';
import { S3_KEYS, S3Server } from '../../support/network/s3-server.ts';
import { readCodeBlocks, runCommandLine } from '../../support/printed-commands.ts';
import { Process } from '../../support/processes.ts';

const PRINTED_URL = 'http://127.0.0.1:8000';
const blocks = await readCodeBlocks('docs/guides/from-runpod-python.md');
const handlers = blocks.filter(({ language }) => language === 'ts');

let folder: string;
let dev: Process;
let server: S3Server;
let url: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-guide-'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(resolve('.'), join(folder, 'node_modules/millrace'));
  symlinkSync(resolve('node_modules/zod'), join(folder, 'node_modules/zod'));
  symlinkSync(resolve('node_modules/@aws-sdk'), join(folder, 'node_modules/@aws-sdk'));
  for (const { text } of handlers) {
    writeFileSync(join(folder, /^\/\/ (\S+)/.exec(text)?.[1] ?? ''), text);
  }
  server = await S3Server.start('files');
  const env = {
    BUCKET_ENDPOINT_URL: server.url,
    BUCKET_NAME: 'files',
    BUCKET_ACCESS_KEY_ID: S3_KEYS.accessId,
    BUCKET_SECRET_ACCESS_KEY: S3_KEYS.accessSecret,
  };
  dev = new Process(['dev', folder, '--port', '0'], { env });
  url = await dev.find(/ready at (http:\/\/127\.0\.0\.1:\d+)/);
});

afterAll(async () => {
  await dev.end();
  await server[Symbol.asyncDispose]();
  rmSync(folder, { recursive: true, force: true });
});

const open = (endpoint: string) => createClient({ url, endpoint });

it('has a handler for each idiom', () => {
  const names = handlers.map(({ text }) => /^\/\/ (\w+)/.exec(text)?.[1]);
  expect(names).toEqual([
    ...[
      'errors',
      'validation',
      'streams',
      'progress',
      'refresh',
      'concurrency',
      'uploads',
      'put',
      'downloads',
    ],
  ]);
});

it('fails the job at its first attempt after a NonRetryableError ({"error"})', async () => {
  expect(await open('errors').runsync({ width: 5000 })).toMatchObject({
    status: 'FAILED',
    attempt: 1,
    error: { message: 'width must be at most 4096' },
  });
});

it('refuses and fills in values with a schema (rp_validator)', async () => {
  const client = open('validation');
  expect(await client.runsync({ prompt: 'a mill' })).toMatchObject({ output: 'a mill, 20 steps' });
  expect(await client.runsync({ prompt: 'a mill', steps: 0 })).toMatchObject({
    status: 'FAILED',
    error: { code: 'input_invalid' },
  });
});

it('makes the array of chunks the output (return_aggregate_stream)', async () => {
  const record = await open('streams').runsync({ prompt: 'one two' });
  expect(record).toMatchObject({ output: ['one', 'two'] });
});

it('ends after its progress (progress_update)', async () => {
  expect(await open('progress').runsync({ steps: 3 })).toMatchObject({ output: 'done' });
});

it('gives the next job a new process (refresh_worker)', async () => {
  const client = open('refresh');
  const { output: first } = await client.runsync({});
  const { output: second } = await client.runsync({});
  expect([typeof first, typeof second]).toEqual(['number', 'number']);
  expect(second).not.toBe(first);
});

it('runs several jobs at a time (concurrency_modifier)', async () => {
  const client = open('concurrency');
  const records = await Promise.all([1, 2, 3, 4].map(() => client.runsync({})));
  const counts = records.map(({ output }) => Number(output));
  expect(Math.max(...counts)).toBeGreaterThan(1);
});

it('uploads to the bucket of the worker, and returns a presigned URL (rp_upload)', async () => {
  const record = await open('uploads').runsync({});
  expect(record).toMatchObject({
    output: { url: expect.stringMatching(/picture\.png\?.*604800/) },
  });
  const { url: uploaded } = z.object({ url: z.string() }).parse(record.output);
  expect(await (await fetch(uploaded)).text()).toBe('the picture');
});

it('refuses a private address (rp_download)', async () => {
  expect(await open('downloads').runsync({ urls: [`${url}/readyz`] })).toMatchObject({
    ...{ status: 'FAILED', attempt: 1 },
    error: {
      message: expect.stringMatching(/^input\.urls\[0\] .*127\.0\.0\.1 is refused \(loopback\)/),
    },
  });
});

it('puts the bytes of a handler to a presigned URL of the client', async () => {
  let received = '';
  const server = createServer(async (request, response) => {
    received = `${request.method} ${await buffer(request)}`;
    response.end();
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const bound = server.address();
  const port = typeof bound === 'object' && bound ? bound.port : 0;
  const uploadUrl = `http://127.0.0.1:${port}/picture`;
  try {
    expect(await open('put').runsync({ uploadUrl })).toMatchObject({ output: { bytes: 11 } });
    expect(received).toBe('PUT the picture');
  } finally {
    server.close();
  }
});

it("answers a call of dev in the form of RunPod's API (rp_serve_api)", async () => {
  const line = blocks.at(-1)?.text.split('\n')[1] ?? '';
  const { stdout } = await runCommandLine(line.replace(PRINTED_URL, url));
  expect(JSON.parse(stdout)).toMatchObject({ status: 'COMPLETED', output: { width: 512 } });
});
