// Repeats the main pod tests of test/unit/control with real processes, on the process engine.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { systemClock } from '../../src/base/clock.ts';
import { silentLog } from '../../src/base/log.ts';
import { type PodState, Pods } from '../../src/control/pods/pods.ts';
import { Reconciler } from '../../src/control/pods/reconciler.ts';
import { ProcessEngine } from '../../src/engine/process/process-engine.ts';
import { openSqliteStore } from '../../src/store/sqlite/sqlite.ts';
import { OWNER, type Store } from '../../src/store/store.ts';
import { podCreation } from '../../src/wire/resources/pod.ts';
import { CPU, createCatalog } from '../support/containers/pod-world.ts';
import { NO_NAMES } from '../support/no-names.ts';
import { until } from '../support/until.ts';

/** A script that prints how often it has run on its disk, and waits. */
const COUNT = `sh -c 'echo run >> runs; echo "runs: $(wc -l < runs)"; exec sleep 1000'`;

let folder: string;
let store: Store;
let engine: ProcessEngine;
let pods: Pods;
let reconciler: Reconciler;

async function open(): Promise<void> {
  const clock = systemClock;
  const catalog = createCatalog();
  const templates = { ...NO_NAMES, find: () => undefined };
  store = openSqliteStore({ path: join(folder, 'pods.db') });
  engine = new ProcessEngine({ folder: join(folder, 'pods'), log: silentLog });
  pods = await Pods.open({ store, clock, engine, catalog, templates });
  reconciler = new Reconciler({
    ...{ pods: pods.live, meter: pods.meter, engine, catalog, clock },
    log: silentLog,
  });
  await reconciler.start();
}

async function drop(): Promise<void> {
  reconciler.close();
  await store.close();
}

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-pods-'));
  await open();
});

afterEach(async () => {
  await drop();
  for (const { id } of await engine.list()) await engine.remove(id, 'remove');
  await engine.close();
  await rm(folder, { recursive: true, force: true });
});

function create(args: string): Promise<PodState> {
  return pods.create(OWNER, podCreation.parse({ name: 'a', image: 'none', cpu: CPU, args }));
}

function untilIn(status: PodState['status'], id: string): Promise<PodState> {
  return until(async () => {
    const pod = await pods.find(OWNER, id);
    return pod.status === status && pod;
  });
}

function untilPrinted(id: string, text: string): Promise<true> {
  return until(async () => {
    const { end } = await pods.readLog(OWNER, id, 1_000);
    return Buffer.from(end).includes(text);
  });
}

it('keep their disk across stop and start, and lose it on restart', async () => {
  const { id } = await create(COUNT);
  await untilIn('RUNNING', id);
  await untilPrinted(id, 'runs: 1\n');
  await pods.act(OWNER, id, 'stop');
  await until(async () => (await engine.inspect(id))?.state === 'exited');
  await pods.act(OWNER, id, 'start');
  await untilIn('RUNNING', id);
  await untilPrinted(id, 'runs: 2\n');
  await pods.act(OWNER, id, 'restart');
  expect(await untilIn('RUNNING', id)).toMatchObject({ generation: 2 });
  await untilPrinted(id, 'runs: 1\n');
  expect(await engine.list()).toHaveLength(1);
});

it('continue when the platform is killed, and are found and ended afterwards', async () => {
  const { id } = await create(COUNT);
  const before = await untilIn('RUNNING', id);
  await drop();
  await open();
  expect(await untilIn('RUNNING', id)).toEqual(before);
  await pods.act(OWNER, id, 'terminate');
  await until(async () => (await engine.list()).length === 0);
});

it('are EXITED after code 0, and in ERROR after three failures', async () => {
  const well = await create('true');
  const ill = await create('sh -c "exit 7"');
  expect(await untilIn('EXITED', well.id)).toMatchObject({ reason: null });
  expect(await untilIn('ERROR', ill.id)).toMatchObject({
    reason: expect.stringMatching(/\bcode 7\b.*\b3\b/),
  });
});

it('show their usage while they run', async () => {
  const { id } = await create('sleep 1000');
  const record = await pods.show(await untilIn('RUNNING', id));
  expect(record.runtime).toMatchObject({ uptime: expect.any(Number), ports: [], gpus: [] });
});
