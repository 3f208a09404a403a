// What can be had and what it costs: GPU types, CPU flavours, data centers, and what each user has of
// volumes and registries. Who holds what of it is known elsewhere.
import type { RegistryLogin } from '../../engine/engine.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { CpuFlavor, GpuType } from '../../wire/resources/catalog.ts';
import type { PodMounts } from '../../wire/resources/pod.ts';
import type { CatalogContents, NetworkVolume, OfferedGpu } from './catalog-contents.ts';

/** What a pod asks of the catalogue. */
export interface Wish {
  gpu?: { id: string; count: number };
  cpu?: { id: string; vcpuCount: number; memory: number };
  registry: string | null;
  mounts: PodMounts;
  /** Null: it does not matter which. */
  dataCenterId: string | null;
}

/** A part of one of its lists, which have the order of the operator's file. */
export interface CatalogPage {
  /** As `next` of the part before; undefined: from the start. */
  before: number | undefined;
  limit: number;
}

export class Catalog {
  readonly #contents: CatalogContents;

  constructor(contents: CatalogContents) {
    this.#contents = contents;
  }

  /** `held`: UUIDs of the GPUs that pods hold. */
  listGpus(
    page: CatalogPage,
    held: ReadonlySet<string>,
  ): { gpus: GpuType[]; next: number | undefined } {
    const { items, next } = cutPage(this.#contents.gpus, page);
    return { gpus: items.map((offered) => describeGpu(offered, held)), next };
  }

  listCpus(page: CatalogPage): { cpus: CpuFlavor[]; next: number | undefined } {
    const { items, next } = cutPage(this.#contents.cpus, page);
    return { cpus: items, next };
  }

  hasGpuType(id: string): boolean {
    return this.#findGpu(id) !== undefined;
  }

  /** UUIDs of all devices of the type. */
  gpuDevices(typeId: string): readonly string[] {
    return this.#findGpu(typeId)?.devices ?? [];
  }

  volume(userId: string, id: string): NetworkVolume | undefined {
    return this.#contents.users.get(userId)?.volumes.get(id);
  }

  registry(userId: string, id: string): RegistryLogin | undefined {
    return this.#contents.users.get(userId)?.registries.get(id);
  }

  /** Where such a pod runs: where it wants to, else where its network volume is, else anywhere. */
  dataCenterFor(userId: string, { dataCenterId, mounts }: Wish): string | null {
    if (dataCenterId !== null) return dataCenterId;
    const [mount] = mounts.network ?? [];
    const volume = mount && this.volume(userId, mount.volumeId);
    return volume?.dataCenterId ?? this.#contents.dataCenters[0] ?? null;
  }

  /** USD an hour while it runs; what is not offered any more costs nothing. */
  priceOf({ cpu, gpu }: Pick<Wish, 'cpu' | 'gpu'>): number {
    if (gpu) return roundPrice((this.#findGpu(gpu.id)?.price ?? 0) * gpu.count);
    const flavor = cpu && this.#findCpu(cpu.id);
    if (!flavor) return 0;
    return roundPrice(flavor.vcpuPrice * cpu.vcpuCount + flavor.memoryPrice * cpu.memory);
  }

  /** @throws ProblemError `invalid` naming each thing that cannot be had */
  check(userId: string, wish: Wish): void {
    const errors = [
      ...this.#judgeGpu(wish),
      ...this.#judgeCpu(wish),
      ...this.judgeRegistry(userId, wish.registry),
      ...this.#judgePlaces(userId, wish),
    ];
    if (errors.length > 0) {
      throw new ProblemError('invalid', `this cannot be had: ${errors[0]}`, { errors });
    }
  }

  /** The faults of a `registry` that somebody gave, as a problem's `errors` have them. */
  judgeRegistry(userId: string, id: string | null): string[] {
    if (id === null || this.registry(userId, id)) return [];
    return [`registry: registry credential ${JSON.stringify(id)} not found`];
  }

  #judgeGpu({ gpu }: Wish): string[] {
    if (!gpu || this.hasGpuType(gpu.id)) return [];
    return [`gpu.id: GPU type ${JSON.stringify(gpu.id)} is not in the catalogue`];
  }

  #judgeCpu({ cpu }: Wish): string[] {
    if (!cpu) return [];
    const flavor = this.#findCpu(cpu.id);
    if (!flavor) return [`cpu.id: CPU flavour ${JSON.stringify(cpu.id)} is not in the catalogue`];
    const { maxMemory, vcpuCounts } = flavor;
    const errors: string[] = [];
    if (!vcpuCounts.includes(cpu.vcpuCount)) {
      errors.push(`cpu.vcpuCount: "${cpu.id}" has ${vcpuCounts.join(', ')}`);
    }
    if (cpu.memory > maxMemory) errors.push(`cpu.memory: "${cpu.id}" has at most ${maxMemory}`);
    return errors;
  }

  #judgePlaces(userId: string, wish: Wish): string[] {
    const { dataCenterId, mounts } = wish;
    const isKnown = dataCenterId === null || this.#contents.dataCenters.includes(dataCenterId);
    const errors = isKnown
      ? []
      : [`dataCenterId: data center ${JSON.stringify(dataCenterId)} not found`];
    const place = this.dataCenterFor(userId, wish);
    for (const [index, { volumeId }] of (mounts.network ?? []).entries()) {
      const path = `mounts.network[${index}].volumeId`;
      const volume = this.volume(userId, volumeId);
      if (!volume) errors.push(`${path}: network volume ${JSON.stringify(volumeId)} not found`);
      else if (isKnown && volume.dataCenterId !== place) {
        const where = `"${volumeId}" is in data center "${volume.dataCenterId}"`;
        errors.push(`${path}: ${where}, the pod is to run in "${place}"`);
      }
    }
    return errors;
  }

  #findGpu(id: string): OfferedGpu | undefined {
    return this.#contents.gpus.find((offered) => offered.id === id);
  }

  #findCpu(id: string): CpuFlavor | undefined {
    return this.#contents.cpus.find((flavor) => flavor.id === id);
  }
}

/** Without the tail of binary fractions: 0.3 and not 0.30000000000000004. */
function roundPrice(price: number): number {
  return Number(price.toPrecision(12));
}

function describeGpu({ devices, ...offered }: OfferedGpu, held: ReadonlySet<string>): GpuType {
  const available = devices.filter((uuid) => !held.has(uuid)).length;
  return { ...offered, total: devices.length, available };
}

/** Positions fall from the list's length to 1. */
function cutPage<T>(
  all: readonly T[],
  { before = all.length + 1, limit }: CatalogPage,
): { items: T[]; next: number | undefined } {
  const start = Math.max(0, all.length + 1 - before);
  const items = all.slice(start, start + limit);
  const left = all.length - start - items.length;
  return { items, next: left > 0 && items.length > 0 ? left + 1 : undefined };
}
