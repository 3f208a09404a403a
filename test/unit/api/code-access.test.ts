// On an engine that runs callers' code as the platform's user, the scopes that say which code need admin.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { CodeAccess } from '../../../src/control/keys/rights.ts';
import { readJson, startPlatform } from '../../support/api/platform.ts';
import { CPU, PodWorld } from '../../support/containers/pod-world.ts';

const TEMPLATE = { name: 't', image: 'i', handler: '/srv/h.ts' };

async function start(codeAccess: CodeAccess) {
  const world = await PodWorld.open();
  onTestFinished(() => world.close());
  const platform = await startPlatform({
    engine: 'docker',
    server: { pods: world.pods, codeAccess },
  });
  const { id } = await readJson(await platform.post('/v1/templates', TEMPLATE));
  const made = await platform.post('/v1/endpoints', { name: 'e', templateId: id });
  const endpoint = String((await readJson(made))['id']);
  const send = async (scopes: string[], method: string, path: string, body?: object) => {
    const { key } = await platform.keys.issue({ name: 'k', scopes });
    const headers = { authorization: key };
    return body
      ? platform.post(path, body, { method, headers })
      : platform.call(path, { method, headers });
  };
  const calls = [
    ['pods:write', 'POST', '/v2/pods', { name: 'p', image: 'i', cpu: CPU }],
    ['pods:write', 'PATCH', '/v2/pods/x', { name: 'p' }],
    ['pods:write', 'POST', '/v2/pods/x/action', { action: 'start' }],
    ['endpoints:write', 'POST', '/v1/templates', TEMPLATE],
    ['endpoints:write', 'PATCH', `/v1/templates/${id}`, { name: 'u' }],
    ['endpoints:write', 'POST', '/v1/endpoints', { name: 'e', templateId: id }],
    ['endpoints:write', 'PATCH', `/v1/endpoints/${endpoint}`, { workersMax: 1 }],
    [`endpoints:write:${endpoint}`, 'PATCH', `/v1/endpoints/${endpoint}`, { workersMax: 1 }],
    [`admin:${endpoint}`, 'PATCH', `/v1/endpoints/${endpoint}`, { workersMax: 1 }],
  ] as const;
  return { calls, send };
}

describe('pods:write and endpoints:write on the process engine', () => {
  it('need admin, and the answer gives the reason and the remedy', async () => {
    const { calls, send } = await start({ engine: 'process', trustKeys: false });
    for (const [scope, method, path, body] of calls) {
      const refused = await send([scope], method, path, body);
      expect([scope, path, refused.status]).toEqual([scope, path, 403]);
      const { detail } = await readJson(refused);
      expect(detail).toMatch(
        /^(pods|endpoints):write needs a key with the scope admin, because .*--trust-keys\.$/,
      );
      expect((await send(['admin'], method, path, body)).status).not.toBe(403);
    }
  });

  it('do not affect reading and jobs', async () => {
    const { send } = await start({ engine: 'process', trustKeys: false });
    for (const [scope, path] of [
      ['pods:read', '/v2/pods'],
      ['endpoints:read', '/v1/templates'],
      ['jobs:read', '/v2/demo/health'],
      ['keys:read', '/v1/keys'],
    ] as const) {
      expect((await send([scope], 'GET', path)).status).toBe(200);
    }
  });

  it.each<CodeAccess>([
    { engine: 'process', trustKeys: true },
    { engine: 'process', trustKeys: false, podUser: 'nobody' },
    { engine: 'docker', trustKeys: false },
    { engine: 'none', trustKeys: false },
  ])('are enough with %j', async (access) => {
    const { calls, send } = await start(access);
    for (const [scope, method, path, body] of calls) {
      expect((await send([scope], method, path, body)).status).not.toBe(403);
    }
  });
});
