import { describe, expect, it } from 'vitest';
import { startPlatform } from '../platform.ts';
import { openClient } from '../slow-client.ts';

describe('a head that is too large', () => {
  it.each([
    ['path and query', 414, `GET /v2/demo/health?x=${'x'.repeat(9_000)} HTTP/1.1`, ''],
    ['a path longer than any head', 414, `GET /v2/demo/${'x'.repeat(60_000)} HTTP/1.1`, ''],
    ['headers', 431, 'GET /v2/demo/health HTTP/1.1', `X: ${'x'.repeat(17_000)}\r\n`],
    ['headers far beyond', 431, 'GET /v2/demo/health HTTP/1.1', `X: ${'x'.repeat(60_000)}\r\n`],
  ])('%s: %i as a problem', async (_what, status, line, header) => {
    const platform = await startPlatform();
    const client = openClient(platform);
    client.socket.write(
      `${line}\r\nHost: x\r\n${header}Authorization: ${platform.admin}\r\nConnection: close\r\n\r\n`,
    );
    await client.closed;
    expect(client.text()).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(client.text()).toContain('application/problem+json');
  });
});
