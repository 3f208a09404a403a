// Sessions of browsers: what the cookie opens, what it does not, and how it ends.
import { describe, expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../src/base/clock.ts';
import { Keys } from '../../../src/control/keys/keys.ts';
import {
  MAX_KEY_SESSIONS,
  SESSION_IDLE_MS,
  SESSION_MAX_MS,
  Sessions,
} from '../../../src/control/keys/sessions.ts';
import { openSqliteStore } from '../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../src/store/store.ts';
import { startBalanced } from '../../support/api/balanced-platform.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
} from '../../support/api/platform.ts';

const OWN_PAGE = { 'millrace-console': '1', 'sec-fetch-site': 'same-origin' };

type Headers = Record<string, string>;

/** As a browser does: without a key. */
function send(
  { url }: { url: string },
  path: string,
  init: RequestInit & { headers?: Headers } = {},
) {
  return fetch(url + path, { redirect: 'manual', ...init });
}

function signIn(platform: { url: string }, key: string, headers: Headers = {}) {
  return send(platform, '/v1/session', {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...OWN_PAGE, ...headers },
    body: JSON.stringify({ key }),
  });
}

/** @returns the value of the Cookie header */
async function openSession(platform: { url: string }, key: string): Promise<string> {
  const response = await signIn(platform, key);
  expect(response.status).toBe(201);
  return (response.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
}

async function statusOf(platform: Platform, path: string, cookie: string, headers: Headers = {}) {
  return (await send(platform, path, { headers: { cookie, ...headers } })).status;
}

describe('every answer', () => {
  it('forbids MIME sniffing and use by other origins, and is not cached if it belongs to a session', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    for (const path of ['/healthz', '/v1/session', '/v1/nothing', '/console/none']) {
      const { headers } = await send(platform, path, { headers: { cookie } });
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      expect(headers.get('cross-origin-resource-policy')).toBe('same-origin');
    }
    const { headers } = await send(platform, '/v1/endpoints', { headers: { cookie } });
    expect(headers.get('cache-control')).toBe('no-store');
  });
});

