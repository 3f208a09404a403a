// The file of the operator's catalog.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createLog } from '../../../../src/base/log.ts';
import { openCatalog } from '../../../../src/platform/files/catalog-file.ts';
import { makeGpus } from '../../../support/containers/gpus.ts';

let folder: string;
let path: string;
let logged: string;
const variables = new Map<string, string>();
const readVariable = (name: string) => variables.get(name);

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'millrace-catalog-'));
  path = join(folder, 'catalog.json');
  logged = '';
});

afterEach(() => rm(folder, { recursive: true }));

function open(file: string | undefined = path) {
  const destination = new Writable({
    write(line, _encoding, done) {
      logged += line;
      done();
    },
  });
  const devices = makeGpus('NVIDIA L4', 1);
  return openCatalog({ path: file, devices, readVariable, log: createLog({ destination }) });
}

const write = (file: unknown) =>
  writeFile(path, typeof file === 'string' ? file : JSON.stringify(file));

function withRegistry(password: object): object {
  const registry = { id: 'own', server: 'r.example', username: 'ada', ...password };
  return { users: { ada: { registries: [registry] } } };
}

it('is created from the machine’s devices if no file is named', () => {
  const catalog = openCatalog({
    ...{ path: undefined, devices: makeGpus('NVIDIA L4', 1), readVariable },
    log: createLog({ level: 'silent' }),
  });
  expect(catalog.hasGpuType('NVIDIA L4')).toBe(true);
  expect(catalog.listCpus({ before: undefined, limit: 9 }).cpus).toHaveLength(1);
});

it('offers fixed sizes on Kubernetes, whatever the machine of the platform', () => {
  const catalog = openCatalog({
    ...{ path: undefined, devices: [], engine: 'kubernetes', readVariable },
    log: createLog({ level: 'silent' }),
  });
  expect(catalog.listCpus({ before: undefined, limit: 9 }).cpus).toEqual([
    {
      ...{ id: 'cpu', name: 'cpu', vcpuCounts: [2, 4, 8, 16], maxMemory: 64 },
      ...{ vcpuPrice: 0, memoryPrice: 0 },
    },
  ]);
});

it('has the password of a registry from a file beside it, without the line break at its end', async () => {
  await write(withRegistry({ passwordFile: 'password' }));
  await writeFile(join(folder, 'password'), ' p w \n');
  expect(open().declaredRegistry('ada', 'own')?.password).toBe(' p w ');
});

it('has the password of a registry from a variable', async () => {
  await write(withRegistry({ passwordEnv: 'TEST_REGISTRY_PASSWORD' }));
  variables.set('TEST_REGISTRY_PASSWORD', 'from the environment');
  expect(open().declaredRegistry('ada', 'own')?.password).toBe('from the environment');
});

it.each([
  ['invalid JSON', '{"gpus":', 'catalog.json'],
  ['a price below zero', { gpus: [{ id: 'a', price: -1, match: 'x' }] }, 'gpus[0].price: '],
  ['an unset variable', withRegistry({ passwordEnv: 'TEST_UNSET' }), 'TEST_UNSET'],
  ['a missing password file', withRegistry({ passwordFile: 'none' }), 'ENOENT'],
])('is refused with %s, with the file and the place', async (_, file, message) => {
  await write(file);
  expect(() => open()).toThrow(
    expect.objectContaining({
      ...{ name: 'PlatformOptionError', fault: 'invalid', option: 'compute.catalogFile' },
      message: expect.stringContaining(message),
    }),
  );
  expect(() => open()).toThrow(path);
});

it('is refused if it is missing', () => {
  expect(() => open()).toThrow(
    expect.objectContaining({
      ...{ name: 'PlatformOptionError', option: 'compute.catalogFile' },
      message: expect.stringContaining('ENOENT'),
    }),
  );
});

it('logs a warning if its names do not match the machine’s', async () => {
  await write({ gpus: [{ id: 'big', price: 1, match: 'NVIDIA H200' }] });
  open();
  expect(logged).toContain('"gpuType":"big"');
  expect(logged).toContain('"device":"NVIDIA L4"');
});
