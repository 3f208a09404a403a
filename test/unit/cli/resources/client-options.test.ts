// What commands say when the platform refuses a call.
import { expect, it } from 'vitest';
import { callPlatform } from '../../../../src/cli/resources/client-options.ts';
import { ApiCaller } from '../../../../src/client/api-caller.ts';

function refuse(): Promise<Response> {
  const problem = { type: 'about:blank', title: 'Unauthorized', status: 401, code: 'unauthorized' };
  const headers = { 'content-type': 'application/problem+json' };
  const body = JSON.stringify({ ...problem, detail: 'no API key: send "Authorization: Bearer"' });
  return Promise.resolve(new Response(body, { status: 401, headers }));
}

function call(key: string | undefined): Promise<unknown> {
  const caller = new ApiCaller({ url: 'https://q.example.com/', key, fetch: refuse });
  return callPlatform(() => caller.json({ path: '/v1/endpoints' }));
}

it('names the URL and the remedy in a call without a key', async () => {
  await expect(call(undefined)).rejects.toThrow(
    'https://q.example.com needs an API key: set MILLRACE_KEY, pass --key, or run `millrace login`',
  );
});

it('says that a key was refused', async () => {
  await expect(call('mr_old')).rejects.toThrow(
    'https://q.example.com refuses the API key, which is invalid, unknown or expired: set MILLRACE_KEY',
  );
});
