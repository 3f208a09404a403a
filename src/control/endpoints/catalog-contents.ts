// Builds the catalog from the operator's file, and from the machine's hardware where the file
// says nothing. platform/files/catalog-file.ts reads the file and its secrets.
import { hash } from 'node:crypto';
import { z } from 'zod';
import type { RegistryLogin } from '../../engine/engine.ts';
import type { Device } from '../../wire/link/worker-link.ts';
import type { CpuFlavor, GpuType } from '../../wire/resources/catalog.ts';

const LOCAL_DATA_CENTER = 'local';
export const GB = 1_073_741_824;
const MIN_VCPUS = 2;

const id = z.string().min(1).max(200);
const name = z.string().min(1).max(200).exactOptional();
/** USD per hour. */
const price = z.number().min(0).max(1_000_000);
/** USD for one GB and month. */
const storagePrice = z.number().min(0).max(1_000);

const gpuOffer = z.strictObject({
  id,
  /** Default: the ID. */
  name,
  price,
  /** Device name of this type, as the machine reports it. */
  match: z.string().min(1),
});

const cpuOffer = z.strictObject({
  id,
  /** Default: the ID. */
  name,
  vcpuCounts: z
    .array(
      z
        .int()
        .min(MIN_VCPUS)
        .max(1_024)
        .refine((count) => Number.isInteger(Math.log2(count)), 'must be a power of two'),
    )
    .min(1),
  /** GB. */
  maxMemory: z.int().min(1).max(65_536),
  vcpuPrice: price,
  memoryPrice: price,
});

const networkVolume = z
  .strictObject({
    id,
    name,
    dataCenterId: id,
    /** Folder on the engine's machine. Default: a volume of the engine. */
    path: z.string().regex(/^\/./, 'must be an absolute path').exactOptional(),
    /** Name of a volume that exists: of Docker, or a PersistentVolumeClaim. */
    volume: z
      .string()
      .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/, 'must be the name of a volume')
      .exactOptional(),
  })
  .refine(({ path, volume }) => path === undefined || volume === undefined, {
    message: 'at most one of path and volume may be set',
  });

const registry = z
  .strictObject({
    id,
    server: z.string().min(1),
    username: z.string().min(1),
    passwordFile: z.string().min(1).exactOptional(),
    passwordEnv: z.string().min(1).exactOptional(),
  })
  .refine(
    ({ passwordEnv, passwordFile }) => (passwordEnv === undefined) !== (passwordFile === undefined),
    {
      message: 'exactly one of passwordFile and passwordEnv is required',
    },
  );

const declaredResources = z.strictObject({
  networkVolumes: z.array(networkVolume).default([]),
  registries: z.array(registry).default([]),
});

/** The operator's file. Missing sections come from the machine. */
export const catalogFile = z
  .strictObject({
    gpus: z.array(gpuOffer).exactOptional(),
    cpus: z.array(cpuOffer).min(1).exactOptional(),
    dataCenters: z
      .array(z.strictObject({ id, name, networkVolumePrice: storagePrice.default(0) }))
      .min(1)
      .default([{ id: LOCAL_DATA_CENTER, networkVolumePrice: 0 }]),
    users: z.record(z.string().min(1).max(128), declaredResources).default({}),
  })
  .superRefine((file, context) => {
    for (const { message, path } of findFaults(file)) {
      context.addIssue({ code: 'custom', message, path });
    }
  });
export type CatalogFile = z.infer<typeof catalogFile>;
export type DeclaredRegistry = CatalogFile['users'][string]['registries'][number];

interface Fault {
  path: (string | number)[];
  message: string;
}

type UncheckedFile = Pick<CatalogFile, 'gpus' | 'cpus' | 'dataCenters' | 'users'>;

/** Finds contradictions between sections that are valid by themselves. */
function findFaults({ cpus = [], dataCenters, gpus = [], users }: UncheckedFile): Fault[] {
  const known = new Set(dataCenters.map((center) => center.id));
  const faults = [
    ...findRepeated(gpus, 'id', ['gpus']),
    ...findRepeated(gpus, 'match', ['gpus']),
    ...findRepeated(cpus, 'id', ['cpus']),
    ...findRepeated(dataCenters, 'id', ['dataCenters']),
  ];
  for (const [userId, { networkVolumes, registries }] of Object.entries(users)) {
    const path = ['users', userId, 'networkVolumes'];
    faults.push(...findRepeated(networkVolumes, 'id', path));
    faults.push(...findRepeated(registries, 'id', ['users', userId, 'registries']));
    for (const [index, { dataCenterId }] of networkVolumes.entries()) {
      if (known.has(dataCenterId)) continue;
      const message = `"${dataCenterId}" is not among dataCenters`;
      faults.push({ path: [...path, index, 'dataCenterId'], message });
    }
  }
  return faults;
}

