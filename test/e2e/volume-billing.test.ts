// The bill of network volumes on a real platform that is killed while they exist and while they are deleted, and whose
// catalog file changes meanwhile.
import { rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { createPlatform } from '../../src/client.ts';
import { PlatformProcess } from '../support/processes.ts';
import { createRandom } from '../support/random.ts';

/** USD for one GB and month: 1 GB costs more than a cent in 30 ms. */
const [PRICE, LATER_PRICE] = [1_000, 400];
const MONTH_MS = 730 * 3_600_000;
const GB = 1_000;

it('bills volumes exactly once, at the price of the time, although the platform is killed', async () => {
  const catalog = join(tmpdir(), `millrace-catalog-${process.pid}-${Date.now()}.json`);
  const setPrice = (networkVolumePrice: number) =>
    writeFile(catalog, JSON.stringify({ dataCenters: [{ id: 'here', networkVolumePrice }] }));
  await setPrice(PRICE);
  const args = ['--engine', 'process', '--catalog', catalog];
  const platform = await PlatformProcess.start({ endpoints: [], args });
  onTestFinished(async () => {
    await platform.close();
    await rm(catalog);
  });
  const random = createRandom(Number(process.env['SEED'] ?? 1));
  const connect = () => createPlatform({ url: platform.url, key: platform.adminKey });
  const created = await Promise.all(
    ['a', 'b', 'c', 'd'].map((name) => connect().networkVolumes.create({ name, size: GB })),
  );
  const kill = async () => {
    await platform.kill();
    await sleep(Math.floor(random() * 200));
    const killed = Date.now();
    await platform.restart();
    return [killed, Date.now()] as const;
  };
  await setPrice(LATER_PRICE);
  /** Between these times, the new price came into force. */
  const changed = await kill();
  await sleep(300);

  /** Between these times, each volume was deleted. */
  const deleted = new Map<string, readonly [number, number]>();
  const remove = async (id: string) => {
    const sent = Date.now();
    // Broken off by the kill.
    await connect()
      .networkVolumes.delete(id)
      .catch(() => {});
    return [sent, Date.now()] as const;
  };
  const broken = created.map(({ id }) => remove(id).then((times) => deleted.set(id, times)));
  await sleep(Math.floor(random() * 8));
  await kill();
  await Promise.all(broken);
  for (const { id } of (await connect().networkVolumes.page()).items) {
    deleted.set(id, await remove(id));
  }
  expect((await connect().networkVolumes.page()).items).toEqual([]);
  const bill = await connect().billing.get({ group: 'resource', kind: 'volume' });
  for (const { createdAt, id } of created) {
    const record = bill.records.find((each) => each.id === id);
    const begin = Date.parse(createdAt ?? '');
    const [sent, answered] = deleted.get(id) ?? [0, 0];
    const ms = Math.round((record?.seconds ?? 0) * 1_000);
    expect(ms).toBeGreaterThanOrEqual(sent - begin);
    expect(ms).toBeLessThanOrEqual(answered - begin);
    /** USD, if the price changed at this time. */
    const costOf = (at: number) =>
      (((at - begin) * PRICE + (begin + ms - at) * LATER_PRICE) * GB) / MONTH_MS;
    const cost = Number(record?.cost);
    expect(cost).toBeGreaterThanOrEqual(costOf(changed[0]) - 0.000_001);
    expect(cost).toBeLessThanOrEqual(costOf(changed[1]) + 0.000_001);
  }
  await kill();
  await sleep(100);
  const later = await connect().billing.get({ group: 'resource', kind: 'volume' });
  expect(later.records).toEqual(bill.records);
});
