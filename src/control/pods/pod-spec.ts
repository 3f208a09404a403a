// Composes a pod's spec from request, template and defaults, and checks it against the catalog, the engine and the
// rules of mounts. Pure. The schema has already checked the form of each mount and that at most one network mount is
// given. At the end: what the engine cannot carry out, one sentence for each part of a request, with its path.
import { isDeepStrictEqual } from 'node:util';
import { ShellWordsError, splitWords } from '../../base/text/shell-words.ts';
import type { Engine, EngineCapabilities, RegistryLogin } from '../../engine/engine.ts';
import { findLimitFaults, type PodKubernetes } from '../../wire/engine/kubernetes.ts';
import { ProblemError } from '../../wire/problem.ts';
import type { PodCreation, PodMounts, PodUpdate } from '../../wire/resources/pod.ts';
import type { LiveTemplate } from '../endpoints/templates.ts';
import type { PodSpec, PodState } from './pod-state.ts';

/** The catalog: what exists, who may use it, and what it costs. */
export interface PodCatalog {
  /**
   * Checks that GPU type, CPU flavor with its sizes, data center, network volume and registry
   * exist and go together. @throws ProblemError `invalid` that names each path
   */
  check(userId: string, spec: PodSpec): void;
  /** Returns the ID of the user's only network volume with this name, or what was given. @throws ProblemError `conflict` */
  resolveVolume(userId: string, idOrName: string): string;
  /** Like `resolveVolume`, for registries. @throws ProblemError `conflict` */
  resolveRegistry(userId: string, idOrName: string): string;
  /** USD per hour while it runs. */
  priceOf(spec: PodSpec): number;
  /** UUIDs of all devices of the type; none for an unknown type. */
  gpuDevices(gpuTypeId: string): readonly string[];
  /** `source` is the engine's name of the volume, unique to the user. */
  volume(userId: string, volumeId: string): { source: string; sizeGb?: number } | undefined;
  registry(userId: string, registryId: string): RegistryLogin | undefined;
  /** The named data center, or the default one. */
  dataCenterFor(userId: string, spec: PodSpec): string | null;
}

/** Origin of a pod that an endpoint has created for itself. */
export interface WorkerOrigin {
  endpointId: string;
  /** Process engine: the worker's handler module. */
  handler: string | null;
  /** The version of the handler that it fetches instead. Default: none. */
  version?: number | undefined;
  templateVersion: number;
  /** It is parked as soon as its setup is done. */
  isSpare?: boolean;
}

export const DEFAULT_DISK_GB = 20;

/** Replaces the names of network volumes and of the registry by IDs. @throws ProblemError `conflict` */
export function resolveNames<Given extends Pick<PodUpdate, 'mounts' | 'registry'>>(
  userId: string,
  given: Given,
  catalog: Pick<PodCatalog, 'resolveRegistry' | 'resolveVolume'>,
): Given {
  const { mounts, registry } = given;
  const network = mounts?.network?.map(({ path, volumeId }) => ({
    volumeId: catalog.resolveVolume(userId, volumeId),
    path,
  }));
  return {
    ...given,
    ...(network && { mounts: { ...mounts, network } }),
    ...(typeof registry === 'string' && { registry: catalog.resolveRegistry(userId, registry) }),
  };
}

/**
 * Missing members come from the template, then from the defaults. @throws ProblemError `invalid`, `unavailable` if the
 * variables of the template cannot be decrypted
 */
export function composeSpec(
  creation: PodCreation,
  template: LiveTemplate | undefined,
  worker: WorkerOrigin | undefined,
): PodSpec {
  const { cpu, gpu, locked, mounts, name } = creation;
  const { cloud, dataCenterId, globalNetworking } = creation;
  const { args, disk, env, image, kubernetes, ports, registry } = creation;
  const settings = kubernetes === undefined ? template?.kubernetes : kubernetes;
  const composed = image ?? template?.image;
  if (composed === undefined) throw refuse('image: is required without a template');
  if (env === undefined && template?.unopened) {
    const detail = `the variables of the template ${template.id} cannot be decrypted: ${template.unopened.why}`;
    throw new ProblemError('unavailable', detail);
  }
  return {
    name,
    image: composed,
    args: args ?? template?.args ?? '',
    handler: worker?.handler ?? null,
    ...(worker?.version !== undefined && { version: worker.version }),
    disk: disk ?? template?.disk ?? DEFAULT_DISK_GB,
    ports: ports ?? template?.ports ?? [],
    env: env ?? template?.env ?? {},
    registry: registry === undefined ? (template?.registry ?? null) : registry,
    ...(settings && { kubernetes: settings }),
    mounts,
    ...(gpu && { gpu }),
    ...(cpu && { cpu }),
    cloud,
    dataCenterId,
    globalNetworking,
    locked,
    template: template?.id ?? creation.template ?? null,
    templateVersion: worker?.templateVersion ?? template?.version ?? null,
  };
}

