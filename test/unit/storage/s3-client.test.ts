// The packages for S3 come from the project of the handler, which may not be where this package is.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { NonRetryableError } from 'millrace';
import { expect, it, onTestFinished } from 'vitest';
import { readHandlerFile } from '../../../src/handler/loading/handler-file.ts';
import { loadHandler } from '../../../src/handler/loading/load.ts';
import { loadFrom, readS3Settings } from '../../../src/storage/s3-client.ts';

function makeProject(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-s3-packages-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'handler.mjs'), 'export default () => 1;');
  return folder;
}

it('finds the packages of the project from the handler that was loaded', async () => {
  const folder = makeProject();
  const file = join(folder, 'handler.mjs');
  await loadHandler(file);
  expect(readHandlerFile()).toBe(file);
  expect(loadFrom(readHandlerFile())).toBeUndefined();
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(resolve('node_modules/@aws-sdk'), join(folder, 'node_modules/@aws-sdk'));
  expect(loadFrom(readHandlerFile())).toMatchObject({
    client: { S3Client: expect.any(Function) },
    presigner: { getSignedUrl: expect.any(Function) },
  });
});

it('reports a package that is installed and broken', () => {
  const folder = makeProject();
  const broken = join(folder, 'node_modules/@aws-sdk/client-s3');
  mkdirSync(broken, { recursive: true });
  writeFileSync(join(broken, 'index.js'), "throw new Error('broken on purpose');");
  expect(() => loadFrom(join(folder, 'handler.mjs'))).toThrow('broken on purpose');
});

const client = {
  accessId: 'id',
  accessSecret: 'secret',
  bucketName: 'images',
  endpointUrl: 'https://s3.example',
};
const variables = {
  BUCKET_ACCESS_KEY_ID: 'own-id',
  BUCKET_SECRET_ACCESS_KEY: 'own-secret',
  BUCKET_ENDPOINT_URL: 'http://minio:9000',
  BUCKET_NAME: 'own',
};

it('are those of the client if it sends them, and never a mixture of both', () => {
  expect(readS3Settings(client, variables, {})).toMatchObject({ accessId: 'id', source: 'client' });
  expect(readS3Settings(undefined, variables, {})).toMatchObject({
    ...{ accessId: 'own-id', accessSecret: 'own-secret', bucket: 'own', source: 'environment' },
  });
  const partial = { endpointUrl: 'https://attacker.example', bucketName: 'images' };
  expect(() => readS3Settings(partial, variables, {})).toThrow(
    'S3 storage: s3Config.accessId, s3Config.accessSecret is missing; the client must send it',
  );
  expect(() => readS3Settings(undefined, { BUCKET_NAME: 'own' }, {})).toThrow(
    'BUCKET_ENDPOINT_URL, BUCKET_ACCESS_KEY_ID, BUCKET_SECRET_ACCESS_KEY is missing; set it in',
  );
});

it.each([
  ['https://s3.us-west-2.amazonaws.com', 'us-west-2', 's3.us-west-2.amazonaws.com'],
  ['https://images.s3.us-west-2.amazonaws.com/', 'us-west-2', 's3.us-west-2.amazonaws.com'],
  ['https://images.s3.amazonaws.com', 'us-east-1', 's3.amazonaws.com'],
  [
    'https://s3.eu-central-003.backblazeb2.com',
    'eu-central-003',
    's3.eu-central-003.backblazeb2.com',
  ],
  ['https://fra1.digitaloceanspaces.com', 'fra1', 'fra1.digitaloceanspaces.com'],
  ['https://abc.r2.cloudflarestorage.com', 'us-east-1', 'abc.r2.cloudflarestorage.com'],
  ['http://127.0.0.1:9000', 'us-east-1', '127.0.0.1'],
])('%s is in the region %s, and its host is %s', (endpointUrl, region, host) => {
  const { endpoint, ...settings } = readS3Settings({ ...client, endpointUrl }, {}, {});
  expect(settings).toMatchObject({ region, bucket: 'images' });
  expect(endpoint.hostname).toBe(host);
});

it('take the bucket from a host of Amazon, if no other one is named', () => {
  const { bucketName: _, ...rest } = {
    ...client,
    endpointUrl: 'https://pics.s3.eu-west-1.amazonaws.com',
  };
  expect(readS3Settings(rest, {}, {}).bucket).toBe('pics');
  expect(() => readS3Settings({ ...rest, bucketName: 'other' }, {}, {})).toThrow(
    's3Config.endpointUrl names the bucket pics, and another one is set: other',
  );
});

it.each([
  [{ endpointUrl: 'not a url' }, 's3Config.endpointUrl is not a URL'],
  [{ endpointUrl: 'file:///etc' }, 's3Config.endpointUrl begins with file:; use https: or http:'],
  [{ endpointUrl: 'https://me:hidden@s3.example' }, 'must not carry a user name or password'],
  [{ endpointUrl: 'https://s3.example/?x=hidden' }, 'must not have a query or a fragment'],
  [
    { bucketName: 'arn:aws:s3:us-west-2:1:accesspoint/a' },
    's3Config.bucketName is no name of a bucket',
  ],
  [{ bucketName: '../x' }, 's3Config.bucketName is no name of a bucket: "../x"'],
  [{ bucketName: '' }, 's3Config.bucketName is missing'],
])('refuse %j for good', (change, message) => {
  const read = () => readS3Settings({ ...client, ...change }, variables, {});
  expect(read).toThrow(message);
  expect(read).toThrow(NonRetryableError);
  expect(read).toThrow(
    expect.not.objectContaining({ message: expect.stringMatching('hidden|secret') }),
  );
});
