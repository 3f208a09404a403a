import { describe, expect, it } from 'vitest';
import { catalogFile } from '../../../src/control/endpoints/catalog-contents.ts';
import { DOCKER_CAPABILITIES } from '../../../src/engine/docker/docker-engine.ts';
import { cpuFlavorList, dataCenterList, gpuTypeList } from '../../../src/wire/resources/catalog.ts';
import { type Platform, readJson, startPlatform } from '../../support/api/platform.ts';
import { makeGpus } from '../../support/containers/gpus.ts';

const OFFERS = {
  file: catalogFile.parse({
    gpus: ['a', 'b', 'c'].map((id) => ({ id, price: 1.5, match: `GPU ${id}` })),
  }),
  devices: [...makeGpus('GPU a', 3), ...makeGpus('GPU c', 1)],
  heldGpus: ['GPU a-0', 'GPU a-2', 'GPU c-0', 'another'],
};

async function readGpus(platform: Platform, query = '') {
  return gpuTypeList.parse(await readJson(await platform.call(`/v2/catalog/gpus${query}`)));
}

describe('the catalog', () => {
  it('shows GPU types with their prices, and how many are free', async () => {
    const platform = await startPlatform({ offers: OFFERS });
    const rest = { memory: 24, price: 1.5 };
    expect(await readGpus(platform)).toEqual({
      gpus: [
        { id: 'a', name: 'a', ...rest, total: 3, available: 1 },
        { id: 'b', name: 'b', ...rest, memory: 0, total: 0, available: 0 },
        { id: 'c', name: 'c', ...rest, total: 1, available: 0 },
      ],
    });
  });

  it('is paged', async () => {
    const platform = await startPlatform({ offers: OFFERS });
    const first = await readGpus(platform, '?limit=2');
    expect(first.gpus.map(({ id }) => id)).toEqual(['a', 'b']);
    const second = await readGpus(platform, `?limit=2&cursor=${first.cursor}`);
    expect(second.gpus.map(({ id }) => id)).toEqual(['c']);
    expect(second).not.toHaveProperty('cursor');
  });

  it('shows CPU flavors', async () => {
    const { call } = await startPlatform();
    const { cpus } = cpuFlavorList.parse(await readJson(await call('/v2/catalog/cpus')));
    expect(cpus).toMatchObject([{ id: 'cpu', vcpuCounts: [2, 4], maxMemory: 8 }]);
  });

  it('shows data centers, the default one first, with the GPU types that are there', async () => {
    const dataCenters = [
      { id: 'north', name: 'North hall', networkVolumePrice: 0.07 },
      { id: 'south' },
    ];
    const file = catalogFile.parse({ ...OFFERS.file, dataCenters });
    const { call } = await startPlatform({ engine: 'docker', offers: { ...OFFERS, file } });
    const read = async (query: string) =>
      dataCenterList.parse(await readJson(await call(`/v2/catalog/data-centers${query}`)));
    const first = await read('?limit=1');
    const rest = {
      ...{ engine: 'docker', capabilities: DOCKER_CAPABILITIES },
      gpuTypes: ['a', 'c'],
      networkVolumes: true,
    };
    expect(first.dataCenters).toEqual([
      { id: 'north', name: 'North hall', default: true, ...rest, networkVolumePrice: 0.07 },
    ]);
    expect((await read(`?cursor=${first.cursor}`)).dataCenters).toEqual([
      { id: 'south', name: 'south', default: false, ...rest, networkVolumePrice: 0 },
    ]);
  });

  it('shows no capabilities if the platform runs no pods', async () => {
    const { call } = await startPlatform({ engine: 'none' });
    const found = await readJson(await call('/v2/catalog/data-centers'));
    expect(dataCenterList.parse(found).dataCenters).toMatchObject([
      { engine: null, capabilities: null, networkVolumes: false },
    ]);
  });

  it.each(['/v2/catalog/gpus', '/v2/catalog/cpus', '/v2/catalog/data-centers'])(
    'requires endpoints:read for %s',
    async (path) => {
      const { call, keys, url } = await startPlatform();
      const status = async (scopes: string[]) => {
        const { key } = await keys.issue({ name: 'k', userId: 'ada', scopes });
        return (await call(path, { headers: { authorization: key } })).status;
      };
      expect(await status(['endpoints:read'])).toBe(200);
      expect(await status(['endpoints:write', 'pods:read', 'jobs:read'])).toBe(403);
      expect((await fetch(url + path)).status).toBe(401);
    },
  );

  it('refuses invalid pages and other methods', async () => {
    const { call, post } = await startPlatform();
    for (const query of ['limit=0', 'limit=1001', 'limit=x', 'cursor=x']) {
      const response = await call(`/v2/catalog/gpus?${query}`);
      expect(response.status).toBe(422);
      expect(await readJson(response)).toMatchObject({ code: 'invalid' });
    }
    const posted = await post('/v2/catalog/gpus', {});
    expect(posted.status).toBe(405);
    expect(posted.headers.get('allow')).toBe('GET, HEAD');
  });
});
