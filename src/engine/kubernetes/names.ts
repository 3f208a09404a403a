// Names, labels and annotations of a platform's objects in its namespace, by which the platform finds them again.
// Two platforms in one namespace differ in their names and in the label of the platform. Pure.
import { z } from 'zod';
import { nameInternalHost } from '../../base/net/internal-host.ts';
import type { ContainerMount, ContainerSpec, StateVolume } from '../engine.ts';

export const PLATFORM_LABEL = 'millrace.dev/platform';
export const POD_LABEL = 'millrace.dev/pod';
export const ENDPOINT_LABEL = 'millrace.dev/endpoint';
/** The parts of the spec that the view of a container needs, as JSON. */
const SPEC_ANNOTATION = 'millrace.dev/spec';
/** How a Pod ended that `stop` had to delete, as JSON. */
export const END_ANNOTATION = 'millrace.dev/end';

const recordedSpec = z.object({
  id: z.string(),
  generation: z.int(),
  labels: z.record(z.string(), z.string()),
  ports: z.array(z.object({ private: z.int(), protocol: z.enum(['http', 'tcp', 'udp']) })),
  gpus: z.array(z.string()),
  limits: z.object({ vcpus: z.number(), memoryGb: z.number() }).nullable(),
});
type RecordedSpec = z.infer<typeof recordedSpec>;

const recordedEnd = z.object({
  /** UID of the Pod. */
  uid: z.string(),
  exitCode: z.int(),
  /** Unix ms; null: its process was never started. */
  startedAt: z.number().nullable(),
  endedAt: z.number(),
});
export type RecordedEnd = z.infer<typeof recordedEnd>;

export function labelsOf(platform: string, spec: ContainerSpec): Record<string, string> {
  const endpoint = spec.labels['millrace.endpoint'];
  return {
    [PLATFORM_LABEL]: platform,
    [POD_LABEL]: spec.id,
    ...(endpoint !== undefined && { [ENDPOINT_LABEL]: endpoint }),
  };
}

export function keepSpec(spec: ContainerSpec): Record<string, string> {
  const { generation, gpus, id, labels, limits, ports } = spec;
  const recorded: RecordedSpec = {
    id,
    generation,
    labels,
    ports: [...ports],
    gpus: [...gpus],
    limits,
  };
  return { [SPEC_ANNOTATION]: JSON.stringify(recorded) };
}

interface Labelled {
  labels?: Readonly<Record<string, string>> | undefined;
  annotations?: Readonly<Record<string, string>> | undefined;
}

/** Undefined for an object of another platform or of somebody else. */
export function readSpec(
  platform: string,
  { annotations, labels }: Labelled,
): RecordedSpec | undefined {
  const text = annotations?.[SPEC_ANNOTATION];
  if (labels?.[PLATFORM_LABEL] !== platform || text === undefined) return undefined;
  return recordedSpec.parse(JSON.parse(text));
}

export function readEnd({ annotations }: Labelled): RecordedEnd | undefined {
  const text = annotations?.[END_ANNOTATION];
  return text === undefined ? undefined : recordedEnd.parse(JSON.parse(text));
}

export function writeSelector(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(',');
}

/** The Pod's name, and that of the Secret which is its record. */
export function nameContainer(
  platform: string,
  { generation, id }: Pick<ContainerSpec, 'id' | 'generation'>,
): string {
  return `${nameBase(platform, id)}-${generation}`;
}

/**
 * The claim of a mount. That of a persistent mount outlives the generations of its pod. A network volume without a size
 * is a claim of the operator.
 */
export function nameClaim(
  platform: string,
  id: string,
  { kind, sizeGb, source }: ContainerMount,
): string {
  if (kind === 'persistent') return `${nameBase(platform, id)}-${source}`;
  return sizeGb === undefined ? source : nameNetworkClaim(platform, source);
}

/** Of a network volume that a user has created. */
export function nameNetworkClaim(platform: string, source: string): string {
  return `${platform}-${source}`;
}

export function nameStateClaim(
  platform: string,
  { endpointId, slot }: Pick<StateVolume, 'endpointId' | 'slot'>,
): string {
  return `${nameBase(platform, endpointId)}-state-${slot}`;
}

/** A host name label for any ID; it is different for each ID. */
export function labelOf(id: string): string {
  const [label = ''] = nameInternalHost(id).split('.');
  return label;
}

function nameBase(platform: string, id: string): string {
  return `${platform}-${labelOf(id)}`;
}
