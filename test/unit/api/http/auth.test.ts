import { describe, expect, it } from 'vitest';
import { readToken, stripSessionCookie } from '../../../../src/api/http/auth.ts';
import { exchange, readJson, startPlatform, submitJob } from '../../../support/api/platform.ts';

const HEALTH = '/v2/demo/health';

const withKey = (key: string) => ({ headers: { authorization: key } });

describe('with keys', () => {
  it('answers a call without a key with 401 and WWW-Authenticate', async () => {
    const { url } = await startPlatform();
    const response = await fetch(url + HEALTH);
    expect(response.status).toBe(401);
    expect(response.headers.get('www-authenticate')).toMatch(/^Bearer/);
    expect(response.headers.get('content-type')).toBe('application/problem+json');
    expect(await readJson(response)).toMatchObject({ status: 401, code: 'unauthorized' });
  });

  it('accepts a key bare and after Bearer in any case', async () => {
    const { admin, call } = await startPlatform();
    for (const text of [`Bearer ${admin}`, `bearer ${admin}`, admin]) {
      expect((await call(HEALTH, withKey(text))).status).toBe(200);
    }
  });

  it('answers a key with a wrong last character with 401, and keeps it out of the log', async () => {
    const { admin, call, logged } = await startPlatform();
    const wrong = admin.slice(0, -1) + (admin.endsWith('A') ? 'E' : 'A');
    const response = await call(HEALTH, withKey(`Bearer ${wrong}`));
    expect(response.status).toBe(401);
    expect(await response.text()).not.toContain(wrong);
    expect(logged()).not.toContain(wrong);
  });

  it('lets no read key submit, and no key of another endpoint read', async () => {
    const { call, keys, post } = await startPlatform();
    const reader = await keys.issue({ name: 'r', scopes: ['jobs:read:demo'] });
    const other = await keys.issue({ name: 'o', scopes: ['jobs:read:other', 'worker:demo'] });
    expect((await call(HEALTH, withKey(reader.key))).status).toBe(200);
    const refused = await post('/v2/demo/run', { input: {} }, withKey(reader.key));
    expect(refused.status).toBe(403);
    expect(await readJson(refused)).toMatchObject({
      ...{ code: 'forbidden', detail: expect.stringMatching(/jobs:write.*demo/) },
    });
    expect((await call(HEALTH, withKey(other.key))).status).toBe(403);
    const general = await call('/v1/keys', withKey(reader.key));
    const { code, detail } = await readJson(general);
    expect([general.status, code]).toEqual([403, 'forbidden']);
    expect(detail).toContain('keys:read');
    expect(detail).not.toContain('endpoint');
  });

  it('requires the write scope for a ttl on status', async () => {
    const platform = await startPlatform();
    const id = await submitJob(platform);
    const { key } = await platform.keys.issue({ name: 'r', scopes: ['jobs:read'] });
    const path = `/v2/demo/status/${id}`;
    expect((await platform.call(path, withKey(key))).status).toBe(200);
    expect((await platform.call(`${path}?ttl=60000`, withKey(key))).status).toBe(403);
    expect((await platform.call(`${path}?ttl=60000`)).status).toBe(200);
  });

  it('refuses a worker key on client routes, and a client key on worker routes', async () => {
    const { call, keys, post, worker } = await startPlatform();
    const client = await keys.issue({ name: 'c', scopes: ['jobs:read', 'jobs:write'] });
    expect((await call(HEALTH, withKey(worker))).status).toBe(403);
    expect((await post('/v2/demo/worker/hello', {}, withKey(client.key))).status).toBe(403);
  });
});

