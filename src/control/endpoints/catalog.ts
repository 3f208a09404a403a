// The catalog with prices: GPU types, CPU flavors, data centers, and the volumes and registries that the operator has
// declared. For pods and endpoints, it is joined with those that users have created. It does not know who holds what.
import type { Engine, EngineCapabilities, RegistryLogin } from '../../engine/engine.ts';
import { ProblemError } from '../../wire/problem.ts';
import type {
  CpuFlavor,
  DataCenter,
  EngineCapabilitiesRecord,
  GpuType,
} from '../../wire/resources/catalog.ts';
import type { StoredNetworkVolume } from '../../wire/resources/network-volume.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';
import type { RegistryRecord } from '../../wire/resources/registry.ts';
import type { PodCatalog } from '../pods/pod-spec.ts';
import type { NamedRecords } from '../user-resources.ts';
import {
  type CatalogContents,
  GB,
  type NetworkVolume,
  type OfferedGpu,
} from './catalog-contents.ts';

/** The parts of a pod's spec that the catalog provides. */
export interface Wish {
  gpu?: { id: string; count: number };
  cpu?: { id: string; vcpuCount: number; memory: number };
  registry: string | null;
  mounts: PodMounts;
  /** Null: any data center. */
  dataCenterId: string | null;
}

/** A part of one of its lists, in the order of the operator's file. */
interface CatalogPage {
  /** `next` of the previous part; undefined: from the start. */
  before: number | undefined;
  limit: number;
}

export class Catalog {
  #contents: CatalogContents;

  constructor(contents: CatalogContents) {
    this.#contents = contents;
  }

  /** Machines were found, or are gone. */
  replace(contents: CatalogContents): void {
    this.#contents = contents;
  }

