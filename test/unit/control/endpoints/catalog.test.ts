// What can be had, made from the operator's file and from what the machine has.
import { describe, expect, it } from 'vitest';
import { Catalog, UserCatalog, type Wish } from '../../../../src/control/endpoints/catalog.ts';
import { catalogFile, composeCatalog } from '../../../../src/control/endpoints/catalog-contents.ts';
import type { Device } from '../../../../src/wire/link/worker-link.ts';
import { describeIssues } from '../../../../src/wire/problem.ts';
import { errorAt } from '../../../support/answers.ts';
import { GB, makeGpus } from '../../../support/containers/gpus.ts';
import { NOTHING_CREATED } from '../../../support/no-names.ts';

const MACHINE = { vcpus: 6, memoryBytes: 15.6 * GB };

interface Sources {
  file?: unknown;
  devices?: Device[];
}

function openCatalog({ devices = [], file }: Sources = {}): Catalog {
  const checked = file === undefined ? undefined : catalogFile.parse(file);
  const readPassword = ({ id }: { id: string }) => `password of ${id}`;
  return new Catalog(composeCatalog({ file: checked, devices, processors: MACHINE, readPassword }));
}

/** For users who have created nothing. */
function openUserCatalog(sources?: Sources): UserCatalog {
  return new UserCatalog(openCatalog(sources), NOTHING_CREATED);
}

const ALL = { before: undefined, limit: 100 };
const NOBODY = new Set<string>();

const wish = (given: Partial<Wish>): Wish => ({
  ...{ registry: null, mounts: {}, dataCenterId: null },
  ...given,
});

const withVolume = (volumeId: string) => ({ network: [{ volumeId, path: '/data' }] });

const FILE = {
  gpus: [
    { id: 'big', name: 'A big one', price: 2.5, match: 'NVIDIA H200' },
    { id: 'small', price: 0.4, match: 'NVIDIA L4' },
  ],
  cpus: [{ id: 'fast', vcpuCounts: [2, 8], maxMemory: 64, vcpuPrice: 0.05, memoryPrice: 0.01 }],
  dataCenters: [{ id: 'north' }, { id: 'south' }],
  users: {
    ada: {
      networkVolumes: [
        { id: 'models', dataCenterId: 'south', path: '/srv/models' },
        { id: 'scratch', dataCenterId: 'north' },
      ],
      registries: [{ id: 'own', server: 'r.example', username: 'ada', passwordEnv: 'PW' }],
    },
    bob: { networkVolumes: [{ id: 'scratch', dataCenterId: 'north' }] },
  },
};

describe('without a file', () => {
  it('makes each kind of GPU a type with its own name and no price', () => {
    const devices = [...makeGpus('NVIDIA L4', 2, 22.5), ...makeGpus('NVIDIA H200', 1, 140.4)];
    const { gpus } = openCatalog({ devices }).listGpus(ALL, new Set(['NVIDIA L4-1']));
    expect(gpus).toEqual([
      { id: 'NVIDIA L4', name: 'NVIDIA L4', memory: 23, price: 0, total: 2, available: 1 },
      { id: 'NVIDIA H200', name: 'NVIDIA H200', memory: 140, price: 0, total: 1, available: 1 },
    ]);
  });

  it('makes the CPU one flavor in powers of two, without GPUs', () => {
    const host = { kind: 'cpu', index: 0, uuid: 'cpu', name: 'cpu', memoryBytes: GB } as const;
    const catalog = openCatalog({ devices: [host] });
    expect(catalog.listGpus(ALL, NOBODY).gpus).toEqual([]);
    expect(catalog.listCpus(ALL).cpus).toEqual([
      {
        ...{ id: 'cpu', name: 'cpu', vcpuCounts: [2, 4], maxMemory: 15 },
        ...{ vcpuPrice: 0, memoryPrice: 0 },
      },
    ]);
  });

  it('runs every pod in the one data center', () => {
    expect(openUserCatalog().dataCenterFor('ada', wish({}))).toBe('local');
  });
});

