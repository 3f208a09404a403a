// The catalog of RunPod's REST API: GPU types, CPU flavors and data centers, with how many are free.
import type { FastifyInstance } from 'fastify';
import { ProblemError } from '../../../wire/problem.ts';
import type { CpuFlavor, DataCenter, GpuType } from '../../../wire/resources/catalog.ts';
import { sendJson } from '../../http/byte-reply.ts';
import { type QueryValues, readChoice, readInteger } from '../../http/requests.ts';
import type { CatalogServices } from '../../routes/system-routes.ts';
import { breakRule, MANAGEMENT_BASE, type ManagedRoute, refuse } from './managed-resource.ts';
import { ratioOf } from './pods.ts';

const ALL = { before: undefined, limit: Number.MAX_SAFE_INTEGER };
const CLOUDS = ['SECURE', 'COMMUNITY'] as const;
const GPU_PRODUCTS = ['POD', 'CLUSTER', 'SERVERLESS'];
const CPU_PRODUCTS = ['POD', 'SERVERLESS'];
const PLACE_INCLUDES = ['GPU_AVAILABILITY', 'CPU_AVAILABILITY'];
const MAX_COUNT = { min: 1, max: 64 };

interface Shown {
  list: string;
  read(query: QueryValues): { id: string }[];
}

export function addManagedCatalog(
  app: FastifyInstance,
  { catalog, engine, heldGpus }: CatalogServices,
): void {
  const listPlaces = () => catalog.listDataCenters(ALL, engine).dataCenters;
  const listGpus = () => catalog.listGpus(ALL, heldGpus()).gpus;
  const listCpus = () => catalog.listCpus(ALL).cpus;
  const shown: Record<string, Shown> = {
    gpus: {
      list: 'gpus',
      read: (query) => {
        const wish = readGpuWish(query);
        return listGpus().map((gpu) => showGpu(gpu, wish, listPlaces()));
      },
    },
    cpus: {
      list: 'cpus',
      read: (query) => {
        const isWanted = readAvailability(query, CPU_PRODUCTS);
        return listCpus().map((cpu) => showCpu(cpu, isWanted ? listPlaces() : undefined));
      },
    },
    datacenters: {
      list: 'dataCenters',
      read: (query) => {
        const include = readWords(query, 'include', PLACE_INCLUDES);
        return listPlaces().map((place) =>
          showPlace(place, {
            gpus: include.includes('GPU_AVAILABILITY') ? listGpus() : [],
            cpus: include.includes('CPU_AVAILABILITY') ? listCpus() : [],
          }),
        );
      },
    },
    // Templates of this platform belong to one user.
    templates: { list: 'templates', read: () => [] },
  };
  for (const [path, { list, read }] of Object.entries(shown)) {
    const url = `${MANAGEMENT_BASE}/catalog/${path}`;
    const config = { access: 'endpoints:read' } as const;
    app.route<ManagedRoute>({
      ...{ method: 'GET', url, config },
      handler: async ({ query }, reply) => sendJson(reply, { [list]: read(query) }),
    });
    if (path === 'templates') continue;
    app.route<ManagedRoute>({
      ...{ method: 'GET', url: `${url}/:id`, config },
      handler: async ({ params, query }, reply) => {
        const found = read(query).find(({ id }) => id === params['id']);
        if (!found) throw new ProblemError('not_found', `${params['id']} is not in the catalog`);
        return sendJson(reply, found);
      },
    });
  }
}

/** Comma-separated. @throws ProblemError `invalid` */
function readWords(query: QueryValues, name: string, known: readonly string[]): string[] {
  const words = [query[name] ?? []].flat().flatMap((text) => text.split(','));
  const unknown = words.find((word) => !known.includes(word));
  if (unknown !== undefined) throw refuse(`${name}: must be one of ${known.join(', ')}`);
  return words;
}