/** @throws ProblemError `invalid`, `rule_broken` */
export function updateSpec(spec: PodSpec, update: PodUpdate): PodSpec {
  const { kubernetes: updated, mounts: updatedMounts, ...fields } = update;
  if (fields.disk !== undefined && fields.disk < spec.disk) {
    throw refuse(`disk: can only grow, it has ${spec.disk} GB`);
  }
  const mounts = updateMounts({ mounts: spec.mounts, isGpuPod: isGpuPod(spec) }, updatedMounts);
  const { kubernetes: before, unopened, ...kept } = spec;
  const kubernetes = updated === undefined ? before : updated;
  return {
    ...kept,
    ...fields,
    mounts,
    ...(kubernetes && { kubernetes }),
    ...(unopened && fields.env === undefined && { unopened }),
  };
}

interface SpecChange {
  before: PodSpec;
  after: PodSpec;
  /** Whether the container of `before` has a disk of fixed size. */
  disk: 'limited' | 'unlimited';
}

/** Whether the container of `before` can be used for `after`. */
export function keepsContainer({ after, before, disk }: SpecChange): boolean {
  const isLargeEnough = disk === 'unlimited' || before.disk === after.disk;
  return isLargeEnough && isDeepStrictEqual(pickContainer(before), pickContainer(after));
}

/** No engine limits a volume, so its size is only in the record. */
function pickContainer({ args, env, image, kubernetes, mounts, ports, registry }: PodSpec) {
  const { network, persistent } = mounts;
  const path = persistent?.path;
  return { args, env, image, kubernetes, network, path, ports: new Set(ports), registry };
}

interface SpecCheck {
  userId: string;
  spec: PodSpec;
  catalog: PodCatalog;
  engine: EngineTraits;
}

/** @throws ProblemError `rule_broken`, `invalid` */
export function checkSpec({ catalog, engine, spec, userId }: SpecCheck): void {
  checkMounts({ mounts: spec.mounts, isGpuPod: isGpuPod(spec) });
  const fault = findArgsFault(spec.args);
  if (fault !== undefined) throw refuse(fault);
  const sourceOf = (volumeId: string) => catalog.volume(userId, volumeId)?.source;
  const misfits = findMisfits(spec, engine, sourceOf);
  if (misfits.length > 0) throw refuse(...misfits);
  if (engine.kind === 'process') checkForProcesses(spec);
  catalog.check(userId, spec);
  checkGpus(spec, catalog);
}

/** Whether there are enough GPUs at all, held ones included. @throws ProblemError `invalid` */
export function checkGpus(
  { gpu }: Pick<PodSpec, 'gpu'>,
  catalog: Pick<PodCatalog, 'gpuDevices'>,
): void {
  if (!gpu) return;
  const total = catalog.gpuDevices(gpu.id).length;
  if (gpu.count > total) throw refuse(`gpu.count: there are ${total} of ${gpu.id} in all`);
}

/** The process engine starts no image, so something else must name the program. */
function checkForProcesses({ args, handler, version }: PodSpec): void {
  if (args.trim() === '' && handler === null && version === undefined) {
    throw refuse('args: required, because the process engine runs this command line and no image');
  }
}

function isGpuPod({ gpu }: PodSpec): boolean {
  return gpu !== undefined;
}

function refuse(...errors: string[]): ProblemError {
  return new ProblemError('invalid', errors.join('; '), { errors });
}

/** Returns a sentence that names the field; undefined without a fault. */
function findArgsFault(args: string): string | undefined {
  try {
    splitWords(args);
    return undefined;
  } catch (error) {
    if (error instanceof ShellWordsError) return `args: ${error.message}`;
    throw error;
  }
}

/** @throws ProblemError `invalid` */
export function checkArgs(args: string | undefined): void {
  const fault = args === undefined ? undefined : findArgsFault(args);
  if (fault !== undefined) throw refuse(fault);
}

interface MountedPod {
  mounts: PodMounts;
  /** Only GPU pods may have host-local storage. */
  isGpuPod: boolean;
}

/** Checks the mounts of a new pod. @throws ProblemError `rule_broken` */
export function checkMounts({ isGpuPod, mounts }: MountedPod): void {
  checkKinds(mounts);
  if (mounts.persistent && !isGpuPod) {
    throw breakRule('mounts.persistent', 'is not available for CPU pods; use a network mount');
  }
}

/**
 * Returns the mounts after an update. An update without mounts changes nothing.
 * @throws ProblemError `rule_broken`, or `invalid` for a persistent mount that would shrink
 */
export function updateMounts(pod: MountedPod, update: PodMounts | undefined): PodMounts {
  if (update === undefined) return pod.mounts;
  checkKinds(update);
  const { network, persistent } = update;
  if (persistent) return { persistent: updatePersistent(pod.mounts, persistent) };
  if (network) return { network: updateNetwork(pod.mounts, network) };
  return pod.mounts;
}

