// What `deploy --python` does with the other variables of the template.
import { expect, it } from 'vitest';
import { changeEndpoint, createEndpoint } from '../../../../src/cli/deploy/target.ts';
import { createPlatform } from '../../../../src/client.ts';
import { startPlatform } from '../../../support/api/platform.ts';
import { fetchChecked } from '../../../support/network/checked-fetch.ts';

const PYTHON = { MILLRACE_PYTHON: '/venv/bin/python' };
const settings = (env: Record<string, string>, keepsEnv = true) => ({
  ...{ keepsEnv, endpoint: {}, template: { env } },
});

async function open() {
  const { admin, url } = await startPlatform({ engine: 'process' });
  const client = createPlatform({ url, key: admin, fetch: fetchChecked });
  const endpoint = await createEndpoint(client, 'words', settings({ TOKEN: 's3cret' }));
  const readEnv = async () => (await client.templates.get(endpoint.templateId ?? '')).env;
  return { client, endpoint, readEnv, url };
}

it('keeps the other variables', async () => {
  const { client, endpoint, readEnv } = await open();
  await changeEndpoint(client, endpoint, settings(PYTHON));
  expect(await readEnv()).toEqual({ TOKEN: 's3cret', ...PYTHON });
  await changeEndpoint(client, endpoint, settings(PYTHON, false));
  expect(await readEnv()).toEqual(PYTHON);
});

it('names variables whose values are hidden, and changes nothing', async () => {
  const { client, endpoint, readEnv, url } = await open();
  const { key } = await client.keys.create({ name: 'reader', scopes: ['endpoints:read'] });
  const reader = createPlatform({ url, key, fetch: fetchChecked });
  await expect(changeEndpoint(reader, endpoint, settings(PYTHON))).rejects.toThrow(
    /cannot read the values of TOKEN: .* Give all variables with --env$/,
  );
  expect(await readEnv()).toEqual({ TOKEN: 's3cret' });
});
