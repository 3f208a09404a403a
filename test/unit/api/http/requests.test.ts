import { expect, it } from 'vitest';
import { readJson, startPlatform } from '../../../support/api/platform.ts';

it('refuses an unknown query parameter by name', async () => {
  const { call } = await startPlatform();
  const response = await call('/v2/demo/jobs?status=COMPLETED&colour=red');
  expect(response.status).toBe(422);
  expect(await readJson(response)).toMatchObject({
    code: 'invalid',
    errors: [expect.stringContaining('colour')],
  });
});

it('refuses neither known parameters nor those of other paths', async () => {
  const { call } = await startPlatform();
  for (const path of ['/v2/demo/jobs?status=COMPLETED', '/healthz?colour=red']) {
    expect([path, (await call(path)).status]).toEqual([path, 200]);
  }
});
