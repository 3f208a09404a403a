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

it('known parameters, and those of other paths, are not refused', async () => {
  const { call } = await startPlatform();
  for (const path of ['/v2/demo/jobs?status=COMPLETED', '/healthz?colour=red']) {
    expect([path, (await call(path)).status]).toEqual([path, 200]);
  }
});
