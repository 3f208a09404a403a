// `millrace catalog`: lists the GPU types, CPU flavors and data centers of a platform, and what its engine can do.
import { connectList } from '../../client/resource-calls.ts';
import { listCapabilities } from '../../wire/engine/capability-texts.ts';
import type { CpuFlavor, DataCenter, GpuType } from '../../wire/resources/catalog.ts';
import { CATALOG_ROUTES } from '../../wire/routes/routes.ts';
import type { CommandGroup } from '../command.ts';
import { formatTable } from '../output.ts';
import {
  defineApiVerb,
  type ListKind,
  pageOptions,
  showList,
  showRecord,
} from './resource-command.ts';

const gpuKind: ListKind<GpuType> = {
  plural: 'gpus',
  emptyNote:
    'the platform found none, or its catalog offers none; `millrace doctor` on its machine lists GPUs',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    'MEMORY GB': ({ memory }) => String(memory),
    'USD/H': ({ price }) => String(price),
    FREE: ({ available, total }) => `${available} of ${total}`,
  },
};

const cpuKind: ListKind<CpuFlavor> = {
  plural: 'cpus',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    VCPUS: ({ vcpuCounts }) => vcpuCounts.join(','),
    'MAX MEMORY GB': ({ maxMemory }) => String(maxMemory),
    'USD/H PER VCPU': ({ vcpuPrice }) => String(vcpuPrice),
    'USD/H PER GB': ({ memoryPrice }) => String(memoryPrice),
  },
};

const dataCenterKind: ListKind<DataCenter> = {
  plural: 'dataCenters',
  columns: {
    ID: ({ id }) => id,
    NAME: ({ name }) => name,
    DEFAULT: ({ default: isDefault }) => (isDefault ? 'yes' : 'no'),
    ENGINE: ({ engine }) => engine ?? 'none',
    'GPU TYPES': ({ gpuTypes }) => gpuTypes.join(', ') || '-',
    'USD/GB/MONTH': ({ networkVolumePrice }) => String(networkVolumePrice),
  },
};

export const catalogCommands: CommandGroup = {
  name: 'millrace catalog',
  description: [
    'Lists the hardware that pods and workers can use, its prices, and what the engine can do for pods.',
  ],
  verbs: {
    gpus: defineApiVerb({
      summary: 'lists GPU types, their prices and how many GPUs are free',
      options: pageOptions,
      examples: ['millrace catalog gpus'],
      act: (request) => {
        const { path } = CATALOG_ROUTES.listGpuTypes;
        const source = { caller: request.caller, path, member: gpuKind.plural };
        return showList(connectList<GpuType>(source), gpuKind, request);
      },
    }),
    cpus: defineApiVerb({
      summary: 'lists CPU flavors and their prices',
      options: pageOptions,
      examples: ['millrace catalog cpus --json | jq .cpus[].id'],
      act: (request) => {
        const { path } = CATALOG_ROUTES.listCpuFlavors;
        const source = { caller: request.caller, path, member: cpuKind.plural };
        return showList(connectList<CpuFlavor>(source), cpuKind, request);
      },
    }),
    'data-centers': defineApiVerb({
      summary: 'lists data centers, the GPU types in each, and the price of network volumes',
      options: pageOptions,
      examples: ['millrace catalog data-centers'],
      act: (request) => {
        const { path } = CATALOG_ROUTES.listDataCenters;
        const source = { caller: request.caller, path, member: dataCenterKind.plural };
        return showList(connectList<DataCenter>(source), dataCenterKind, request);
      },
    }),
    engine: defineApiVerb({
      summary: 'prints what the engine can do for pods',
      options: {},
      examples: [
        'millrace catalog engine',
        'millrace catalog engine --json | jq .capabilities.disk',
      ],
      act: async ({ caller, json, width }) => {
        const { path } = CATALOG_ROUTES.listDataCenters;
        const source = { caller, path, member: dataCenterKind.plural };
        const { items } = await connectList<DataCenter>(source).page({ limit: 1 });
        // All data centers of a platform have the same engine.
        const { capabilities = null, engine = null } = items[0] ?? {};
        if (json) return showRecord({ engine, capabilities }, true);
        if (engine === null || !capabilities) return 'the platform has no engine: it runs no pods';
        const rows = listCapabilities(capabilities).map(({ name, value }) => [name, value]);
        return formatTable(['CAPABILITY', engine.toUpperCase()], rows, width);
      },
    }),
  },
  examples: ['millrace catalog gpus', 'millrace catalog data-centers', 'millrace catalog engine'],
};