describe('without keys on the same machine', () => {
  const start = () => startPlatform({ access: 'keyless-loopback' });

  const send = async (headers: Record<string, string>) => {
    const { port } = await start();
    const lines = Object.entries({ Host: `localhost:${port}`, ...headers })
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join('');
    const request = `GET ${HEALTH} HTTP/1.1\r\n${lines}Connection: close\r\n\r\n`;
    return exchange(port, [request]);
  };

  it('accepts a plain call', async () => {
    const { url } = await start();
    expect((await fetch(url + HEALTH)).status).toBe(200);
  });

  it.each(['localhost', 'LOCALHOST:1', '127.0.0.1:8000', '[::1]:8000'])(
    'takes the host %s for this machine',
    async (host) => {
      expect(await send({ Host: host })).toMatch(/^HTTP\/1.1 200/);
    },
  );

  it.each([
    ['Host', 'evil.example'],
    ['Host', 'localhost.evil.example'],
    ['Host', '127.0.0.1.evil.example:80'],
    ['Origin', 'http://evil.example'],
    ['Origin', 'http://localhost:1'],
    ['Origin', 'null'],
    ['Sec-Fetch-Site', 'cross-site'],
    ['Sec-Fetch-Site', 'same-site'],
    ['X-Forwarded-For', '127.0.0.1'],
    ['X-Forwarded-Anything', '1'],
    ['X-Forwarded', '127.0.0.1'],
    ['X-Original-Forwarded-For', '127.0.0.1'],
    ['X-Real-IP', '127.0.0.1'],
    ['Fly-Client-IP', '127.0.0.1'],
    ['Forwarded', 'for=127.0.0.1'],
    ['Via', '1.1 proxy'],
    ['ngrok-auth-user-email', 'a@b.example'],
    ['Tailscale-User-Login', 'a@b.example'],
    ['X-Envoy-Expected-Rq-Timeout-Ms', '15000'],
    ['X-Envoy-External-Address', '127.0.0.1'],
    ['CF-Ray', '1-FRA'],
    ['Cf-Access-Jwt-Assertion', 'x'],
    ['True-Client-IP', '127.0.0.1'],
    ['X-Cluster-Client-IP', '127.0.0.1'],
    ['Fly-Request-Id', '1'],
    ['X-Request-Start', 't=1'],
    ['X-Amzn-Trace-Id', 'Root=1'],
    ['X-Cloud-Trace-Context', '1/1'],
    ['X-Vercel-Id', '1'],
    ['X-Azure-Ref', '1'],
    ['X-Original-URL', '/'],
    ['X-Auth-Request-User', 'a'],
  ])('answers a call with %s: %s with 401 that names the header', async (name, value) => {
    const answer = await send({ [name]: value });
    expect(answer).toMatch(/^HTTP\/1.1 401/);
    expect(answer.split('\r\n\r\n').at(-1)?.toLowerCase()).toContain(name.toLowerCase());
  });

  it.each(['X-Request-ID', 'Traceparent', 'User-Agent', 'Idempotency-Key', 'Accept', 'Cookie'])(
    'accepts a call with %s',
    async (name) => {
      expect(await send({ [name]: 'x' })).toMatch(/^HTTP\/1.1 200/);
    },
  );

  describe('a POST that a web page can send without a preflight', () => {
    const body = '{"input":{}}';
    const post = async (path: string, headers: string) => {
      const { port } = await start();
      const head = `POST ${path} HTTP/1.1\r\nHost: localhost:${port}\r\n${headers}`;
      const length = `Content-Length: ${body.length}\r\nConnection: close\r\n\r\n`;
      return exchange(port, [`${head}${length}${body}`]);
    };

    it.each(['/runpod/v2/demo/run', '/v2/demo/run', '/v1/keys'])('gets 401 on %s', async (path) => {
      for (const type of [
        'application/x-www-form-urlencoded',
        'text/plain',
        'TEXT/PLAIN; charset=UTF-8; x=application/json',
        'multipart/form-data; boundary=x',
      ]) {
        const answer = await post(path, `Content-Type: ${type}\r\n`);
        expect(answer).toMatch(/^HTTP\/1.1 401/);
        expect(answer).toContain('send \\"Content-Type: application/json\\"');
      }
      expect(await post(path, '')).toMatch(/^HTTP\/1.1 401/);
    });

    it('is accepted as JSON and without a body', async () => {
      const json = 'Content-Type: application/json; charset=utf-8\r\n';
      for (const path of ['/runpod/v2/demo/run', '/v2/demo/run']) {
        expect(await post(path, json)).toMatch(/^HTTP\/1.1 200/);
      }
      const { url } = await start();
      const purged = await fetch(`${url}/v2/demo/purge-queue`, { method: 'POST' });
      expect(purged.status).toBe(200);
    });

    it('is accepted with a key', async () => {
      const { admin, url } = await start();
      const headers = { authorization: admin, 'content-type': 'text/plain' };
      const sent = await fetch(`${url}/runpod/v2/demo/run`, { method: 'POST', headers, body });
      expect(sent.status).toBe(200);
    });
  });

  it('answers a call for another host in its target, or with a second Host header, with 401', async () => {
    const { port } = await start();
    for (const head of [
      `GET http://evil.example${HEALTH} HTTP/1.1\r\nHost: localhost`,
      `GET ${HEALTH} HTTP/1.1\r\nHost: localhost\r\nHost: evil.example`,
    ]) {
      const answer = await exchange(port, [`${head}\r\nConnection: close\r\n\r\n`]);
      expect(answer).toMatch(/^HTTP\/1.1 401/);
    }
  });

  it('accepts a page served by the platform', async () => {
    const { port } = await start();
    const own = `Host: localhost:${port}\r\nOrigin: http://localhost:${port}\r\n`;
    const request = `GET ${HEALTH} HTTP/1.1\r\n${own}Sec-Fetch-Site: same-origin\r\nConnection: close\r\n\r\n`;
    expect(await exchange(port, [request])).toMatch(/^HTTP\/1.1 200/);
  });

  it('requires a key for a worker call', async () => {
    const { url } = await start();
    const response = await fetch(`${url}/v2/demo/worker/hello`, { method: 'POST' });
    expect(response.status).toBe(401);
  });

  it.each([`mr_${'x'.repeat(43)}`, 'Bearer rpa_OTHER', 'Basic dTpw', ''])(
    'counts a call with the unknown key "%s" as one without a key',
    async (key) => {
      const { call, post } = await start();
      expect((await call(HEALTH, withKey(key))).status).toBe(200);
      expect((await post('/v2/demo/worker/hello', {}, withKey(key))).status).toBe(401);
      expect(await send({ Authorization: key, Origin: 'https://evil.example' })).toMatch(
        /^HTTP\/1.1 401/,
      );
    },
  );

  it('applies the scopes of a known key', async () => {
    const { keys, post } = await start();
    const { key } = await keys.issue({ name: 'r', scopes: ['jobs:read'] });
    expect((await post('/v2/demo/run', { input: {} }, withKey(key))).status).toBe(403);
  });
});

it.each([
  ['a=1; millrace_session=t; b=2', 'a=1; b=2'],
  ['__Host-millrace_session=t; a=1', 'a=1'],
  ['millrace_session=t; __Host-millrace_session=u', undefined],
  ['millrace_sessions=t', 'millrace_sessions=t'],
])('passes the session of %j to no server behind the platform', (cookie, left) => {
  expect(stripSessionCookie(cookie)).toBe(left);
});

it.each([
  ['millrace_session=t', false, 't'],
  ['__Host-millrace_session=t', true, 't'],
  // A page of a related host could have set it.
  ['millrace_session=t', true, undefined],
  ['__Host-millrace_session=t; __Host-millrace_session=u', true, undefined],
  ['__Host-millrace_session=t', false, undefined],
])('reads from %j over TLS (%s) the token %s', (cookie, isSecure, token) => {
  expect(readToken(cookie, { isSecure })).toBe(token);
});
