// Variables of templates and pods are sealed in the store, and open only with the key and for their own record.
import { randomBytes } from 'node:crypto';
import { expect, it, onTestFinished } from 'vitest';
import { ManualClock } from '../../../../src/base/clock.ts';
import { openTemplates } from '../../../../src/control/endpoints/templates.ts';
import { composeSpec } from '../../../../src/control/pods/pod-spec.ts';
import {
  resealVariables,
  SecretSealer,
  UnopenedSecretError,
} from '../../../../src/control/registries/sealed-secret.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';
import { HIDDEN_VALUE } from '../../../../src/wire/resources/fields.ts';
import { podCreation } from '../../../../src/wire/resources/pod.ts';
import { templateCreation } from '../../../../src/wire/resources/template.ts';
import { CPU, PodWorld } from '../../../support/containers/pod-world.ts';

it('refuses to open a secret with a shorter tag, which is easier to guess', () => {
  const sealer = new SecretSealer([randomBytes(32)]);
  const sealed = sealer.seal('', ['ada']);
  expect(sealer.open(sealed, ['ada'])).toBe('');
  const bytes = Buffer.from(sealed.data, 'base64');
  for (const length of [4, 8, 12, 15]) {
    const data = bytes.subarray(0, length).toString('base64');
    expect(() => sealer.open({ ...sealed, data }, ['ada'])).toThrow(UnopenedSecretError);
  }
});

const OLD = Buffer.alloc(32, 1);
const NEW = Buffer.alloc(32, 2);
const SECRET = 's3cret';
const ENV = { LEVEL: 'info', TOKEN: SECRET };
const HIDDEN = { LEVEL: HIDDEN_VALUE, TOKEN: HIDDEN_VALUE };

function openStore() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  return store;
}

function open(store: Store, ...keys: Uint8Array[]) {
  const catalog = { judgeRegistry: () => [], resolveRegistry: (_user: string, id: string) => id };
  const clock = new ManualClock();
  return openTemplates({ store, clock, engine: 'docker', catalog, sealer: new SecretSealer(keys) });
}

const creation = (env: Record<string, string> = ENV) =>
  templateCreation.parse({ name: 't', image: 'i', env });

async function readRow(store: Store, kind = 'template') {
  const [row] = await store.read((tx) => tx.resources({ kind, limit: 1 }));
  if (!row) throw new Error('nothing is stored');
  return row;
}

it('seals the variables of a template, and sees whether they have changed', async () => {
  const store = openStore();
  const templates = await open(store, OLD);
  const { env, id } = await templates.create('ada', creation());
  expect(env).toEqual(ENV);
  const { body } = await readRow(store);
  expect(body).not.toContain(SECRET);
  expect(body).toContain('TOKEN');
  const later = await open(store, OLD);
  expect(later.get('ada', id)).toEqual(templates.get('ada', id));
  expect(await later.update('ada', id, { env: ENV })).toMatchObject({ env: ENV, version: 1 });
  const changed = await later.update('ada', id, { env: { TOKEN: 'new' } });
  expect(changed).toMatchObject({ env: { TOKEN: 'new' }, version: 2 });
});

it('seals what is in the clear or has an earlier key, each record once', async () => {
  const store = openStore();
  const { id } = await (await open(store)).create('ada', creation());
  await (await open(store)).create('ada', creation({}));
  const read = async () =>
    (await store.read((tx) => tx.resource({ kind: 'template', id })))?.body ?? '';
  expect(await read()).toContain(SECRET);
  const bodies = new Set<string>();
  for (const keys of [[OLD], [OLD], [NEW, OLD], [NEW]]) {
    const locked = await resealVariables(store, new SecretSealer(keys), 'template');
    expect(locked.records).toBe(0);
    bodies.add(await read());
    expect(await read()).not.toContain(SECRET);
  }
  expect(bodies.size).toBe(2);
  expect((await open(store, NEW)).get('ada', id)).toMatchObject({ env: ENV, version: 1 });
});

it('hides variables whose key is missing, starts nothing with them, and does not lose them', async () => {
  const store = openStore();
  const { id } = await (await open(store, OLD)).create('ada', creation());
  const sealer = new SecretSealer([NEW]);
  const locked = await resealVariables(store, sealer, 'template');
  expect(locked).toEqual({ keys: new Set([new SecretSealer([OLD]).keyId]), records: 1 });
  const later = await open(store, NEW);
  const template = later.get('ada', id);
  expect(template.env).toEqual(HIDDEN);
  const pod = podCreation.parse({ name: 'p', template: id, cpu: CPU });
  expect(() => composeSpec(pod, template, undefined)).toThrowError(
    expect.objectContaining({
      code: 'unavailable',
      message: expect.stringMatching(/its key \w+ is not/),
    }),
  );
  expect(composeSpec({ ...pod, env: {} }, template, undefined)).toMatchObject({ env: {} });
  expect(await later.update('ada', id, { args: 'x' })).toMatchObject({ env: HIDDEN, version: 2 });
  expect((await open(store, OLD)).get('ada', id)).toMatchObject({ env: ENV, args: 'x' });
  const replaced = await later.update('ada', id, { env: { TOKEN: 'new' } });
  expect(replaced).toMatchObject({ env: { TOKEN: 'new' }, version: 3 });
  expect(replaced).not.toHaveProperty('unopened');
  expect((await open(store, NEW)).get('ada', id).env).toEqual({ TOKEN: 'new' });
});

it('does not open variables that were moved to another record or user', async () => {
  const store = openStore();
  const templates = await open(store, OLD);
  await templates.create('ada', creation());
  const row = await readRow(store);
  const { id } = await templates.create('ada', creation({ TOKEN: 'mine' }));
  const { env } = JSON.parse(row.body);
  const other = await store.read((tx) => tx.resource({ kind: 'template', id }));
  if (!other) throw new Error('nothing is stored');
  const body = JSON.stringify({ ...JSON.parse(other.body), env });
  await store.write((tx) => {
    tx.putResource({ ...other, body });
    tx.removeResource({ kind: 'template', id: row.id });
    tx.putResource({ ...row, userId: 'bob' });
  });
  const later = await open(store, OLD);
  for (const { env: opened, unopened } of later.all()) {
    expect(opened).toEqual(HIDDEN);
    expect(unopened?.why).toContain('changed in the database');
  }
});

it('seals the variables of a pod, which waits for its container without the key', async () => {
  const given = { pods: { sealer: new SecretSealer([OLD]) } };
  const world = await PodWorld.open(given);
  onTestFinished(() => world.close());
  const { id } = await world.create({ env: ENV });
  await world.settle();
  expect((await readRow(world.store, 'pod')).body).not.toContain(SECRET);
  expect(world.host.containers.get(id)?.spec.env).toMatchObject(ENV);
  given.pods.sealer = new SecretSealer([NEW]);
  await world.restart();
  await world.settle();
  const find = () => world.pods.find('owner', id);
  expect(await find()).toMatchObject({ status: 'RUNNING', spec: { env: HIDDEN } });
  await world.pods.act('owner', id, 'restart');
  await world.settle(5_000);
  const shown = await world.pods.show(await find());
  expect(shown).toMatchObject({ env: HIDDEN, reason: expect.stringContaining('its key') });
  expect(world.host.containers.has(id)).toBe(false);
  given.pods.sealer = new SecretSealer([NEW, OLD]);
  await world.restart();
  await resealVariables(world.store, given.pods.sealer, 'pod');
  await world.settle(5_000);
  expect(world.host.containers.get(id)?.spec.env).toMatchObject(ENV);
  expect((await find()).spec.env).toEqual(ENV);
});