function findRepeated<K extends string>(
  entries: readonly Readonly<Record<K, string>>[],
  member: K,
  path: readonly string[],
): Fault[] {
  const firsts = new Map<string, number>();
  return entries.flatMap((entry, index): Fault[] => {
    const first = firsts.get(entry[member]);
    if (first === undefined) {
      firsts.set(entry[member], index);
      return [];
    }
    const message = `"${entry[member]}" is that of ${path.at(-1)}[${first}] already`;
    return [{ path: [...path, index, member], message }];
  });
}

/** A GPU type with its devices. */
export interface OfferedGpu extends Pick<GpuType, 'id' | 'name' | 'memory' | 'price'> {
  /** UUIDs. */
  devices: readonly string[];
}

export interface NetworkVolume {
  id: string;
  name: string;
  dataCenterId: string;
  /** The engine's name of the volume: a folder's path, or a name unique to the user. */
  source: string;
  /** GB; a declared volume has none. */
  sizeGb?: number;
}

interface DeclaredResources {
  volumes: ReadonlyMap<string, NetworkVolume>;
  registries: ReadonlyMap<string, RegistryLogin>;
}

interface OfferedDataCenter {
  id: string;
  name: string;
  /** USD for one GB of a network volume in a month of 730 hours. */
  networkVolumePrice: number;
}

export interface CatalogContents {
  gpus: readonly OfferedGpu[];
  cpus: readonly CpuFlavor[];
  /** The first is the default of pods that name none. */
  dataCenters: readonly OfferedDataCenter[];
  /** By user ID. */
  users: ReadonlyMap<string, DeclaredResources>;
}

/** The largest pod without a GPU. */
export interface Processors {
  vcpus: number;
  memoryBytes: number;
}

interface CatalogSources {
  /** Undefined: there is no file. */
  file: CatalogFile | undefined;
  /** Devices of the engine's machine; only GPUs count. */
  devices: readonly Device[];
  /** What the default CPU flavor offers. */
  processors: Processors;
  /** Reads the password that a credential of the file refers to; may throw. */
  readPassword: (registry: DeclaredRegistry) => string;
}

export function composeCatalog(sources: CatalogSources): CatalogContents {
  const file = sources.file ?? catalogFile.parse({});
  const gpus = sources.devices.filter(({ kind }) => kind === 'gpu');
  return {
    gpus: file.gpus?.map((offer) => describeOffer(offer, gpus)) ?? offerAll(gpus),
    cpus: file.cpus?.map((offer) => ({ ...offer, name: offer.name ?? offer.id })) ?? [
      offerProcessors(sources.processors),
    ],
    dataCenters: file.dataCenters.map((center) => ({ ...center, name: center.name ?? center.id })),
    users: new Map(
      Object.entries(file.users).map(([userId, { networkVolumes, registries }]) => [
        userId,
        {
          volumes: new Map(
            networkVolumes.map((volume) => [volume.id, describeVolume(userId, volume)]),
          ),
          registries: new Map(
            registries.map((declared) => [declared.id, toLogin(declared, sources)]),
          ),
        },
      ]),
    ),
  };
}

function describeOffer(offer: z.infer<typeof gpuOffer>, found: readonly Device[]): OfferedGpu {
  const own = found.filter((device) => device.name === offer.match);
  return {
    id: offer.id,
    name: offer.name ?? offer.id,
    price: offer.price,
    memory: Math.round((own[0]?.memoryBytes ?? 0) / GB),
    devices: own.map(({ uuid }) => uuid),
  };
}

/** Offers each kind of device under its own name, free of charge. */
function offerAll(found: readonly Device[]): OfferedGpu[] {
  const names = new Set(found.map((device) => device.name));
  return [...names].map((match) => describeOffer({ id: match, match, price: 0 }, found));
}

function offerProcessors({ memoryBytes, vcpus }: Processors): CpuFlavor {
  const vcpuCounts: number[] = [];
  for (let count = MIN_VCPUS; count <= Math.max(MIN_VCPUS, vcpus); count *= 2) {
    vcpuCounts.push(count);
  }
  const maxMemory = Math.max(1, Math.floor(memoryBytes / GB));
  return { id: 'cpu', name: 'cpu', vcpuCounts, maxMemory, vcpuPrice: 0, memoryPrice: 0 };
}

/** Engines allow few characters in a name, and two users may use the same ID. */
function describeVolume(
  userId: string,
  { dataCenterId, id, name: label = id, path, volume }: z.infer<typeof networkVolume>,
): NetworkVolume {
  const own = hash('sha256', JSON.stringify([userId, id]), 'hex').slice(0, 24);
  return { id, name: label, dataCenterId, source: path ?? volume ?? `network-${own}` };
}

function toLogin(declared: DeclaredRegistry, { readPassword }: CatalogSources): RegistryLogin {
  const { server, username } = declared;
  return { server, username, password: readPassword(declared) };
}
