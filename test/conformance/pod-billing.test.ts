// What a platform that is lost again and again bills, compared with the times that the process engine has recorded.

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock as clock } from '../../src/base/clock.ts';
import { silentLog as log } from '../../src/base/log.ts';
import { addToBill } from '../../src/control/billing/bill-rows.ts';
import { Billing } from '../../src/control/billing/billing.ts';
import { Pods } from '../../src/control/pods/pods.ts';
import { Reconciler } from '../../src/control/pods/reconciler.ts';
import { ProcessEngine } from '../../src/engine/process/process-engine.ts';
import { openSqliteStore } from '../../src/store/sqlite/sqlite.ts';
import { OWNER } from '../../src/store/store.ts';
import { podCreation } from '../../src/wire/resources/pod.ts';
import { CPU, createCatalog } from '../support/containers/pod-world.ts';
import { NO_NAMES } from '../support/no-names.ts';
import { createRandom } from '../support/random.ts';
import { until } from '../support/until.ts';

const DAY_MS = 86_400_000;
const ROUNDS = 8;
/** Ends at once and well when it is stopped, so that the platform waits before no restart. */
const LASTING = `sh -c 'trap "exit 0" TERM; while :; do sleep 1000 & wait; done'`;

async function openPlatform(folder: string, engine: ProcessEngine) {
  const catalog = createCatalog();
  const templates = { ...NO_NAMES, find: () => undefined };
  const store = openSqliteStore({ path: join(folder, 'pods.db') });
  const pods = await Pods.open({
    store,
    clock,
    engine,
    catalog,
    templates,
    bill: { add: addToBill },
  });
  const { live, meter } = pods;
  const reconciler = new Reconciler({ ...{ pods: live, meter, engine, catalog, clock }, log });
  await reconciler.start();
  const drop = async () => {
    reconciler.close();
    await store.close();
  };
  return { store, pods, drop };
}

it('bills exactly the runs of the process engine, however often the platform is lost', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'millrace-bill-'));
  const engine = new ProcessEngine({ folder: join(folder, 'pods'), log });
  let platform = await openPlatform(folder, engine);
  onTestFinished(async () => {
    await platform.drop();
    for (const { id } of await engine.list()) await engine.remove(id, 'remove');
    await engine.close();
    await rm(folder, { recursive: true, force: true });
  });
  const { id } = await platform.pods.create(
    OWNER,
    podCreation.parse({ name: 'a', image: 'none', cpu: CPU, args: LASTING }),
  );
  const random = createRandom(Number(process.env['SEED'] ?? 1));
  /** By start, as the engine has recorded them. */
  const runs = new Map<number, number>();
  /** Repeats the action: the platform refuses it until it has seen what happened to the container. */
  const untilIn = (state: 'running' | 'exited') =>
    until(async () => {
      const seen = await engine.inspect(id);
      if (seen?.state === state) return seen;
      const action = state === 'running' ? 'start' : 'stop';
      await platform.pods.act(OWNER, id, action).catch(() => {});
      return undefined;
    });
  for (let round = 0; round < ROUNDS; round++) {
    await untilIn('running');
    await sleep(Math.floor(random() * 100));
    // The engine stops the container while no platform looks, or a platform does and is lost at any moment.
    if (random() < 0.4) {
      await platform.drop();
      await engine.stop(id, 1_000);
      platform = await openPlatform(folder, engine);
    } else {
      await platform.pods.act(OWNER, id, 'stop').catch(() => {});
      if (random() < 0.6) {
        await sleep(Math.floor(random() * 30));
        await platform.drop();
        platform = await openPlatform(folder, engine);
      }
    }
    const { startedAt, endedAt } = await untilIn('exited');
    runs.set(startedAt ?? 0, endedAt ?? 0);
    await platform.pods.act(OWNER, id, 'start').catch(() => {});
    if (random() < 0.5) {
      await platform.drop();
      platform = await openPlatform(folder, engine);
    }
  }
  await untilIn('running');
  const last = await untilIn('exited');
  runs.set(last.startedAt ?? 0, last.endedAt ?? 0);
  await until(() => platform.pods.live.get(id)?.meter?.run === null);
  const { pods, store } = platform;
  const billing = new Billing({ store, clock, pods, nameOf: () => undefined });
  const to = clock.now() + DAY_MS;
  const rows = await billing.rows({ userId: OWNER, step: 'day', from: 0, to });
  const ran = [...runs].reduce((sum, [startedAt, endedAt]) => sum + endedAt - startedAt, 0);
  expect(runs.size).toBe(ROUNDS + 1);
  expect(rows.reduce((sum, { ms }) => sum + ms, 0)).toBe(ran);
});
