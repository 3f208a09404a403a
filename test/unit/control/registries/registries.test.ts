// Registries of users: their secrets are sealed, opened with the right key only, and used by pods.
import { randomBytes } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { ManualClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { BudgetFindings } from '../../../../src/control/billing/budget-judge.ts';
import { Catalog } from '../../../../src/control/endpoints/catalog.ts';
import { catalogFile, composeCatalog } from '../../../../src/control/endpoints/catalog-contents.ts';
import type { PodUse } from '../../../../src/control/pods/pod-state.ts';
import { SecretSealer, sealedSecret } from '../../../../src/control/registries/sealed-secret.ts';
import { openSpecResources } from '../../../../src/control/served-resources.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import { templateCreation } from '../../../../src/wire/resources/template.ts';

const SECRET = 'a-token';
const LOGIN = { name: 'own', server: 'r.example.com:5000', username: 'ci', secret: SECRET };
const OLD = randomBytes(32);
const NEW = randomBytes(32);

const FILE = catalogFile.parse({
  users: {
    ada: {
      registries: [{ id: 'old', server: 's', username: 'u', passwordEnv: 'P' }],
    },
  },
});

const sealedRow = z.object({ secret: sealedSecret });

function openStore() {
  const store = openSqliteStore({ path: ':memory:' });
  onTestFinished(() => store.close());
  return store;
}

async function open(keys: readonly Uint8Array[] = [OLD], store = openStore()) {
  const clock = new ManualClock();
  const processors = { vcpus: 4, memoryBytes: 8 * 2 ** 30 };
  const pods: PodUse[] = [];
  const given = { file: FILE, devices: [], processors, readPassword: () => 'declared' };
  const catalog = new Catalog(composeCatalog(given));
  const { registries, templates, userCatalog } = await openSpecResources({
    ...{ store, clock, catalog, engine: 'docker', listPods: () => pods },
    sealer: new SecretSealer(keys),
    findings: new BudgetFindings(),
  });
  /** The stored record, which has been read from the database. */
  const readStored = async () => {
    const listing = { kind: 'registry', limit: 10 };
    const [stored] = await store.read((tx) => tx.resources(listing));
    return stored?.body ?? '';
  };
  return { catalog: userCatalog, pods, readStored, registries, store, templates };
}

function unavailable(detail: string) {
  return expect.objectContaining({ code: 'unavailable', message: expect.stringMatching(detail) });
}

describe('a registry', () => {
  it('gives pods its login, and shows the secret to nobody', async () => {
    const { catalog, readStored, registries, store } = await open();
    const made = await registries.create('ada', LOGIN);
    const { secret: _secret, ...shown } = LOGIN;
    expect(made).toEqual({ ...shown, id: made.id, declared: false, createdAt: made.createdAt });
    expect(registries.get('ada', made.id)).toEqual(made);
    expect(registries.list({ userId: 'ada', before: undefined, limit: 1 }).records).toEqual([made]);
    const login = { server: LOGIN.server, username: 'ci', password: SECRET };
    expect(catalog.registry('ada', made.id)).toEqual(login);
    expect(catalog.registry('bob', made.id)).toBeUndefined();
    expect(await readStored()).not.toContain(SECRET);
    const later = await open([OLD], store);
    expect(later.catalog.registry('ada', made.id)).toEqual(login);
  });

  it('keeps its secret when its user changes, and takes a new one', async () => {
    const { catalog, registries } = await open();
    const { id } = await registries.create('ada', LOGIN);
    await registries.update('ada', id, { username: 'cd' });
    expect(catalog.registry('ada', id)).toMatchObject({ username: 'cd', password: SECRET });
    await registries.update('ada', id, { secret: 'another', name: 'n' });
    expect(catalog.registry('ada', id)).toMatchObject({ username: 'cd', password: 'another' });
  });

  it('cannot be created without a key', async () => {
    const { registries } = await open([]);
    await expect(registries.create('ada', LOGIN)).rejects.toMatchObject({
      ...{ code: 'conflict', message: expect.stringContaining('--secrets-key-file') },
    });
  });

  it('cannot be deleted while a pod or a template uses it', async () => {
    const { catalog, pods, registries, templates } = await open();
    const { id } = await registries.create('ada', LOGIN);
    const template = templateCreation.parse({ name: 't', image: 'i', registry: id });
    const { id: used } = await templates.create('ada', template);
    const { id: other } = await templates.create('ada', { ...template, name: 'other' });
    const message = `the templates other (${other}), t (${used}) use the registry ${id}; set registry of each to null, or delete them, first`;
    await expect(registries.remove('ada', id)).rejects.toMatchObject({ code: 'conflict', message });
    await templates.remove('ada', used);
    await templates.remove('ada', other);
    const spec = { name: 'p', registry: id, mounts: {} };
    pods.push({ id: 'pod_1', userId: 'ada', endpointId: null, status: 'RUNNING', spec });
    await expect(registries.remove('ada', id)).rejects.toMatchObject({
      ...{ code: 'conflict', message: expect.stringContaining('pod_1') },
    });
    pods.splice(0);
    const removing = registries.remove('ada', id);
    expect(catalog.judgeRegistry('ada', id)).toHaveLength(1);
    await removing;
    await expect(templates.create('ada', template)).rejects.toMatchObject({ code: 'invalid' });
  });

  it('is listed from the catalog file without its password, and is usable', async () => {
    const { catalog, registries } = await open([]);
    const { records } = registries.list({ userId: 'ada', before: undefined, limit: 9 });
    expect(records).toEqual([
      { id: 'old', name: 'old', server: 's', username: 'u', declared: true, createdAt: null },
    ]);
    expect(catalog.registry('ada', 'old')?.password).toBe('declared');
    await expect(registries.remove('ada', 'old')).rejects.toMatchObject({ code: 'conflict' });
  });
});

describe('the key of secrets', () => {
  it('is replaced by another: secrets are sealed again, then the old key is not needed', async () => {
    const { readStored, registries, store } = await open([OLD]);
    const { id } = await registries.create('ada', LOGIN);
    const before = await readStored();
    const both = await open([NEW, OLD], store);
    expect(both.catalog.registry('ada', id)?.password).toBe(SECRET);
    await both.registries.reseal();
    const after = await readStored();
    expect(after).not.toEqual(before);
    await both.registries.reseal();
    expect(await readStored()).toEqual(after);
    const { catalog } = await open([NEW], store);
    expect(catalog.registry('ada', id)?.password).toBe(SECRET);
  });

  it('is named if it is missing: pods wait, and nothing is lost', async () => {
    const { registries, store } = await open([OLD]);
    const { id } = await registries.create('ada', LOGIN);
    const { catalog, registries: later } = await open([NEW], store);
    expect(() => catalog.registry('ada', id)).toThrowError(unavailable('key [0-9a-f]{12} is not'));
    await later.reseal();
    await expect(later.update('ada', id, { username: 'x' })).rejects.toMatchObject({
      ...{ code: 'conflict', message: expect.stringContaining('send the secret') },
    });
    const warned: unknown[] = [];
    const warn = (fields: unknown) => warned.push(fields);
    later.warnOfMissingKeys(Object.assign(Object.create(silentLog), { warn }));
    expect(warned).toMatchObject([{ registries: 1 }]);
    expect((await open([NEW, OLD], store)).catalog.registry('ada', id)?.password).toBe(SECRET);
  });

  it('does not open a secret that was moved to another server or record', async () => {
    const { readStored, registries, store } = await open();
    const { id } = await registries.create('ada', LOGIN);
    const body = (await readStored()).replace('r.example.com', 'evil.example.com');
    const listing = { kind: 'registry', limit: 1 };
    const [stored] = await store.read((tx) => tx.resources(listing));
    if (!stored) throw new Error('nothing is stored');
    await store.write((tx) => tx.putResource({ ...stored, body }));
    const { catalog } = await open([OLD], store);
    expect(() => catalog.registry('ada', id)).toThrowError(unavailable('changed in the database'));
  });

  it('does not open a secret whose row was given to another user, or has a swapped secret', async () => {
    const { registries, store } = await open();
    const [own, other] = [
      await registries.create('ada', LOGIN),
      await registries.create('bob', LOGIN),
    ];
    const readRow = async (id: string) => {
      const row = await store.read((tx) => tx.resource({ kind: 'registry', id }));
      if (!row) throw new Error('nothing is stored');
      return row;
    };
    const [ofAda, ofBob] = [await readRow(own.id), await readRow(other.id)];
    await store.write((tx) => {
      tx.removeResource({ kind: 'registry', id: own.id });
      tx.putResource({ ...ofAda, userId: 'bob' });
    });
    const given = await open([OLD], store);
    const refused = unavailable('changed in the database');
    expect(() => given.catalog.registry('bob', own.id)).toThrowError(refused);
    const { secret } = sealedRow.parse(JSON.parse(ofAda.body));
    const body = JSON.stringify({ ...JSON.parse(ofBob.body), secret });
    await store.write((tx) => tx.putResource({ ...ofBob, body }));
    const swapped = await open([OLD], store);
    expect(() => swapped.catalog.registry('bob', other.id)).toThrowError(refused);
  });

  it('seals the same secret differently each time', () => {
    const sealer = new SecretSealer([OLD]);
    const [one, other] = [sealer.seal(SECRET, ['a']), sealer.seal(SECRET, ['a'])];
    expect(one.nonce).not.toBe(other.nonce);
    expect(one.data).not.toBe(other.data);
    for (const sealed of [one, other]) expect(sealer.open(sealed, ['a'])).toBe(SECRET);
    expect(() => sealer.open(one, ['b'])).toThrowError(/damaged/);
  });
});
