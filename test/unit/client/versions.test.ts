// Uploads and downloads of versions: bytes arrive as they are. The service is a real HTTP server.
import { createServer, type IncomingMessage, type Server } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createPlatform, type VersionsClient } from '../../../src/client.ts';

/** Bytes that are no UTF-8. */
const ARCHIVE = Uint8Array.from({ length: 700 }, (_, at) => at % 256);

let server: Server;
let versions: VersionsClient;
let seen: { request: IncomingMessage; body: Buffer }[];

beforeEach(async () => {
  seen = [];
  server = createServer(async (request, response) => {
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
