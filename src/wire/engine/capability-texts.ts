// Says in words what an engine can do for a pod, for the command line and the console. Loads no schemas.
import type { EngineCapabilitiesRecord } from '../resources/catalog.ts';

interface CapabilityText {
  name: string;
  value: string;
}

type SizeLimit = EngineCapabilitiesRecord['disk']['limit'];

const DISK_LIMITS: Readonly<Record<SizeLimit, string>> = {
  always: 'is limited',
  some: 'is limited if the storage of the machine can enforce it',
  never: 'is not limited',
};

/** Whether the size of a network volume is a limit. */
const VOLUME_LIMITS: Readonly<Record<SizeLimit, string>> = {
  always: 'is enforced',
  some: 'is enforced if the storage of the volume can',
  never: 'is not enforced',
};

/** One row for each capability, also for those that the engine lacks. */
export function listCapabilities(has: EngineCapabilitiesRecord): CapabilityText[] {
  const { disk, globalNetworking, gpus, gpusAtStart, limits, mounts, ports } = has;
  const limited = (is: boolean) => (is ? 'limited' : 'not limited');
  return [
    {
      name: 'stop',
      value: disk.keptOverStop
        ? 'a stopped pod keeps its disk'
        : 'a stopped pod loses its disk; only pods with a mount, and workers, can be stopped',
    },
    {
      name: 'GPUs',
      value: gpus === 'uuid' ? 'chosen by the platform' : 'chosen by the engine, by their type',
    },
    {
      name: 'GPUs after a stop',
      value: gpusAtStart ? 'any free ones of the type' : 'those of the first start',
    },
    { name: 'disk size', value: DISK_LIMITS[disk.limit] },
    { name: 'memory of CPU pods', value: limited(limits.memory) },
    { name: 'vCPUs', value: limited(limits.cpu) },
    { name: 'processes', value: limited(limits.processes) },
    {
      name: 'ports',
      value: `${ports.protocols.join(', ')}; reached from the ${
        ports.reach === 'machine' ? "engine's machine" : 'cluster only'
      }`,
    },
    { name: 'globalNetworking', value: globalNetworking ? 'yes' : 'no' },
    { name: 'persistent mounts', value: mounts.persistent ? 'yes' : 'no' },
    { name: 'size of volumes', value: VOLUME_LIMITS[mounts.sizeLimit] },
    {
      name: 'declared network volumes',
      value: mounts.network.map((kind) => `by ${kind}`).join(', ') || 'no',
    },
    {
      name: 'images and registries',
      value: has.registries ? 'pulled, with logins' : 'not used',
    },
    { name: 'health checks of images', value: has.healthChecks ? 'run' : 'not run' },
    { name: 'kubernetes', value: listAllowed(has.kubernetes) },
  ];
}

/** What pods and templates may set. */
function listAllowed(limits: EngineCapabilitiesRecord['kubernetes']): string {
  if (limits === null) return 'no';
  const { labels, nodeSelector, tolerations, ...classes } = limits;
  const allowed = [
    ...Object.entries(nodeSelector).map(
      ([key, values]) => `nodeSelector ${key} (${values.join(', ')})`,
    ),
    ...(tolerations.length > 0 ? [`tolerations (${tolerations.length})`] : []),
    ...labels.map((key) => `label ${key}`),
    ...Object.entries(classes).flatMap(([name, values]) =>
      values.length > 0 ? [`${name} (${values.join(', ')})`] : [],
    ),
  ];
  return allowed.join('; ') || 'nothing allowed';
}
