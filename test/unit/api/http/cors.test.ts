import { describe, expect, it } from 'vitest';
import { findOriginProblem } from '../../../../src/api/http/cors.ts';
import { openPlatform } from '../../../../src/platform/platform.ts';
import { startPlatform } from '../../../support/api/platform.ts';

const PAGE = 'https://app.example.com';
const HEALTH = '/v2/demo/health';

const startWith = (...corsOrigins: string[]) => startPlatform({ server: { corsOrigins } });

function preflight(url: string, headers: Record<string, string> = {}, path = '/v2/demo/run') {
  return fetch(url + path, {
    method: 'OPTIONS',
    headers: { origin: PAGE, 'access-control-request-method': 'POST', ...headers },
  });
}

describe('a preflight', () => {
  it('is answered without a key for any path, if its origin is listed', async () => {
    const { url } = await startWith(PAGE, 'http://localhost:5173');
    const asked = 'authorization,content-type,idempotency-key';
    for (const path of ['/v2/demo/run', '/v1/pods', '/lb/demo/generate', '/runpod/v2/demo/run']) {
      const answer = await preflight(url, { 'access-control-request-headers': asked }, path);
      expect(answer.status).toBe(204);
      expect(Object.fromEntries(answer.headers)).toMatchObject({
        'access-control-allow-origin': PAGE,
        'access-control-allow-methods': expect.stringContaining('PATCH'),
        'access-control-allow-headers': asked,
        'access-control-max-age': '7200',
        vary: 'Origin',
      });
    }
  });

  it('gets no permission if its origin is another one', async () => {
    const { url } = await startWith(PAGE);
    for (const origin of ['https://evil.example', `${PAGE}.evil.example`, 'null']) {
      const { headers } = await preflight(url, { origin });
      expect([...headers.keys()].filter((name) => name.startsWith('access-control'))).toEqual([]);
    }
  });

  it('gets no permission without listed origins', async () => {
    const { url } = await startPlatform();
    const answer = await preflight(url);
    expect(answer.headers.get('access-control-allow-origin')).toBeNull();
    expect(answer.headers.get('vary')).toBeNull();
  });

  it('is answered with the usual headers if its list of headers is malformed', async () => {
    const { url } = await startWith(PAGE);
    const { headers } = await preflight(url, { 'access-control-request-headers': 'a:b;c' });
    expect(headers.get('access-control-allow-headers')).toContain('Authorization');
  });
});

describe('a call of a page', () => {
  it('may be read by a listed origin, with the headers that a client needs', async () => {
    const { call } = await startWith(PAGE);
    const { headers, status } = await call(HEALTH, { headers: { origin: PAGE } });
    expect(status).toBe(200);
    expect(headers.get('access-control-allow-origin')).toBe(PAGE);
    for (const name of [
      'Millrace-Next',
      'Millrace-Status',
      'Millrace-Entry',
      'Millrace-Sha256',
      'Retry-After',
    ]) {
      expect(headers.get('access-control-expose-headers')).toContain(name);
    }
    // Keys are sent in a header, never in a cookie.
    expect(headers.get('access-control-allow-credentials')).toBeNull();
  });

  it('can read why it was refused', async () => {
    const { url } = await startWith(PAGE);
    const answer = await fetch(url + HEALTH, { headers: { origin: PAGE } });
    expect(answer.status).toBe(401);
    expect(answer.headers.get('access-control-allow-origin')).toBe(PAGE);
  });

  it('can read a stream', async () => {
    const { call, post } = await startWith(PAGE);
    const { id } = JSON.parse(await (await post('/v2/demo/run', { input: {} })).text());
    await call(`/v2/demo/cancel/${id}`, { method: 'POST' });
    const answer = await call(`/v2/demo/stream/${id}`, {
      headers: { origin: PAGE, accept: 'text/event-stream' },
    });
    await answer.body?.cancel();
    expect(answer.headers.get('content-type')).toContain('text/event-stream');
    expect(answer.headers.get('access-control-allow-origin')).toBe(PAGE);
  });

  it('may be read by any origin with *', async () => {
    const { call } = await startWith('*');
    const { headers } = await call(HEALTH, { headers: { origin: 'https://any.example' } });
    expect(headers.get('access-control-allow-origin')).toBe('*');
    expect(headers.get('vary')).toBeNull();
  });

  it('needs a key if its origin is another one, where others need none', async () => {
    const corsOrigins = ['http://localhost:5173'];
    const { url } = await startPlatform({ access: 'keyless-loopback', server: { corsOrigins } });
    const from = (origin: string) => ({ headers: { origin, 'sec-fetch-site': 'cross-site' } });
    expect((await fetch(url + HEALTH, from('http://localhost:5173'))).status).toBe(200);
    expect((await fetch(url + HEALTH, from('http://localhost:5174'))).status).toBe(401);
  });
});

describe('the list of origins', () => {
  it('contains origins and nothing else', () => {
    for (const origin of ['*', PAGE, 'http://localhost:5173', 'http://[::1]:80/'.slice(0, -4)]) {
      expect(findOriginProblem(origin)).toBeUndefined();
    }
    expect(findOriginProblem(`${PAGE}/`)).toContain(`write ${PAGE}`);
    expect(findOriginProblem('https://App.example.com/x?y')).toContain(
      'write https://app.example.com',
    );
    for (const origin of ['app.example.com', 'null', '', 'file:///x', 'https://*.example.com/']) {
      expect(findOriginProblem(origin)).toContain('is not an origin');
    }
  });

  it('is refused with * if calls need no key, and if it is too long', async () => {
    const access = 'keyless-loopback';
    await expect(openPlatform({ access, corsOrigins: ['*'] })).rejects.toThrow(
      /corsOrigins: .*name the origin of your page/,
    );
    const corsOrigins = Array.from({ length: 101 }, (_, index) => `http://localhost:${index + 1}`);
    await expect(openPlatform({ corsOrigins })).rejects.toThrow('101 origins, at most 100');
  });
});
