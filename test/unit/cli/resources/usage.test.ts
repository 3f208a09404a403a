import { expect, it } from 'vitest';
import { budgetsCommands } from '../../../../src/cli/resources/usage.ts';
import { createPlatform } from '../../../../src/client.ts';
import { type Platform, startPlatform } from '../../../support/api/platform.ts';
import { printVerb } from '../../../support/runs/verb-run.ts';

/** What the command prints, without the last line break. `key`: default: the operator's. */
async function run({ admin, url }: Platform, args: readonly string[], key = admin) {
  return (await printVerb(budgetsCommands, [...args, '--url', url, '--key', key])).trim();
}

it('sets and lists budgets of other users for the operator, with millrace budgets --user', async () => {
  const platform = await startPlatform({ engine: 'docker' });
  const { key } = await platform.keys.issue({ userId: 'ann', name: 'k', scopes: ['admin'] });
  const create = ['create', '--name', 'month', '--limit', '500', '--user', 'ann'];
  const made = JSON.parse(await run(platform, create));
  expect(made).toMatchObject({ userId: 'ann', setBy: 'operator', limit: 500 });
  await run(platform, ['create', '--name', 'mine', '--limit', '2']);
  await run(platform, ['create', '--name', 'own', '--limit', '3', '--period', 'day'], key);

  expect(await run(platform, ['list'])).not.toMatch(/ (?:month|own) +ann/);
  const ofAnn = await run(platform, ['list', '--user', 'ann']);
  expect(ofAnn).toMatch(/^ID +NAME +USER +ENDPOINT +PERIOD +SPENT +LIMIT +STATE +SET BY$/m);
  expect(ofAnn).toMatch(/ month +ann +all +month +0\.000000 +500 +ok +operator$/m);
  expect(ofAnn).toMatch(/ own +ann +all +day .* user$/m);
  expect(ofAnn).not.toContain('mine');
  expect((await run(platform, ['list', '--user', '*'])).split('\n')).toHaveLength(4);
  const page = ['list', '--user', '*', '--limit', '1'];
  const more = (await run(platform, page)).split('\n').at(-1) ?? '';
  const next = await run(platform, [...page, ...more.replace('next page: ', '').split(' ')]);
  expect(next).toMatch(/ mine +owner /);
  await expect(run(platform, ['list', '--user', 'owner'], key)).rejects.toThrow(/403/);
  const ofBob = [...create.slice(0, -1), 'bob'];
  await expect(run(platform, ofBob, key)).rejects.toThrow(/403/);
});

it('lists the budgets of another user and of all users, in pages', async () => {
  const platform = await startPlatform({ engine: 'docker' });
  const { budgets } = createPlatform({ url: platform.url, key: platform.admin });
  const made = await budgets.create({ name: 'set', limit: 5, userId: 'ann' });
  expect(made).toMatchObject({ userId: 'ann', setBy: 'operator' });
  for (const name of ['a', 'b']) await budgets.create({ name, limit: 1 });
  expect((await budgets.ofUser('ann').page()).items).toEqual([made]);
  expect((await budgets.ofUser('nobody').page()).items).toEqual([]);
  const names = [];
  for await (const { name } of budgets.ofUser('*').list({ pageSize: 1 })) names.push(name);
  expect(names).toEqual(['b', 'a', 'set']);
});