/** @throws ProblemError `rule_broken` if only one of both is given, `invalid` */
function readAvailability(query: QueryValues, products: readonly string[]): boolean {
  const isIncluded = readWords(query, 'include', ['AVAILABILITY']).length > 0;
  const hasProduct = readWords(query, 'product', products).length > 0;
  if (isIncluded !== hasProduct) throw breakRule('product: goes with include=AVAILABILITY');
  return isIncluded;
}

interface GpuWish {
  count: number;
  /** Whether the platform can meet it at all. */
  isPossible: boolean;
}

/** Undefined without AVAILABILITY. Machines have no country and no CUDA version here. */
function readGpuWish(query: QueryValues): GpuWish | undefined {
  const isWanted = readAvailability(query, GPU_PRODUCTS);
  const cloud = readChoice(query, 'cloud', CLOUDS);
  const count = readInteger(query, 'count', MAX_COUNT) ?? 1;
  if (!isWanted) return undefined;
  const isElsewhere = ['countryCodes', 'cudaVersions', 'minCudaVersion'].some(
    (name) => query[name],
  );
  return { count, isPossible: cloud !== 'COMMUNITY' && !isElsewhere };
}

function showGpu(gpu: GpuType, wish: GpuWish | undefined, places: readonly DataCenter[]) {
  const { available, id, memory, name, price, total } = gpu;
  const availability = wish && (wish.isPossible ? rate(available, total, wish.count) : 'NONE');
  return {
    ...{ id, name, pool: id, memory: Math.round(memory) },
    manufacturer: /\b(AMD|Radeon|Instinct)\b/i.test(id) ? 'AMD' : 'NVIDIA',
    ...{ secure: true, community: false },
    price: { secure: price, community: price, serverless: price },
    maxCount: { secure: total, community: 0 },
    ...(availability && {
      availability,
      dataCenters: places
        .filter(({ gpuTypes }) => wish?.isPossible && gpuTypes.includes(id))
        .map((place) => ({ id: place.id, name: place.name, availability })),
      cudaVersions: [],
    }),
  };
}

function rate(available: number, total: number, count: number) {
  if (available < count) return 'NONE';
  const share = available / total;
  if (share > 0.5) return 'HIGH';
  return share > 0.2 ? 'MEDIUM' : 'LOW';
}

/** Flavors are never counted, so they are there wherever pods can run. */
function showCpu(cpu: CpuFlavor, places: readonly DataCenter[] | undefined) {
  const { id, memoryPrice, name, vcpuCounts, vcpuPrice } = cpu;
  const ramGbPerVcpu = ratioOf(cpu);
  const price = vcpuPrice + memoryPrice * ramGbPerVcpu;
  return {
    ...{ id, name, group: name, ramGbPerVcpu },
    vcpu: { min: Math.min(...vcpuCounts), max: Math.max(...vcpuCounts) },
    price: { securePerVcpu: price, serverlessPerVcpu: price },
    ...(places && {
      availability: places.some(({ engine }) => engine !== null) ? 'HIGH' : 'NONE',
      dataCenters: places
        .filter(({ engine }) => engine !== null)
        .map((place) => ({ id: place.id, name: place.name, availability: 'HIGH' })),
    }),
  };
}

function showPlace(
  { capabilities, engine, gpuTypes, id, name, networkVolumes }: DataCenter,
  { cpus, gpus }: { cpus: readonly CpuFlavor[]; gpus: readonly GpuType[] },
) {
  const offered = gpus.filter((gpu) => gpuTypes.includes(gpu.id));
  return {
    ...{ id, name, region: 'UNKNOWN', compliance: [] },
    globalNetwork: capabilities?.globalNetworking ?? false,
    networkVolumeTypes: networkVolumes ? ['STANDARD'] : [],
    ...(offered.length > 0 && {
      gpuAvailability: offered.map((gpu) => ({
        ...{ id: gpu.id, name: gpu.name, availability: rate(gpu.available, gpu.total, 1) },
      })),
    }),
    ...(cpus.length > 0 &&
      engine !== null && {
        cpuAvailability: cpus.map((cpu) => ({ id: cpu.id, name: cpu.name, availability: 'HIGH' })),
      }),
  };
}
