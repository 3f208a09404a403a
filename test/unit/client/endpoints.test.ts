// Uploads and downloads of versions: bytes arrive as they are. The service is a real HTTP server.
import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createPlatform, type VersionsClient } from '../../../src/client.ts';

/** Bytes that are no UTF-8. */
const ARCHIVE = Uint8Array.from({ length: 700 }, (_, at) => at % 256);

const TOO_LARGE = { title: 'Too large', status: 413, detail: 'too large', code: 'too_large' };

let server: Server;
let versions: VersionsClient;
let seen: { request: IncomingMessage; body: Buffer }[];
/** Answer 413 without reading the body. */
let refuse: boolean;

beforeEach(async () => {
  seen = [];
  refuse = false;
  server = createServer(async (request, response) => {
    if (refuse) {
      const type = 'application/problem+json';
      response.writeHead(413, { 'content-type': type }).end(JSON.stringify(TOO_LARGE));
      return;
    }
    seen.push({ request, body: await buffer(request) });
    if (request.method === 'GET') response.end(ARCHIVE);
    else if (request.url?.endsWith('/deploy')) response.end('{"id":"ep_1"}');
    else response.end('{"version":3}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const platform = createPlatform({ url: `http://127.0.0.1:${address.port}`, key: 'mr_x' });
  versions = platform.endpoints.versions('echo');
});

afterEach(() => new Promise((resolve) => server.close(resolve)));

describe('versions of an endpoint', () => {
  it('are uploaded as bytes, with entry, hash and message in the query', async () => {
    const given = { archive: ARCHIVE, entry: 'src/a b.ts', sha256: 'ff', message: 'new & better' };
    expect(await versions.upload(given)).toEqual({ version: 3 });
    const [{ body, request } = { body: undefined, request: undefined }] = seen;
    expect(new Uint8Array(body ?? [])).toEqual(ARCHIVE);
    expect(request?.headers['content-type']).toBe('application/gzip');
    expect(request?.headers['content-length']).toBe('700');
    const url = new URL(request?.url ?? '', 'http://x');
    expect(`${request?.method} ${url.pathname}`).toBe('POST /v1/endpoints/echo/versions');
    expect(Object.fromEntries(url.searchParams)).toEqual({
      ...{ entry: 'src/a b.ts', sha256: 'ff', message: 'new & better' },
    });
  });

  it('report how many bytes of an upload are sent, up to all of them', async () => {
    const archive = randomBytes(300_000);
    const sent: number[] = [];
    const onSent = (bytes: number) => sent.push(bytes);
    await versions.upload({ archive, entry: 'handler.ts' }, { onSent });
    expect(seen[0]?.body.equals(archive)).toBe(true);
    expect(seen[0]?.request.headers['content-length']).toBe('300000');
    expect(seen[0]?.request.headers['transfer-encoding']).toBeUndefined();
    expect(sent.length).toBeGreaterThan(3);
    expect(sent).toEqual(sent.toSorted((one, other) => one - other));
    expect([sent[0], sent.at(-1)]).toEqual([0, 300_000]);
  });

  it('reject an upload that the platform refuses before it has all bytes', async () => {
    refuse = true;
    const upload = { archive: randomBytes(50_000_000), entry: 'handler.ts' };
    const refused = versions.upload(upload, { onSent: () => {} });
    await expect(refused).rejects.toMatchObject({ status: 413 });
  });

  it('are downloaded as bytes', async () => {
    expect(await versions.archive(2)).toEqual(ARCHIVE);
    expect(seen[0]?.request.url).toBe('/v1/endpoints/echo/versions/2/archive');
  });

  it('are deployed', async () => {
    expect(await versions.deploy(2, { timeout: 30 })).toEqual({ id: 'ep_1' });
    expect(seen[0]?.body.toString()).toBe('{"timeout":30}');
    expect(seen[0]?.request.url).toBe('/v1/endpoints/echo/versions/2/deploy');
  });
});