describe('a sign-in', () => {
  it('answers with a cookie that scripts, other sites and logs do not see', async () => {
    const platform = await startPlatform();
    const response = await signIn(platform, platform.admin);
    const cookie = response.headers.get('set-cookie') ?? '';
    expect(cookie).toMatch(
      /^millrace_session=ms_[\w-]{43}; HttpOnly; SameSite=Strict; Path=\/; Max-Age=604800$/,
    );
    expect(response.headers.get('cache-control')).toBe('no-store');
    expect(await readJson(response)).toMatchObject({
      ...{ key: { name: 'first admin key' }, userId: 'owner', scopes: ['admin'] },
      platform: { version: '1.2.3', engine: null, nodes: 1, isDev: false },
    });
    expect(platform.logged()).not.toContain('ms_');
  });

  it('sets a cookie for TLS only if the browser uses TLS, also through a trusted proxy', async () => {
    const headers = { 'x-forwarded-proto': 'https', 'x-forwarded-host': 'gpu.example' };
    const page = { ...headers, origin: 'https://gpu.example' };
    const direct = await startPlatform();
    expect((await signIn(direct, direct.admin, page)).status).toBe(403);
    const claimed = await signIn(direct, direct.admin, headers);
    expect(claimed.headers.get('set-cookie')).not.toContain('Secure');
    const behind = await startPlatform({ server: { bounds: { trustedProxies: ['127.0.0.1'] } } });
    const response = await signIn(behind, behind.admin, page);
    const cookie = response.headers.get('set-cookie') ?? '';
    expect(cookie).toMatch(/^__Host-millrace_session=.*; Secure$/);
    const session = cookie.split(';')[0] ?? '';
    expect(await statusOf(behind, '/v1/session', session, headers)).toBe(200);
    // A page of a related host can set this name.
    const planted = session.replace('__Host-', '');
    expect(await statusOf(behind, '/v1/session', planted, headers)).toBe(401);
  });

  it('replaces the session that the browser had', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    const response = await signIn(platform, platform.admin, { cookie });
    expect(response.status).toBe(201);
    expect(await statusOf(platform, '/v1/session', cookie)).toBe(401);
  });

  it('never takes a token that the browser brings', async () => {
    const platform = await startPlatform();
    const planted = `millrace_session=ms_${'A'.repeat(43)}`;
    const response = await signIn(platform, platform.admin, { cookie: planted });
    expect(response.headers.get('set-cookie')).not.toContain(planted);
    expect(await statusOf(platform, '/v1/session', planted)).toBe(401);
  });

  it('is refused with a wrong key, with 429 after many, and never for them with a right one', async () => {
    const platform = await startPlatform();
    const wrong = `mr_${'x'.repeat(43)}`;
    for (let attempt = 0; attempt < 20; attempt++) {
      expect((await signIn(platform, wrong)).status).toBe(401);
    }
    const response = await signIn(platform, wrong);
    expect([response.status, response.headers.has('retry-after')]).toEqual([429, true]);
    expect((await signIn(platform, platform.admin)).status).toBe(201);
  });

  it('is refused with a right key beyond a number a minute', async () => {
    const platform = await startPlatform();
    for (let n = 0; n < 60; n++) {
      expect((await signIn(platform, platform.admin)).status).toBe(201);
    }
    const response = await signIn(platform, platform.admin);
    expect([response.status, response.headers.has('retry-after')]).toEqual([429, true]);
  });

  it('counts all addresses of an IPv6 network as one', async () => {
    const platform = await startPlatform({ server: { bounds: { trustedProxies: ['127.0.0.1'] } } });
    const wrong = `mr_${'x'.repeat(43)}`;
    const from = async (address: string) =>
      (await signIn(platform, wrong, { 'x-forwarded-for': address })).status;
    for (let host = 1; host <= 20; host++) expect(await from(`2001:db8:0:1::${host}`)).toBe(401);
    expect(await from('2001:db8:0:1:a::21')).toBe(429);
    expect(await from('2001:db8:0:2::1')).toBe(401);
  });

  it('is refused to pages of other sites', async () => {
    const platform = await startPlatform();
    const { admin } = platform;
    expect((await signIn(platform, admin, { 'sec-fetch-site': 'same-site' })).status).toBe(403);
    expect((await signIn(platform, admin, { origin: 'https://other.example' })).status).toBe(403);
    expect((await signIn(platform, admin, { origin: platform.url })).status).toBe(201);
  });

  it('needs no key where calls from this machine need none', async () => {
    const platform = await startPlatform({ access: 'keyless-loopback' });
    const response = await send(platform, '/v1/session', { method: 'POST', headers: OWN_PAGE });
    expect([response.status, response.headers.get('set-cookie')]).toEqual([201, null]);
    const expected = { key: null, userId: 'owner', scopes: ['admin'], expiresAt: null };
    expect(await response.json()).toMatchObject({ ...expected, platform: { isDev: true } });
    expect(await (await send(platform, '/v1/session')).json()).toMatchObject(expected);
    const proxied = await send(platform, '/v1/session', {
      ...{ method: 'POST', headers: { ...OWN_PAGE, 'x-forwarded-for': '203.0.113.1' } },
    });
    expect(proxied.status).toBe(401);
  });
});

