// Names and labels of a platform's containers, volumes and networks, by which the platform finds
// them again. Pure.

import { z } from 'zod';
import { nameInternalHost } from '../../base/net/internal-host.ts';
import type { ContainerMount, ContainerSpec, StateVolume } from '../engine.ts';

export const PLATFORM_LABEL = 'millrace.platform';
export const POD_LABEL = 'millrace.pod';
/** Endpoint that a worker's container, or a state volume, belongs to. */
export const ENDPOINT_LABEL = 'millrace.endpoint';
export const NETWORK_LABEL = 'millrace.network';
const GENERATION_LABEL = 'millrace.generation';
/**
 * The spec as JSON. The container alone does not show its spec: for example, its labels include
 * those of the image.
 */
const SPEC_LABEL = 'millrace.spec';

const recordedSpec = z.object({
  labels: z.record(z.string(), z.string()),
  ports: z.array(z.object({ private: z.int(), protocol: z.enum(['http', 'tcp', 'udp']) })),
  gpus: z.array(z.string()),
});

export interface LabelledSpec extends z.infer<typeof recordedSpec> {
  id: string;
  generation: number;
  /** Network of the spec. */
  network: string | null;
}

/** Also sets the spec's own labels one by one, for the engine's own tools. */
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

/** Undefined for a container of another platform or of somebody else. */
export function readLabels(
  platform: string,
  labels: Readonly<Record<string, string>>,
): LabelledSpec | undefined {
  const { [GENERATION_LABEL]: generation, [POD_LABEL]: id, [SPEC_LABEL]: spec } = labels;
  if (labels[PLATFORM_LABEL] !== platform || id === undefined || spec === undefined) {
    return undefined;
  }
  const recorded = recordedSpec.parse(JSON.parse(spec));
  return {
    ...recorded,
    id,
    generation: Number(generation),
    network: labels[NETWORK_LABEL] ?? null,
  };
}

/** The query of a list of what has all these labels. */
export function filterBy(labels: Readonly<Record<string, string>>): { filters: string } {
  const label = Object.entries(labels).map(([name, value]) => `${name}=${value}`);
  return { filters: JSON.stringify({ label }) };
}

export function nameContainer(platform: string, id: string): string {
  return `${platform}-${id}`;
}

/** An operator's own volumes keep their names. */
export function nameVolume(platform: string, id: string, { kind, source }: ContainerMount): string {
  return kind === 'persistent' ? `${platform}-${id}-${source}` : source;
}

export function nameStateVolume(
  platform: string,
  { endpointId, slot }: Pick<StateVolume, 'endpointId' | 'slot'>,
): string {
  return `${platform}-${endpointId}-state-${slot}`;
}

/** Null: the network of containers that must not reach each other. */
export function nameNetwork(platform: string, network: string | null): string {
  return network === null ? `${platform}-apart` : `${platform}-net-${network}`;
}

/** Its host names in its network. */
export function listAliases(id: string, network: string | null): string[] {
  return network === null ? [] : [nameInternalHost(id)];
}