describe('with a file', () => {
  it('gives a GPU type only the devices that match its name', () => {
    const devices = [...makeGpus('NVIDIA L4', 2), ...makeGpus('NVIDIA T4', 1)];
    const catalog = openCatalog({ file: FILE, devices });
    expect(catalog.listGpus(ALL, NOBODY).gpus).toMatchObject([
      { id: 'big', name: 'A big one', memory: 0, price: 2.5, total: 0, available: 0 },
      { id: 'small', name: 'small', memory: 24, price: 0.4, total: 2, available: 2 },
    ]);
    expect(catalog.gpuDevices('small')).toEqual(['NVIDIA L4-0', 'NVIDIA L4-1']);
    expect(catalog.gpuDevices('NVIDIA T4')).toEqual([]);
    expect(catalog.gpuMemoryOf({ gpu: { id: 'small', count: 2 } })).toBe(48 * GB);
    expect(catalog.gpuMemoryOf({ gpu: { id: 'big', count: 1 } })).toBe(Number.POSITIVE_INFINITY);
  });

  it('has its price per GPU, or per vCPU and memory', () => {
    const catalog = openCatalog({ file: FILE });
    expect(catalog.priceOf({ gpu: { id: 'big', count: 3 } })).toBe(7.5);
    expect(catalog.priceOf({ cpu: { id: 'fast', vcpuCount: 8, memory: 10 } })).toBeCloseTo(0.5);
    expect(catalog.priceOf({ gpu: { id: 'gone', count: 1 } })).toBe(0);
    // 3 × 0.4 is 1.2000000000000002 in binary fractions.
    expect(catalog.priceOf({ gpu: { id: 'small', count: 3 } })).toBe(1.2);
  });

  it("shows a user's volumes and registries only to them", () => {
    const catalog = openUserCatalog({ file: FILE });
    const login = { server: 'r.example', username: 'ada', password: 'password of own' };
    expect(catalog.registry('ada', 'own')).toEqual(login);
    expect(catalog.registry('bob', 'own')).toBeUndefined();
    expect(catalog.volume('ada', 'models')?.source).toBe('/srv/models');
    expect(catalog.volume('bob', 'models')).toBeUndefined();
    const sources = ['ada', 'bob'].map((user) => catalog.volume(user, 'scratch')?.source);
    expect(new Set(sources).size).toBe(2);
    for (const source of sources) expect(source).toMatch(/^[a-z][a-z0-9-]+$/);
  });

  it('runs a pod in its chosen data center, else that of its volume, else the first', () => {
    const catalog = openUserCatalog({ file: FILE });
    const mounts = withVolume('models');
    expect(catalog.dataCenterFor('ada', wish({ dataCenterId: 'south' }))).toBe('south');
    expect(catalog.dataCenterFor('ada', wish({ mounts }))).toBe('south');
    expect(catalog.dataCenterFor('ada', wish({}))).toBe('north');
  });
});