describe('a session', () => {
  it('allows what its key allows, and nothing else', async () => {
    const platform = await startPlatform();
    const { key } = await platform.keys.issue({
      name: 'reader',
      scopes: [`jobs:read:${ENDPOINT}`],
    });
    const cookie = await openSession(platform, key);
    expect(await statusOf(platform, `/v2/${ENDPOINT}/jobs`, cookie)).toBe(200);
    expect(await statusOf(platform, '/v1/keys', cookie)).toBe(403);
    const path = `/v2/${ENDPOINT}/run`;
    const headers = { cookie, 'content-type': 'application/json', ...OWN_PAGE };
    const run = await send(platform, path, { method: 'POST', headers, body: '{"input":{}}' });
    expect(run.status).toBe(403);
  });

  it('opens the API below /v1 and /v2, and no other path', async () => {
    const platform = await startBalanced();
    const cookie = await openSession(platform, platform.admin);
    const headers = { cookie, ...OWN_PAGE };
    const open = platform.routes.filter(({ access }) => access !== 'open');
    const accepted = new Set<string>();
    for (const { method, url } of open) {
      if (method !== 'GET' && method !== 'POST') continue;
      const path = url.replace(':endpoint', 'none').replaceAll(/:[a-z]+|\*/g, 'none');
      const { status } = await send(platform, path, { method, headers });
      if (status !== 401) accepted.add(url.split('/')[1] ?? '');
      const isOwn =
        /^\/v[12]\//.test(url) && !url.includes('/worker/') && !url.endsWith('/handler');
      expect([method, url, status === 401]).toEqual([method, url, !isOwn]);
    }
    expect([...accepted].toSorted()).toEqual(['v1', 'v2']);
  });

  it('is not used if the request has a key', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    const { key } = await platform.keys.issue({ name: 'reader', scopes: ['jobs:read'] });
    expect(await statusOf(platform, '/v1/keys', cookie, { authorization: key })).toBe(403);
    expect(await statusOf(platform, '/v1/keys', cookie, { authorization: 'none' })).toBe(401);
  });

  it('is not used if there are two cookies of the name', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    expect(await statusOf(platform, '/v1/keys', `a=b; ${cookie}`)).toBe(200);
    expect(await statusOf(platform, '/v1/keys', `${cookie}; millrace_session=x`)).toBe(401);
  });

  it('reads what the user opens from the address bar', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    expect(await statusOf(platform, '/v1/keys', cookie, { 'sec-fetch-site': 'none' })).toBe(200);
    expect(await statusOf(platform, '/v1/keys', cookie, { 'sec-fetch-site': 'same-site' })).toBe(
      403,
    );
  });

  it.each<[string, Headers, number]>([
    ['without the header of the console', { 'millrace-console': '' }, 403],
    ['from a page of the same site', { 'sec-fetch-site': 'same-site' }, 403],
    ['from the address bar', { 'sec-fetch-site': 'none' }, 403],
    ['from a page of another origin', { origin: 'http://127.0.0.1:1' }, 403],
    ['from a page without an origin', { origin: 'null' }, 403],
    ['from its own page', {}, 200],
  ])('changes nothing %s', async (_case, headers, expected) => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    const path = `/v2/${ENDPOINT}/purge-queue`;
    await submitJob(platform);
    const own = { cookie, ...OWN_PAGE, origin: platform.url };
    const response = await send(platform, path, {
      method: 'POST',
      headers: { ...own, ...headers },
    });
    expect(response.status).toBe(expected);
    const { jobs } = await readJson(await platform.call(`/v2/${ENDPOINT}/health`));
    expect(jobs).toMatchObject({ inQueue: expected === 200 ? 0 : 1 });
  });

  it('reads nothing for other sites, and moves no cursor of a job', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    const id = await submitJob(platform);
    const path = `/v2/${ENDPOINT}/stream/${id}`;
    expect(await statusOf(platform, path, cookie, { 'sec-fetch-site': 'same-site' })).toBe(403);
    expect(await statusOf(platform, `${path}?wait=0`, cookie)).toBe(422);
    expect(await statusOf(platform, `${path}?wait=0&after=0`, cookie)).toBe(200);
  });

  it('ends with its key', async () => {
    const platform = await startPlatform();
    const { holder, key } = await platform.keys.issue({ name: 'k', scopes: ['admin'] });
    const cookie = await openSession(platform, key);
    expect(await statusOf(platform, '/v1/keys', cookie)).toBe(200);
    await platform.keys.remove(holder.keyId);
    expect(await statusOf(platform, '/v1/keys', cookie)).toBe(401);
  });

  it('ends with the sign-out, and so do its streams', async () => {
    const platform = await startPlatform();
    const cookie = await openSession(platform, platform.admin);
    const id = await submitJob(platform);
    const stream = await send(platform, `/v2/${ENDPOINT}/stream/${id}`, {
      headers: { cookie, accept: 'text/event-stream' },
    });
    expect(stream.status).toBe(200);
    const ended = stream.text().then(
      () => 'ended',
      () => 'cut',
    );
    const out = await send(platform, '/v1/session', {
      ...{ method: 'DELETE', headers: { cookie, ...OWN_PAGE } },
    });
    expect(out.status).toBe(204);
    expect(out.headers.get('set-cookie')).toContain('Max-Age=0');
    expect(await ended).toBe('cut');
    expect(await statusOf(platform, '/v1/keys', cookie)).toBe(401);
  });

  it('does not reach the workers of a load-balancing endpoint', async () => {
    const platform = await startBalanced();
    const cookie = await openSession(platform, platform.admin);
    const seen: (string | undefined)[] = [];
    await platform.addWorker((request, response) => {
      seen.push(request.headers.cookie);
      response.end('ok');
    });
    const headers = { authorization: platform.admin };
    for (const sent of [`a=b; ${cookie}; c=d`, cookie, 'a=b']) {
      const path = `${platform.base}/x`;
      const response = await send(platform, path, { headers: { ...headers, cookie: sent } });
      expect(await response.text()).toBe('ok');
    }
    expect(seen).toEqual(['a=b; c=d', undefined, 'a=b']);
  });
});