/** For creation and update alike. */
function checkKinds({ network, persistent }: PodMounts): void {
  if (network && persistent) {
    throw breakRule('mounts', 'at most one of persistent and network may be set');
  }
  if (network?.length === 0) {
    throw breakRule('mounts.network', 'must not be empty; mounts cannot be removed');
  }
}

function updatePersistent(
  { persistent: existing }: PodMounts,
  persistent: NonNullable<PodMounts['persistent']>,
): NonNullable<PodMounts['persistent']> {
  if (!existing) throw breakRule('mounts.persistent', KIND_IS_FIXED);
  if (persistent.size < existing.size) {
    const fault = `mounts.persistent.size: can only grow, it has ${existing.size} GB`;
    throw refuse(fault);
  }
  return persistent;
}

function updateNetwork(
  { network: existing }: PodMounts,
  network: NonNullable<PodMounts['network']>,
): NonNullable<PodMounts['network']> {
  if (!existing) throw breakRule('mounts.network', KIND_IS_FIXED);
  if (network[0]?.volumeId !== existing[0]?.volumeId) {
    throw breakRule('mounts.network[0].volumeId', 'cannot be changed');
  }
  return network;
}

const KIND_IS_FIXED = 'cannot be added; the pod was created without one';

function breakRule(path: string, rule: string): ProblemError {
  return new ProblemError('rule_broken', `${path}: ${rule}`, { errors: [`${path}: ${rule}`] });
}

export interface EngineTraits {
  kind: Engine['kind'];
  capabilities: EngineCapabilities;
}

/** `sourceOf`: the engine's name of a network volume; undefined if the volume does not exist. */
export function findMisfits(
  {
    globalNetworking,
    kubernetes,
    mounts,
    ports,
  }: Pick<PodSpec, 'globalNetworking' | 'kubernetes' | 'mounts' | 'ports'>,
  { capabilities, kind }: EngineTraits,
  sourceOf: (volumeId: string) => string | undefined,
): string[] {
  const faults: string[] = [];
  const add = (path: string, why: string) =>
    faults.push(`${path}: not available on the engine ${kind}: ${why}`);
  if (globalNetworking && !capabilities.globalNetworking) {
    add('globalNetworking', 'it gives pods no network of their own');
  }
  const { protocols } = capabilities.ports;
  for (const [index, port] of ports.entries()) {
    if (protocols.some((protocol) => port.endsWith(`/${protocol}`))) continue;
    add(`ports[${index}]`, `its ports are ${protocols.join(', ')}`);
  }
  if (mounts.persistent && !capabilities.mounts.persistent) {
    add('mounts.persistent', 'it has no volumes that outlive a container');
  }
  for (const [index, { volumeId }] of (mounts.network ?? []).entries()) {
    const source = sourceOf(volumeId);
    const fault =
      source === undefined ? undefined : findMountMisfit(source, { capabilities, kind });
    if (fault !== undefined) faults.push(`mounts.network[${index}].volumeId: ${fault}`);
  }
  if (kubernetes) faults.push(...findKubernetesFaults(kubernetes, { capabilities, kind }));
  return faults;
}

/** Of `kubernetes` of a pod or template: one sentence for each part that it may not have. */
export function findKubernetesFaults(
  wanted: PodKubernetes,
  { capabilities, kind }: EngineTraits,
): string[] {
  if (capabilities.kubernetes) return findLimitFaults(wanted, capabilities.kubernetes);
  return [`kubernetes: not available on the engine ${kind}: leave it out`];
}

/** Why the engine cannot mount the network volume that it knows by this name; undefined if it can. */
export function findMountMisfit(
  source: string,
  { capabilities, kind }: EngineTraits,
): string | undefined {
  const form = source.startsWith('/') ? 'folder' : 'name';
  if (capabilities.mounts.network.includes(form)) return undefined;
  const why =
    form === 'folder'
      ? 'it mounts no folders of a machine; declare the volume without a path'
      : 'it knows no volumes by name';
  return `not available on the engine ${kind}: ${why}`;
}

/**
 * Whether a stopped pod finds its files again: on its disk, or on a volume. Workers of endpoints have none to keep.
 */
export function canStop(
  { endpointId, spec }: Pick<PodState, 'endpointId' | 'spec'>,
  { capabilities }: Pick<EngineTraits, 'capabilities'>,
): boolean {
  const { network, persistent } = spec.mounts;
  return Boolean(capabilities.disk.keptOverStop || endpointId !== null || persistent || network);
}

/** @throws ProblemError `invalid` for a pod that cannot be stopped */
export function checkStop(pod: Pick<PodState, 'endpointId' | 'spec'>, engine: EngineTraits): void {
  if (canStop(pod, engine)) return;
  const fault =
    `stop: not available on the engine ${engine.kind}: it does not keep the disk of a stopped pod; ` +
    'create the pod with a mount for the files that it must keep, or terminate it';
  throw new ProblemError('invalid', fault, { errors: [fault] });
}