describe('a request', () => {
  const cpu = { id: 'fast', vcpuCount: 8, memory: 64 };
  const faulty: [string, Partial<Wish>, string][] = [
    ['an unknown GPU type', { gpu: { id: 'x', count: 1 } }, 'gpu.id'],
    ['an unknown flavor', { cpu: { ...cpu, id: 'x' } }, 'cpu.id'],
    ['another number of vCPUs', { cpu: { ...cpu, vcpuCount: 4 } }, 'cpu.vcpuCount'],
    ['more memory', { cpu: { ...cpu, memory: 65 } }, 'cpu.memory'],
    ['an unknown registry', { registry: 'x' }, 'registry'],
    ['a line break', { registry: 'x\ny' }, 'registry'],
    ['an unknown data center', { dataCenterId: 'x' }, 'dataCenterId'],
    ['an unknown volume', { mounts: withVolume('x') }, 'mounts.network[0].volumeId'],
    [
      'a volume elsewhere',
      { mounts: withVolume('models'), dataCenterId: 'north' },
      'mounts.network[0].volumeId',
    ],
  ];

  it.each(faulty)('is refused by path with %s', (_, given, path) => {
    const catalog = openUserCatalog({ file: FILE });
    expect(() => catalog.check('ada', wish(given))).toThrow(
      expect.objectContaining({ code: 'invalid', errors: [errorAt(path)] }),
    );
  });

  it('is named in the refusal on one line, whatever it contains', () => {
    const catalog = openUserCatalog({ file: FILE });
    const message = expect.stringContaining('"x\\ny"');
    expect(() => catalog.check('ada', wish({ registry: 'x\ny' }))).toThrow(
      expect.objectContaining({ message }),
    );
  });

  it('passes for available resources', () => {
    const catalog = openUserCatalog({ file: FILE });
    const mounts = withVolume('models');
    catalog.check('ada', wish({ cpu, mounts, registry: 'own', dataCenterId: 'south' }));
    catalog.check('ada', wish({ gpu: { id: 'small', count: 1 } }));
  });
});

describe('a page', () => {
  it('continues where the previous page ended, and the last has no next page', () => {
    const devices = ['a', 'b', 'c', 'd', 'e'].flatMap((name) => makeGpus(name, 1));
    const catalog = openCatalog({ devices });
    const seen: string[][] = [];
    let before: number | undefined;
    do {
      const page = catalog.listGpus({ before, limit: 2 }, NOBODY);
      seen.push(page.gpus.map(({ id }) => id));
      before = page.next;
    } while (before !== undefined);
    expect(seen).toEqual([['a', 'b'], ['c', 'd'], ['e']]);
  });
});

describe('a file', () => {
  const gpu = { id: 'a', price: 1, match: 'x' };
  const volume = { id: 'v', dataCenterId: 'local' };
  const registry = { id: 'r', server: 's', username: 'u' };
  const faulty: [unknown, string][] = [
    [{ gpu: [] }, 'gpu'],
    [{ gpus: [{ ...gpu, price: -1 }] }, 'gpus[0].price'],
    [{ gpus: [gpu, { ...gpu, match: 'y' }] }, 'gpus[1].id'],
    [{ gpus: [gpu, { ...gpu, id: 'b' }] }, 'gpus[1].match'],
    [{ cpus: [{ ...FILE.cpus[0], vcpuCounts: [3] }] }, 'cpus[0].vcpuCounts[0]'],
    [{ dataCenters: [] }, 'dataCenters'],
    [
      { users: { ada: { networkVolumes: [{ ...volume, dataCenterId: 'far' }] } } },
      'users.ada.networkVolumes[0].dataCenterId',
    ],
    [
      { users: { ada: { networkVolumes: [{ ...volume, path: '/srv', volume: 'nfs' }] } } },
      'users.ada.networkVolumes[0]',
    ],
    [
      { users: { ada: { networkVolumes: [{ ...volume, path: 'srv' }] } } },
      'users.ada.networkVolumes[0].path',
    ],
    [{ users: { ada: { registries: [registry] } } }, 'users.ada.registries[0]'],
    [
      { users: { ada: { registries: [{ ...registry, server: '', passwordEnv: 'A' }] } } },
      'users.ada.registries[0].server',
    ],
    [
      { users: { ada: { registries: [{ ...registry, username: '', passwordEnv: 'A' }] } } },
      'users.ada.registries[0].username',
    ],
    [
      { users: { ada: { registries: [{ ...registry, passwordEnv: 'A', passwordFile: 'b' }] } } },
      'users.ada.registries[0]',
    ],
  ];

  it.each(faulty)('is refused for %j, by path', (file, path) => {
    const checked = catalogFile.safeParse(file);
    const errors = checked.error ? describeIssues(checked.error) : [];
    expect(errors).toEqual([errorAt(path)]);
  });
});