describe('Sessions', () => {
  async function open(store: Store, clock: ManualClock) {
    const keys = await Keys.open({ store, clock });
    return { keys, sessions: await Sessions.open({ store, clock, keys }) };
  }

  async function start() {
    const clock = new ManualClock(1_000_000_000);
    const store = openSqliteStore({ path: ':memory:' });
    onTestFinished(() => store.close());
    const { keys, sessions } = await open(store, clock);
    const { holder } = await keys.issue({ name: 'k', scopes: ['admin'] });
    return { clock, store, keys, sessions, holder };
  }

  it('stay ended if a request uses them at the same time', async () => {
    const { clock, holder, sessions, store } = await start();
    const { session, token } = await sessions.start(holder);
    await clock.advance(SESSION_IDLE_MS / 2);
    const ended = sessions.end(session.id);
    expect(sessions.use(token)).toBeDefined();
    await ended;
    // Behind the write of the use.
    await store.write(() => {});
    expect(sessions.use(token)).toBeUndefined();
    expect((await open(store, clock)).sessions.use(token)).toBeUndefined();
  });

  it('are those of the store, which has no token', async () => {
    const { clock, holder, sessions, store } = await start();
    const { token } = await sessions.start(holder);
    const again = await open(store, clock);
    expect(again.sessions.use(token)?.holder).toEqual(holder);
    const rows = await store.read((tx) => tx.resources({ kind: 'session', limit: 10 }));
    expect(JSON.stringify(rows)).not.toContain(token.slice(3));
    expect(rows).toHaveLength(1);
  });

  it('end when nobody has used them for long, and after their longest time', async () => {
    const { clock, holder, sessions } = await start();
    const { token: idle } = await sessions.start(holder);
    const { token: used } = await sessions.start(holder);
    for (let at = 0; at < SESSION_MAX_MS; at += SESSION_IDLE_MS / 2) {
      expect(sessions.use(used)).toBeDefined();
      await new Promise(setImmediate);
      await clock.advance(SESSION_IDLE_MS / 2);
      if (at > SESSION_IDLE_MS) expect(sessions.use(idle)).toBeUndefined();
    }
    expect(sessions.use(used)).toBeUndefined();
  });

  it('end at the times that the operator sets, and not while they are used', async () => {
    const { clock, holder, keys, store } = await start();
    const times = { maxMs: 60_000, idleMs: 8_000 };
    const short = await Sessions.open({ store, clock, keys, times });
    const { token: idle } = await short.start(holder);
    const { token: used } = await short.start(holder);
    for (let at = 0; at < 60_000; at += 3_000) {
      expect(short.use(used)).toBeDefined();
      await new Promise(setImmediate);
      await clock.advance(3_000);
      if (at > 8_000) expect(short.use(idle)).toBeUndefined();
    }
    expect(short.use(used)).toBeUndefined();
  });

  it('are at most some for each key: the one unused for longest ends', async () => {
    const { clock, holder, sessions, store } = await start();
    const tokens: string[] = [];
    for (let count = 0; count <= MAX_KEY_SESSIONS; count++) {
      tokens.push((await sessions.start(holder)).token);
      await clock.advance(1);
    }
    const left = tokens.map((token) => sessions.use(token) !== undefined);
    expect(left).toEqual([false, ...Array<boolean>(MAX_KEY_SESSIONS).fill(true)]);
    const rows = await store.read((tx) => tx.resources({ kind: 'session', limit: 100 }));
    expect(rows).toHaveLength(MAX_KEY_SESSIONS);
  });

  it('leave the store with the next one when they have ended', async () => {
    const { clock, holder, keys, sessions, store } = await start();
    const { holder: other } = await keys.issue({ name: 'other', scopes: ['admin'] });
    await sessions.start(holder);
    await sessions.start(other);
    await keys.remove(other.keyId);
    await sessions.start(holder);
    const count = async () =>
      (await store.read((tx) => tx.resources({ kind: 'session', limit: 100 }))).length;
    expect(await count()).toBe(2);
    await clock.advance(SESSION_MAX_MS);
    await sessions.start(holder);
    expect(await count()).toBe(1);
  });
});
