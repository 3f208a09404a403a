// What the containers, volumes and networks of a platform are called, and the labels by which it finds
// them again. Pure.

import { z } from 'zod';
import { nameInternalHost } from '../../base/internal-host.ts';
import type { ContainerMount, ContainerSpec, StateVolume } from '../engine.ts';

export const PLATFORM_LABEL = 'millrace.platform';
export const POD_LABEL = 'millrace.pod';
/** Endpoint that a worker's container, or a state volume, belongs to. */
export const ENDPOINT_LABEL = 'millrace.endpoint';
export const NETWORK_LABEL = 'millrace.network';
const GENERATION_LABEL = 'millrace.generation';
/** What cannot be read off a container: an image's own labels are among its labels, for one. */
const SPEC_LABEL = 'millrace.spec';

const keptSpec = z.object({
  labels: z.record(z.string(), z.string()),
  ports: z.array(z.object({ private: z.int(), protocol: z.enum(['http', 'tcp', 'udp']) })),
  gpus: z.array(z.string()),
});

export interface LabelledSpec extends z.infer<typeof keptSpec> {
  id: string;
  generation: number;
  /** As its spec has it. */
  network: string | null;
}

/** The spec's own labels are there by themselves too, for whoever looks with the engine's own tools. */
export function writeLabels(platform: string, spec: ContainerSpec): Record<string, string> {
  const { generation, gpus, id, labels, network, ports } = spec;
  return {
    ...labels,
    [PLATFORM_LABEL]: platform,
    [POD_LABEL]: id,
    [GENERATION_LABEL]: `${generation}`,
    [SPEC_LABEL]: JSON.stringify({ labels, ports, gpus }),
    ...(network !== null && { [NETWORK_LABEL]: network }),
  };
}

/** Undefined for what another platform, or somebody else, has made. */
export function readLabels(
  platform: string,
  labels: Readonly<Record<string, string>>,
): LabelledSpec | undefined {
  const { [GENERATION_LABEL]: generation, [POD_LABEL]: id, [SPEC_LABEL]: spec } = labels;
  if (labels[PLATFORM_LABEL] !== platform || id === undefined || spec === undefined) {
    return undefined;
  }
  const kept = keptSpec.parse(JSON.parse(spec));
  return { ...kept, id, generation: Number(generation), network: labels[NETWORK_LABEL] ?? null };
}

/** For the labels of what belongs to a platform, or to one pod of it. */
export function filterBy(labels: Readonly<Record<string, string>>): { label: string[] } {
  return { label: Object.entries(labels).map(([name, value]) => `${name}=${value}`) };
}

export function nameContainer(platform: string, id: string): string {
  return `${platform}-${id}`;
}

/** An operator's own volumes keep the names that the operator gave them. */
export function nameVolume(platform: string, id: string, { kind, source }: ContainerMount): string {
  return kind === 'persistent' ? `${platform}-${id}-${source}` : source;
}

export function nameStateVolume(
  platform: string,
  { endpointId, slot }: Pick<StateVolume, 'endpointId' | 'slot'>,
): string {
  return `${platform}-${endpointId}-state-${slot}`;
}

/** Null: the one for containers that are to reach none of the others. */
export function nameNetwork(platform: string, network: string | null): string {
  return network === null ? `${platform}-apart` : `${platform}-net-${network}`;
}

/** Its names for others in its network. */
export function listAliases(id: string, network: string | null): string[] {
  // The ID itself is no valid host name, and was the only one once.
  return network === null ? [] : [nameInternalHost(id), `${id}.millrace.internal`];
}
