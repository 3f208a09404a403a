import { readFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { ENDPOINT, startPlatform } from '../platform.ts';

it('the crashes of a deleted endpoint are forgotten, and later reports are not counted', async () => {
  const platform = await startPlatform();
  const { endpoints, workers } = platform;
  const bye = { workerId: 'w', incarnation: 1, reason: 'crashed' as const, outbox: [] };
  const read = async () => (await platform.call('/metrics')).text();
  workers.noteCrash(ENDPOINT, bye);
  expect(await read()).toContain(`millrace_worker_crashes_total{endpoint="${ENDPOINT}"} 1`);
  await endpoints.remove('owner', ENDPOINT);
  workers.noteCrash(ENDPOINT, bye);
  expect(await read()).not.toContain('millrace_worker_crashes_total{');
});

it('every metric of Millrace is described in docs/operations.md', async () => {
  const platform = await startPlatform();
  const text = await (await platform.call('/metrics')).text();
  const names = [...text.matchAll(/^# HELP (millrace_\w+)/gm)].map(([, name]) => name);
  const described = await readFile('docs/operations.md', 'utf8');
  expect(names).not.toEqual([]);
  expect(names.filter((name) => !described.includes(`| \`${name}`))).toEqual([]);
});
