// Uploads to a real S3 server, which checks the signature of each request.
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { type Context, NonRetryableError } from 'millrace';
import { anyAddress } from 'millrace/outgoing';
import { openStorage, type StorageOptions, type UploadOptions } from 'millrace/storage';
import { runHandler } from 'millrace/testing';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { answerError, S3_KEYS, S3Server } from '../../support/network/s3-server.ts';

const MIB = 1_048_576;
const live = { signal: new AbortController().signal };

async function openBucket(options: StorageOptions = {}, s3Config = {}) {
  const server = await S3Server.start('images');
  const config = { ...S3_KEYS, bucketName: 'images', endpointUrl: server.url, ...s3Config };
  const storage = openStorage({ s3Config: config }, { rule: anyAddress, ...options });
  return { server, storage, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
}

async function failUpload(
  { storage }: Awaited<ReturnType<typeof openBucket>>,
  options: Partial<UploadOptions> = {},
  ctx = live,
): Promise<Error> {
  const upload = { key: 'a.png', bytes: Buffer.from('x'), ...options } as UploadOptions;
  const end = await storage.upload(upload, ctx).catch((error: unknown) => error);
  if (end instanceof Error) return end;
  throw new Error('did not fail');
}

function expectNoSecrets(error: unknown): void {
  const shown = inspect(error, { depth: 20, showHidden: true }) + String(error);
  expect(shown).not.toContain(S3_KEYS.accessSecret);
  expect(shown).not.toContain(S3_KEYS.accessId);
}

afterEach(() => vi.unstubAllEnvs());

describe('an upload', () => {
  it('puts bytes, with the type of the key, and gives a URL that anyone can read', async () => {
    await using bucket = await openBucket();
    const key = 'job 1/tøm+cat (1).png';
    const file = await bucket.storage.upload({ key, bytes: Buffer.from('picture') }, live);
    expect(file).toMatchObject({ bucket: 'images', key, bytes: 7 });
    const answer = await fetch(file.url);
    expect(await answer.text()).toBe('picture');
    expect(answer.headers.get('content-type')).toBe('image/png');
    expect(bucket.server.operations).toEqual(['PutObject', 'GetObject']);
    const changed = await fetch(file.url.replace('X-Amz-Expires=604800', 'X-Amz-Expires=604799'));
    expect(changed.status).toBe(403);
  });

  it('puts a file, and the client’s objectPath before the key', async () => {
    await using bucket = await openBucket({}, { objectPath: '/team/a/' });
    const { output } = await runHandler(async (_: unknown, ctx: Context) => {
      const path = join(ctx.tempFolder(), 'result.json');
      await writeFile(path, '{"a":1}');
      return await bucket.storage.upload({ key: 'result.json', file: path }, ctx);
    }, {});
    expect(output).toMatchObject({ key: 'team/a/result.json', bytes: 7 });
    const { body, contentType } = bucket.server.objects.get('images/team/a/result.json') ?? {};
    expect([body?.toString(), contentType]).toEqual(['{"a":1}', 'application/json']);
  });

  it('sends a large stream in parts, some at a time, in their order', async () => {
    await using bucket = await openBucket({ partBytes: 5 * MIB, concurrency: 2 });
    const whole = Buffer.alloc(23 * MIB, 'abcdefghijk');
    async function* stream() {
      for (let at = 0; at < whole.length; at += 700_001) yield whole.subarray(at, at + 700_001);
    }
    const upload = { key: 'long.mp4', stream: stream(), contentType: 'video/x-own' };
    const file = await bucket.storage.upload(upload, live);
    expect(file.bytes).toBe(whole.length);
    const stored = bucket.server.objects.get('images/long.mp4');
    expect(stored?.body.equals(whole)).toBe(true);
    expect(stored?.contentType).toBe('video/x-own');
    expect(bucket.server.mostParts).toBe(2);
    expect(bucket.server.operations.filter((name) => name === 'UploadPart')).toHaveLength(5);
  });

  it.each([0, 1, 5 * MIB, 5 * MIB + 1])(
    'keeps %i bytes of each source as they are',
    async (size) => {
      await using bucket = await openBucket({ partBytes: 5 * MIB });
      const bytes = Buffer.alloc(size, 'xyz');
      await runHandler(async (_: unknown, ctx: Context) => {
        const path = join(ctx.tempFolder(), 'file');
        await writeFile(path, bytes);
        await bucket.storage.upload({ key: 'bytes', bytes }, ctx);
        await bucket.storage.upload({ key: 'file', file: path }, ctx);
        await bucket.storage.upload({ key: 'stream', stream: new Blob([bytes]).stream() }, ctx);
      }, {});
      for (const key of ['bytes', 'file', 'stream']) {
        expect(bucket.server.objects.get(`images/${key}`)?.body.equals(bytes), key).toBe(true);
      }
    },
  );

  it('repeats a request that the server could not serve', async () => {
    await using bucket = await openBucket();
    let failures = 0;
    bucket.server.intercept = (_, response) => {
      if (failures++ >= 2) return false;
      answerError(response, 503, 'SlowDown');
      return true;
    };
    await bucket.storage.upload({ key: 'a', bytes: Buffer.from('x') }, live);
    expect(bucket.server.operations).toEqual(['PutObject', 'PutObject', 'PutObject']);
  });

  it('ends with the attempt, and leaves no parts', async () => {
    await using bucket = await openBucket({ partBytes: 5 * MIB });
    const controller = new AbortController();
    bucket.server.intercept = (operation) => {
      if (operation !== 'UploadPart') return false;
      controller.abort(new Error('cancelled by the test'));
      return true;
    };
    const error = await failUpload(bucket, { bytes: Buffer.alloc(11 * MIB) }, controller);
    expect(error.message).toBe('cancelled by the test');
    expect(bucket.server.operations.at(-1)).toBe('AbortMultipartUpload');
    expect(bucket.server.uploads.size).toBe(0);
  });

  it('leaves no parts of a stream that fails, and throws its error', async () => {
    await using bucket = await openBucket({ partBytes: 5 * MIB });
    async function* stream() {
      yield Buffer.alloc(11 * MIB);
      throw new Error('the renderer crashed');
    }
    const error = await failUpload(bucket, { bytes: undefined, stream: stream() } as never);
    expect(error.message).toBe('the renderer crashed');
    expect(bucket.server.uploads.size).toBe(0);
    expect(bucket.server.objects.size).toBe(0);
  });

  it('ends after timeoutMs, even if its stream waits forever', async () => {
    await using bucket = await openBucket({ timeoutMs: 50 });
    async function* stream() {
      yield Buffer.from('first');
      await new Promise(() => {});
    }
    const error = await failUpload(bucket, { bytes: undefined, stream: stream() } as never);
    expect(error.message).toBe('upload of a.png: not done within 50 ms');
  });

  it('refuses more than maxBytes before the object exists', async () => {
    await using bucket = await openBucket({ maxBytes: 10 });
    const error = await failUpload(bucket, { bytes: Buffer.alloc(11) });
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toBe('larger than 10 bytes');
    expect(bucket.server.operations).toEqual([]);
  });

  it.each(['', 'a/../b', './a', 'a//b', '/a', 'a\nb', 'x'.repeat(1_025)])(
    'refuses the key %j',
    async (key) => {
      await using bucket = await openBucket();
      expect(await failUpload(bucket, { key })).toBeInstanceOf(NonRetryableError);
      expect(bucket.server.operations).toEqual([]);
    },
  );
});

describe('secrets', () => {
  it('are not in the storage, as a log would show it', async () => {
    await using bucket = await openBucket();
    expectNoSecrets(bucket.storage);
    expect(JSON.stringify(bucket.storage)).toBe('{}');
  });

  it.each([
    ['another secret', { accessSecret: 'wrong' }, 'SignatureDoesNotMatch', 403],
    ['an unknown bucket', { bucketName: 'others' }, 'NoSuchBucket', 404],
  ])('are not in the error for %s, which is not retried', async (_, s3Config, code, status) => {
    await using bucket = await openBucket({}, s3Config);
    const error = await failUpload(bucket);
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(error.message).toBe(`S3 PutObject: ${code} (${status}): ${code} for [access ID]`);
    expectNoSecrets(error);
  });

  it('are not in the error for a server that fails, which is retried', async () => {
    await using bucket = await openBucket();
    bucket.server.intercept = (_, response) => {
      answerError(response, 500, 'InternalError');
      return true;
    };
    const error = await failUpload(bucket);
    expect(error).not.toBeInstanceOf(NonRetryableError);
    expect(error.message).toMatch(/^S3 PutObject: InternalError \(500\)/);
    expectNoSecrets(error);
  });
});

describe('the endpoint of a client', () => {
  it('must be at a public address by default', async () => {
    await using server = await S3Server.start('images');
    const s3Config = { ...S3_KEYS, bucketName: 'images', endpointUrl: server.url };
    const bucket = { storage: openStorage({ s3Config }) } as Awaited<ReturnType<typeof openBucket>>;
    const error = await failUpload(bucket);
    expect(error.message).toContain('127.0.0.1 is refused (loopback)');
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(server.operations).toEqual([]);
  });

  it('is refused if its name leads to a private address', async () => {
    await using server = await S3Server.start('images');
    const endpointUrl = `http://rebind.example:${server.port}`;
    const s3Config = { ...S3_KEYS, bucketName: 'images', endpointUrl };
    const storage = openStorage(
      { s3Config },
      { resolve: (_, __, done) => done(null, [{ address: '127.0.0.1', family: 4 }]) },
    );
    const error = await failUpload({ storage } as Awaited<ReturnType<typeof openBucket>>);
    expect(error.message).toMatch(/rebind\.example is refused: it resolves to 127\.0\.0\.1/);
    expect(error).toBeInstanceOf(NonRetryableError);
    expect(server.operations).toEqual([]);
  });
});

it('uses the variables of the worker if the client named no storage, at any address', async () => {
  await using server = await S3Server.start('images');
  vi.stubEnv('BUCKET_ENDPOINT_URL', server.url);
  vi.stubEnv('BUCKET_ACCESS_KEY_ID', S3_KEYS.accessId);
  vi.stubEnv('BUCKET_SECRET_ACCESS_KEY', S3_KEYS.accessSecret);
  const storage = openStorage({}, { bucket: 'images', urlExpiresS: 60 });
  const { url } = await storage.upload({ key: 'a.txt', bytes: Buffer.from('x') }, live);
  expect(new URL(url).searchParams.get('X-Amz-Expires')).toBe('60');
  expect((await fetch(url)).status).toBe(200);
});

it('names an option with a wrong value', () => {
  const s3Config = { ...S3_KEYS, bucketName: 'images', endpointUrl: 'https://s3.example' };
  const open = (options: StorageOptions) => () => openStorage({ s3Config }, options);
  expect(open({ partBytes: 5 })).toThrow(/^partBytes must be a whole number from 5242880 to/);
  expect(open({ urlExpiresS: 604_801 })).toThrow(/^urlExpiresS must be .* to 604800, got 604801$/);
});