  /** `held`: UUIDs of the GPUs that pods hold. */
  listGpus(
    page: CatalogPage,
    held: ReadonlySet<string>,
  ): { gpus: GpuType[]; next: number | undefined } {
    const { items, next } = cutOffers(this.#contents.gpus, page);
    return { gpus: items.map((offered) => describeGpu(offered, held)), next };
  }

  listCpus(page: CatalogPage): { cpus: CpuFlavor[]; next: number | undefined } {
    const { items, next } = cutOffers(this.#contents.cpus, page);
    return { cpus: items, next };
  }

  /** `engine`: of all of them; null: none. */
  listDataCenters(
    page: CatalogPage,
    engine: Pick<Engine, 'kind' | 'capabilities'> | null,
  ): { dataCenters: DataCenter[]; next: number | undefined } {
    const { dataCenters, gpus } = this.#contents;
    const { items, next } = cutOffers(dataCenters, page);
    const gpuTypes = gpus.filter(({ devices }) => devices.length > 0).map(({ id }) => id);
    const runs = {
      engine: engine?.kind ?? null,
      capabilities: engine && describeCapabilities(engine.capabilities),
      networkVolumes: engine !== null,
    };
    const described = items.map(({ id, name, networkVolumePrice }) => {
      const isDefault = id === this.defaultDataCenter;
      const offered = { ...runs, gpuTypes, networkVolumePrice };
      return { id, name, default: isDefault, ...offered };
    });
    return { dataCenters: described, next };
  }

  hasDataCenter(id: string): boolean {
    return this.#contents.dataCenters.some((center) => center.id === id);
  }

  /** Of pods and volumes that name none. */
  get defaultDataCenter(): string | null {
    return this.#contents.dataCenters[0]?.id ?? null;
  }

  hasGpuType(id: string): boolean {
    return this.#findGpu(id) !== undefined;
  }

  /** All types, those without a device included. */
  gpuTypes(): readonly Pick<OfferedGpu, 'id' | 'devices'>[] {
    return this.#contents.gpus;
  }

  /** UUIDs of all devices of the type. */
  gpuDevices(typeId: string): readonly string[] {
    return this.#findGpu(typeId)?.devices ?? [];
  }

  /** Bytes of all GPUs of a pod; Infinity if that is not known. */
  gpuMemoryOf({ gpu }: Pick<Wish, 'gpu'>): number {
    const memoryGb = gpu ? (this.#findGpu(gpu.id)?.memory ?? 0) * gpu.count : 0;
    return memoryGb > 0 ? memoryGb * GB : Number.POSITIVE_INFINITY;
  }

  declaredVolume(userId: string, id: string): NetworkVolume | undefined {
    return this.#contents.users.get(userId)?.volumes.get(id);
  }

  /** As records of the API. */
  declaredVolumes(userId: string): StoredNetworkVolume[] {
    const volumes = [...(this.#contents.users.get(userId)?.volumes.values() ?? [])];
    return volumes.map(({ dataCenterId, id, name }) => ({
      id,
      name,
      size: null,
      dataCenterId,
      declared: true,
      createdAt: null,
    }));
  }

  declaredRegistry(userId: string, id: string): RegistryLogin | undefined {
    return this.#contents.users.get(userId)?.registries.get(id);
  }

  /** As records of the API. */
  declaredRegistries(userId: string): RegistryRecord[] {
    const registries = [...(this.#contents.users.get(userId)?.registries ?? [])];
    return registries.map(([id, { server, username }]) => ({
      id,
      name: id,
      server,
      username,
      declared: true,
      createdAt: null,
    }));
  }

  /** USD per hour while the pod runs; hardware that is no longer offered costs nothing. */
  priceOf({ cpu, gpu }: Pick<Wish, 'cpu' | 'gpu'>): number {
    if (gpu) return roundPrice((this.#findGpu(gpu.id)?.price ?? 0) * gpu.count);
    const flavor = cpu && this.#findCpu(cpu.id);
    if (!flavor) return 0;
    return roundPrice(flavor.vcpuPrice * cpu.vcpuCount + flavor.memoryPrice * cpu.memory);
  }

  /** USD for one GB and month of 730 hours; in a data center that is no longer offered, 0. */
  volumePriceOf(dataCenterId: string): number {
    const center = this.#contents.dataCenters.find(({ id }) => id === dataCenterId);
    return center?.networkVolumePrice ?? 0;
  }

  /** Entries for a problem's `errors`: the hardware that is not in the catalog. */
  judgeHardware(wish: Pick<Wish, 'gpu' | 'cpu'>): string[] {
    return [...this.#judgeGpu(wish), ...this.#judgeCpu(wish)];
  }

  #judgeGpu({ gpu }: Pick<Wish, 'gpu' | 'cpu'>): string[] {
    if (!gpu || this.hasGpuType(gpu.id)) return [];
    return [`gpu.id: GPU type ${JSON.stringify(gpu.id)} is not in the catalog`];
  }

  #judgeCpu({ cpu }: Pick<Wish, 'gpu' | 'cpu'>): string[] {
    if (!cpu) return [];
    const flavor = this.#findCpu(cpu.id);
    if (!flavor) return [`cpu.id: CPU flavor ${JSON.stringify(cpu.id)} is not in the catalog`];
    const { maxMemory, vcpuCounts } = flavor;
    const errors: string[] = [];
    if (!vcpuCounts.includes(cpu.vcpuCount)) {
      errors.push(`cpu.vcpuCount: "${cpu.id}" has ${vcpuCounts.join(', ')}`);
    }
    if (cpu.memory > maxMemory) errors.push(`cpu.memory: "${cpu.id}" has at most ${maxMemory}`);
    return errors;
  }

  #findGpu(id: string): OfferedGpu | undefined {
    return this.#contents.gpus.find((offered) => offered.id === id);
  }

  #findCpu(id: string): CpuFlavor | undefined {
    return this.#contents.cpus.find((flavor) => flavor.id === id);
  }
}

/** Volumes and registries that users have created, besides those that the operator has declared. */
export interface CreatedResources {
  /** Names of volumes and registries, those of the operator included. */
  volumeNames: NamedRecords;
  registryNames: NamedRecords;
  volume(userId: string, id: string): NetworkVolume | undefined;
  hasRegistry(userId: string, id: string): boolean;
  /** @throws EngineError if its secret cannot be opened */
  registry(userId: string, id: string): RegistryLogin | undefined;
}

/** The catalog as pods and endpoints of a user may use it: with the volumes and registries that users have created. */
export class UserCatalog implements PodCatalog {
  readonly #catalog: Catalog;
  readonly #created: CreatedResources;

  constructor(catalog: Catalog, created: CreatedResources) {
    this.#catalog = catalog;
    this.#created = created;
  }

  gpuDevices(typeId: string): readonly string[] {
    return this.#catalog.gpuDevices(typeId);
  }

  priceOf(spec: Pick<Wish, 'cpu' | 'gpu'>): number {
    return this.#catalog.priceOf(spec);
  }

  /** Returns the ID of the user's only volume with this name, or what was given. @throws ProblemError `conflict` */
  resolveVolume(userId: string, idOrName: string): string {
    return this.#created.volumeNames.resolve(userId, idOrName);
  }

  /** Like `resolveVolume`, for registries. @throws ProblemError `conflict` */
  resolveRegistry(userId: string, idOrName: string): string {
    return this.#created.registryNames.resolve(userId, idOrName);
  }

  volume(userId: string, id: string): NetworkVolume | undefined {
    return this.#catalog.declaredVolume(userId, id) ?? this.#created.volume(userId, id);
  }

  /** @throws EngineError if its secret cannot be opened */
  registry(userId: string, id: string): RegistryLogin | undefined {
    return this.#catalog.declaredRegistry(userId, id) ?? this.#created.registry(userId, id);
  }

  /** The requested data center, else that of the network volume, else the default. */
  dataCenterFor(userId: string, { dataCenterId, mounts }: Wish): string | null {
    if (dataCenterId !== null) return dataCenterId;
    const [mount] = mounts.network ?? [];
    const volume = mount && this.volume(userId, mount.volumeId);
    return volume?.dataCenterId ?? this.#catalog.defaultDataCenter;
  }

  /** @throws ProblemError `invalid` that names everything unavailable */
  check(userId: string, wish: Wish): void {
    const errors = [
      ...this.#catalog.judgeHardware(wish),
      ...this.judgeRegistry(userId, wish.registry),
      ...this.#judgePlaces(userId, wish),
    ];
    if (errors.length > 0) {
      throw new ProblemError('invalid', `the catalog cannot serve the request: ${errors[0]}`, {
        errors,
      });
    }
  }

  /** Checks a given `registry`. @returns entries for a problem's `errors` */
  judgeRegistry(userId: string, id: string | null): string[] {
    if (id === null || this.#hasRegistry(userId, id)) return [];
    return [`registry: you have no registry with the ID or name ${JSON.stringify(id)}`];
  }

  #judgePlaces(userId: string, wish: Wish): string[] {
    const { dataCenterId, mounts } = wish;
    const isKnown = dataCenterId === null || this.#catalog.hasDataCenter(dataCenterId);
    const errors = isKnown
      ? []
      : [`dataCenterId: data center ${JSON.stringify(dataCenterId)} not found`];
    const place = this.dataCenterFor(userId, wish);
    for (const [index, { volumeId }] of (mounts.network ?? []).entries()) {
      const path = `mounts.network[${index}].volumeId`;
      const volume = this.volume(userId, volumeId);
      if (!volume)
        errors.push(
          `${path}: you have no network volume with the ID or name ${JSON.stringify(volumeId)}`,
        );
      else if (isKnown && volume.dataCenterId !== place) {
        const where = `"${volumeId}" is in data center "${volume.dataCenterId}"`;
        errors.push(`${path}: ${where}, the pod is to run in "${place}"`);
      }
    }
    return errors;
  }

  #hasRegistry(userId: string, id: string): boolean {
    const declared = this.#catalog.declaredRegistry(userId, id);
    return declared !== undefined || this.#created.hasRegistry(userId, id);
  }
}

function describeCapabilities({
  mounts,
  ports,
  ...rest
}: EngineCapabilities): EngineCapabilitiesRecord {
  return {
    ...rest,
    ports: { ...ports, protocols: [...ports.protocols] },
    mounts: { ...mounts, network: [...mounts.network] },
  };
}

/** Removes the error of binary fractions: 0.3 instead of 0.30000000000000004. */
function roundPrice(price: number): number {
  return Number(price.toPrecision(12));
}

function describeGpu({ devices, ...offered }: OfferedGpu, held: ReadonlySet<string>): GpuType {
  const available = devices.filter((uuid) => !held.has(uuid)).length;
  return { ...offered, total: devices.length, available };
}

/** Positions decrease from the list's length to 1. */
function cutOffers<T>(
  all: readonly T[],
  { before = all.length + 1, limit }: CatalogPage,
): { items: T[]; next: number | undefined } {
  const start = Math.max(0, all.length + 1 - before);
  const items = all.slice(start, start + limit);
  const left = all.length - start - items.length;
  return { items, next: left > 0 && items.length > 0 ? left + 1 : undefined };
}
